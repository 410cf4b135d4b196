"""Sliding windows over channels-last images, and the padding that TFLite's kernels compute themselves."""

from __future__ import annotations

from convertkit.targets.forms.windows import Sizes, Stated, Window
from convertkit.targets.tflite.builder.spatial import Padding
from convertkit.targets.tflite.tensor import DYNAMIC


def window(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
) -> Window:
    """The window over spatial ``sizes`` as Conv-11 and the pools define it."""
    return Stated(strides, dilations, pads, auto_pad).over(_known(sizes), kernel)


def grown(win: Window, sizes: tuple[int, ...]) -> Window:
    """The window with the padding at the end that ``ceil_mode`` implies."""
    return win.grown(_known(sizes))


def covered(win: Window, sizes: tuple[int, ...]) -> Window:
    """The same of dynamic sizes, too, for what padding behind does not change, or is corrected for."""
    return win.covered(_known(sizes))


def is_padded(win: Window) -> bool:
    """Whether the window reaches beyond the image anywhere."""
    return any(before or after for before, after in win.pads)


def pads_at_run_time(sizes: tuple[int, ...], strides: tuple[int, ...] | None, auto_pad: str) -> bool:
    """Whether the window's padding depends on dynamic sizes, and TFLite's padding SAME is that padding.

    Such a window is asked for without padding, and its operator with SAME: the kernels compute it for each call.
    Source: ONNX operators, Conv-11, SAME_UPPER; tensorflow/lite/kernels/padding.h, ``ComputePaddingHeightWidth``.
    """
    return auto_pad == "SAME_UPPER" and any(
        size == DYNAMIC and stride != 1 for size, stride in zip(sizes, strides or (), strict=False)
    )


def own_padding(win: Window, sizes: tuple[int, ...]) -> Padding | None:
    """The padding scheme that TFLite's kernels compute themselves and that equals the window's, if one does."""
    if not is_padded(win):
        return "VALID"
    if any(size == DYNAMIC and stride != 1 for size, stride in zip(sizes, win.strides, strict=True)):
        return None
    same = Stated(win.strides, win.dilations, None, "SAME_UPPER").over(_known(sizes), win.kernel)
    return "SAME" if same.pads == win.pads else None


def _known(sizes: tuple[int, ...]) -> Sizes:
    return tuple(None if size == DYNAMIC else size for size in sizes)

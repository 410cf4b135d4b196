"""Padding and output sizes of sliding windows: the defaults that ONNX states in prose only."""

from __future__ import annotations

from dataclasses import dataclass

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder.spatial import Padding
from convertkit.targets.tflite.tensor import DYNAMIC

Pads = tuple[tuple[int, int], ...]
"""Elements before and after each spatial axis."""


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window with every default filled in."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads

    def padding(self, sizes: tuple[int, ...]) -> Padding | None:
        """The padding scheme that TFLite's kernels compute themselves and that equals ours, if one does."""
        if not any(before or after for before, after in self.pads):
            return "VALID"
        axes = zip(sizes, self.kernel, self.strides, self.dilations, self.pads, strict=True)
        return "SAME" if all(_is_same(*axis) for axis in axes) else None


def window(
    sizes: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
) -> Window:
    """The window over spatial ``sizes`` as Conv-11 and the pools define it."""
    rank = len(kernel)
    strides = strides or (1,) * rank
    dilations = dilations or (1,) * rank
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(sizes, kernel, strides, dilations, strict=True)
        resolved = tuple(same(*axis, lower=auto_pad == "SAME_LOWER") for axis in axes)
    elif auto_pad == "VALID" or pads is None:
        resolved = ((0, 0),) * rank
    else:
        resolved = tuple(zip(pads[:rank], pads[rank:], strict=True))
    return Window(kernel, strides, dilations, resolved)


def grown(win: Window, sizes: tuple[int, ...]) -> Window:
    """The window with the padding at the end that ``ceil_mode`` implies.

    A last window that would start in the padding is dropped (ONNX operators, MaxPool-22, shape inference).
    """
    pads = []
    for size, kernel, stride, dilation, (before, after) in zip(
        sizes, win.kernel, win.strides, win.dilations, win.pads, strict=True
    ):
        if size == DYNAMIC:
            raise Unsupported("ceil_mode over an axis whose size is only known at run time")
        reach = (kernel - 1) * dilation + 1
        count = -(-(size + before + after - reach) // stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1
        pads.append((before, (count - 1) * stride + reach - size - before))
    clipped = tuple((before, max(after, 0)) for before, after in pads)
    return Window(win.kernel, win.strides, win.dilations, clipped)


def same(size: int, kernel: int, stride: int, dilation: int, *, lower: bool = False) -> tuple[int, int]:
    """Padding of one axis for ``auto_pad=SAME_*``: output size is ceil(size / stride), the odd element after.

    ``lower`` puts the odd element before.  Source: ONNX operators, Conv-11, ``auto_pad``.
    """
    if size == DYNAMIC and stride != 1:
        raise Unsupported("auto_pad with a stride over an axis whose size is only known at run time")
    reach = (kernel - 1) * dilation + 1
    total = reach - 1 if size == DYNAMIC else max((-(-size // stride) - 1) * stride + reach - size, 0)
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def _is_same(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> bool:
    if size == DYNAMIC and stride != 1:
        return False
    return same(size, kernel, stride, dilation) == pads

"""Pools over channels-last images (domain ``convertkit.nhwc``)."""

from __future__ import annotations

import numpy as np

from convertkit.onnx.registry import Registry
from convertkit.targets.forms.windows import Window
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import float_only
from convertkit.targets.tflite.handlers.window import covered, grown, is_padded, own_padding, pads_at_run_time, window
from convertkit.targets.tflite.handlers.windows import averaged, largest, largest_with_places
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

pooling = Registry()


@pooling.lowers_custom("MaxPool", domain=NHWC)
def max_pool(
    b: Builder,
    x: Tensor,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    storage_order: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """MAX_POOL_2D; other pads than SAME are written as the lowest value in front."""
    is_plain = x.rank <= 4 and len(b.results) == 1 and set(dilations or (1,)) == {1}
    is_same = is_plain and pads_at_run_time(x.shape[1:-1], strides, auto_pad)
    win = window(x.shape[1:-1], kernel_shape, strides, dilations, pads, "VALID" if is_same else auto_pad)
    if len(b.results) > 1:
        win = grown(win, x.shape[1:-1]) if ceil_mode else win
        return largest_with_places(b, x, win, column_major=bool(storage_order))
    win = covered(win, x.shape[1:-1]) if ceil_mode and not is_same else win
    if x.rank > 4 or any(step != 1 for step in win.dilations):
        return largest(b, x, win)
    if x.rank == 3:
        image = max_pool(
            b, b.expand_dims(x, 1), kernel_shape=(1, *kernel_shape), auto_pad=auto_pad, ceil_mode=ceil_mode,
            dilations=None if dilations is None else (1, *dilations), pads=_lifted(pads),
            strides=None if strides is None else (1, *strides),
        )  # fmt: skip
        assert isinstance(image, Tensor)  # a pair only where indices are asked for
        return b.squeeze(image, (1,))
    padding = "SAME" if is_same else own_padding(win, x.shape[1:-1])
    if padding is None:
        x = b.pad(x, ((0, 0), *win.pads, (0, 0)), _lowest(b, x))
        padding = "VALID"
    return b.max_pool_2d(x, window=_two(win.kernel), strides=_two(win.strides), padding=padding)


@pooling.lowers_custom("AveragePool", domain=NHWC)
def average_pool(
    b: Builder,
    x: Tensor,
    *,
    kernel_shape: tuple[int, ...],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """AVERAGE_POOL_2D where the kernel counts as ONNX does; a window over the whole image is a MEAN."""
    is_plain = x.rank <= 4 and not count_include_pad and set(dilations or (1,)) == {1}
    is_same = is_plain and pads_at_run_time(x.shape[1:-1], strides, auto_pad)
    win = window(x.shape[1:-1], kernel_shape, strides, dilations, pads, "VALID" if is_same else auto_pad)
    if x.rank > 4 or any(step != 1 for step in win.dilations):
        counted = win.pads if count_include_pad else ((0, 0),) * len(win.pads)
        return averaged(b, x, grown(win, x.shape[1:-1]) if ceil_mode else win, counted)
    if x.rank == 3:
        image = average_pool(
            b, b.expand_dims(x, 1), kernel_shape=(1, *kernel_shape), auto_pad=auto_pad, ceil_mode=ceil_mode,
            count_include_pad=count_include_pad, dilations=None if dilations is None else (1, *dilations),
            pads=_lifted(pads), strides=None if strides is None else (1, *strides),
        )  # fmt: skip
        return b.squeeze(image, (1,))
    counts_pads = bool(count_include_pad) and is_padded(win)
    stated, win = win, _at_least(win, x.shape[1:-1]) if ceil_mode and not is_same else win
    if win.kernel == x.shape[1:-1] and not is_padded(win) and not x.is_quantized:
        return b.mean(x, (1, 2), keep_dims=True)
    padding = "SAME" if is_same else own_padding(win, x.shape[1:-1])
    if padding == "VALID" or (padding == "SAME" and not counts_pads):
        return b.average_pool_2d(x, window=_two(win.kernel), strides=_two(win.strides), padding=padding)
    y = b.pad(x, ((0, 0), *win.pads, (0, 0)))
    y = b.average_pool_2d(y, window=_two(win.kernel), strides=_two(win.strides), padding="VALID")
    if counts_pads and win == stated:
        return y
    return _recounted(b, y, x, win, pads if counts_pads else None)


def _recounted(b: Builder, y: Tensor, x: Tensor, win: Window, counted: tuple[int, ...] | None) -> Tensor:
    """Means over windows that reach into padding, corrected for how many elements ONNX counts."""
    if DYNAMIC in x.shape[1:-1]:
        return b.div(y, _share_that_counts(b, x, win, counted or (0, 0, 0, 0)))
    factors = []
    rank = len(win.kernel)
    for axis, size in enumerate(x.shape[1:-1]):
        before, after = win.pads[axis]
        real = np.zeros(size + before + after)
        low = before - (counted[axis] if counted else 0)
        real[low : before + size + (counted[axis + rank] if counted else 0)] = 1
        starts = range(0, len(real) - win.kernel[axis] + 1, win.strides[axis])
        seen = np.array([real[start : start + win.kernel[axis]].sum() for start in starts])
        factors.append(win.kernel[axis] / seen)
    factor = (factors[0][:, None] * factors[1][None, :]).astype(np.float32)
    return b.mul(y, b.constant(factor[None, :, :, None]))


def _at_least(win: Window, sizes: tuple[int, ...]) -> Window:
    """The window of ``ceil_mode``; of dynamic sizes with padding that may be more than it needs."""
    return covered(win, sizes) if DYNAMIC in sizes else grown(win, sizes)


def _share_that_counts(b: Builder, x: Tensor, win: Window, counted: tuple[int, ...]) -> Tensor:
    """What part of each window counts in an image whose size is only known at run time: a mean of ones.

    The image counts, and of the padding ``counted``, as ONNX states pads.
    """
    float_only(x, "AveragePool over padding of a dynamic axis")
    sizes = [b.size_of(x, axis) if x.shape[axis] == DYNAMIC else x.shape[axis] for axis in (1, 2)]
    one = b.constant(np.array(1, np.float32))
    ones = b.fill(b.sizes([1, *sizes, 1]), one, (1, *x.shape[1:-1], 1))
    sides = tuple(zip(counted[:2], counted[2:], strict=True))
    if any(counted):
        ones = b.pad(ones, ((0, 0), *sides, (0, 0)), one)
    rest = [(before - first, after - last) for (before, after), (first, last) in zip(win.pads, sides, strict=True)]
    padded = b.pad(ones, ((0, 0), *rest, (0, 0)))
    return b.average_pool_2d(padded, window=_two(win.kernel), strides=_two(win.strides), padding="VALID")


def _lowest(b: Builder, x: Tensor) -> Tensor:
    if x.dtype == "float32":
        return b.constant(np.array(-np.inf, np.float32))
    return b.constant(np.array(np.iinfo(x.dtype).min, x.dtype), x.quantization)


def _lifted(pads: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if pads is None else (0, pads[0], 0, pads[1])


def _two(values: tuple[int, ...]) -> tuple[int, int]:
    first, second = values
    return first, second


@pooling.lowers_custom("GlobalAveragePool", domain=NHWC)
def global_average_pool(b: Builder, x: Tensor) -> Tensor:
    """MEAN, which XNNPACK runs faster than a pool over the whole image."""
    return b.mean(x, tuple(range(1, x.rank - 1)), keep_dims=True)


@pooling.lowers_custom("GlobalMaxPool", domain=NHWC)
def global_max_pool(b: Builder, x: Tensor) -> Tensor:
    """REDUCE_MAX."""
    return b.reduce_max(x, tuple(range(1, x.rank - 1)), keep_dims=True)

"""ONNX pools as MIL."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import in_float
from convertkit.targets.coreml.handlers.window import Pads, flat, grown, ones, pads_of
from convertkit.targets.coreml.tensor import Tensor, constant

pooling = Registry()


@pooling.lowers("MaxPool", since=(12, 22))
def max_pool(
    b: Builder,
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    storage_order: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Small integers in float32, which holds them; with dilations, the maximum of slices."""
    steps, gaps = ones(strides, len(kernel_shape)), ones(dilations, len(kernel_shape))
    border = pads_of(x, kernel_shape, steps, gaps, pads, auto_pad)
    if ceil_mode:
        border = grown(x, kernel_shape, steps, gaps, border)
    if set(gaps) != {1}:
        return _dilated(b, x, kernel_shape, steps, gaps, border)
    kind = x.dtype
    sizes, pad = kernel_shape, flat(border)
    result = b.op("max_pool", x=in_float(b, x), kernel_sizes=sizes, strides=steps, pad_type="custom", pad=pad)
    return b.cast(result, kind)


def _dilated(
    b: Builder, x: Tensor, kernel: tuple[int, ...], steps: tuple[int, ...], gaps: tuple[int, ...], border: Pads
) -> Tensor:
    """Axis by axis: a maximum over a box is a maximum along each axis."""
    least = float(np.finfo(x.dtype).min)
    if any(map(any, border)):
        x = b.op("pad", x=x, pad=flat(border), mode="constant", constant_val=b.real(least, x))
    for axis, (size, step, gap) in enumerate(zip(kernel, steps, gaps, strict=True)):
        count = (x.size(2 + axis) - (size - 1) * gap - 1) // step + 1
        places = np.arange(count) * step
        parts = [
            b.op("gather", x=x, indices=constant((places + at * gap).astype(np.int32)), axis=np.int32(2 + axis))
            for at in range(size)
        ]
        x = parts[0]
        for part in parts[1:]:
            x = b.op("maximum", x=x, y=part)
    return x


@pooling.lowers("AveragePool", since=(19, 22))
def average_pool(
    b: Builder,
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """``ceil_mode`` adds windows that reach beyond the padding, which is not counted."""
    return _average(b, x, kernel_shape, (strides, dilations, pads, auto_pad), bool(ceil_mode), bool(count_include_pad))


@pooling.lowers("AveragePool", since=11)
def older_average_pool(
    b: Builder,
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """As opset 18 defines it: without dilations."""
    return _average(b, x, kernel_shape, (strides, None, pads, auto_pad), bool(ceil_mode), bool(count_include_pad))


_Given = tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[int, ...] | None, str]


def _average(
    b: Builder, x: Tensor, kernel: tuple[int, ...], given: _Given, ceil_mode: bool, count_include_pad: bool
) -> Tensor:
    strides, dilations, pads, auto_pad = given
    steps, gaps = ones(strides, len(kernel)), ones(dilations, len(kernel))
    border = pads_of(x, kernel, steps, gaps, pads, auto_pad)
    whole = grown(x, kernel, steps, gaps, border) if ceil_mode else border
    if set(gaps) != {1} or (count_include_pad and whole != border):
        return _by_sums(b, x, kernel, steps, gaps, (border, whole), count_include_pad)
    return b.op(
        "avg_pool",
        x=x,
        kernel_sizes=kernel,
        strides=steps,
        pad_type="custom",
        pad=flat(whole),
        exclude_padding_from_average=not count_include_pad,
    )


def _by_sums(
    b: Builder,
    x: Tensor,
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    gaps: tuple[int, ...],
    borders: tuple[Pads, Pads],
    count_include_pad: bool,
) -> Tensor:
    """Sums by a convolution of ones for each channel, divided by the number of elements that count."""
    border, whole = borders
    channels = x.size(1)
    ones_like = np.ones((channels, 1, *kernel), x.dtype)
    total = b.op(
        "conv",
        x=x,
        weight=ones_like,
        strides=steps,
        pad_type="custom",
        pad=flat(whole),
        dilations=gaps,
        groups=np.int32(channels),
    )
    counts = np.ones((1, 1), np.float64)
    for axis, size in enumerate(x.sizes[2:]):
        (first, last), (before, after) = border[axis], whole[axis]
        counted = np.zeros(before + size + after)
        low, high = (before - first, before + size + last) if count_include_pad else (before, before + size)
        counted[low:high] = 1
        reach = (kernel[axis] - 1) * gaps[axis] + 1
        starts = range(0, len(counted) - reach + 1, steps[axis])
        along = np.array([counted[start : start + reach : gaps[axis]].sum() for start in starts])
        counts = counts[..., None] * along
    return b.op("mul", x=total, y=(1 / counts).astype(x.dtype))


@pooling.lowers("GlobalAveragePool", since=(1, 22))
def global_average_pool(b: Builder, x: Tensor) -> Tensor:
    return b.op("reduce_mean", x=x, axes=tuple(range(2, x.rank)), keep_dims=True)


@pooling.lowers("GlobalMaxPool", since=(1, 22))
def global_max_pool(b: Builder, x: Tensor) -> Tensor:
    return b.op("reduce_max", x=x, axes=tuple(range(2, x.rank)), keep_dims=True)


@pooling.lowers("LpPool", since=(18, 22))
def lp_pool(
    b: Builder,
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    p: int = 2,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """The root of the sum of powers, the sum by a convolution of ones for each channel."""
    steps, gaps = ones(strides, len(kernel_shape)), ones(dilations, len(kernel_shape))
    border = pads_of(x, kernel_shape, steps, gaps, pads, auto_pad)
    if ceil_mode:
        border = grown(x, kernel_shape, steps, gaps, border)
    size = b.op("abs", x=x)
    powers = size if p == 1 else b.op("pow", x=size, y=b.full(p, x))
    total = b.op(
        "conv",
        x=powers,
        weight=np.ones((x.size(1), 1, *kernel_shape), x.dtype),
        strides=steps,
        pad_type="custom",
        pad=flat(border),
        dilations=gaps,
        groups=np.int32(x.size(1)),
    )
    return _root(b, total, p)


def _root(b: Builder, x: Tensor, p: int) -> Tensor:
    if p == 1:
        return x
    return b.op("sqrt", x=x) if p == 2 else b.op("pow", x=x, y=b.full(1 / p, x))


@pooling.lowers("GlobalLpPool", since=(2, 22))
def global_lp_pool(b: Builder, x: Tensor, *, p: int = 2) -> Tensor:
    axes = tuple(range(2, x.rank))
    size = b.op("abs", x=x)
    powers = size if p == 1 else b.op("pow", x=size, y=b.full(p, x))
    return _root(b, b.op("reduce_sum", x=powers, axes=axes, keep_dims=True), p)


@pooling.lowers("LRN", since=13)
def lrn(b: Builder, x: Tensor, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    if size % 2 == 0:
        raise Unsupported("an even size: MIL does not say on which side the odd channel lies")
    return b.op(
        "local_response_norm",
        x=x,
        size=np.int32(size),
        alpha=b.real(alpha, x),
        beta=b.real(beta, x),
        k=b.real(bias, x),
    )

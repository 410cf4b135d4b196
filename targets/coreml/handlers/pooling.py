"""ONNX pools as MIL."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import in_float
from convertkit.targets.coreml.handlers.window import flat
from convertkit.targets.coreml.tensor import Tensor, constant
from convertkit.targets.forms.window_nodes import average, average_11, maximum
from convertkit.targets.forms.windows import Pads, Pool, Stated, Window

pooling = Registry()


@pooling.lowers("MaxPool", since=(12, 22))
@maximum
def max_pool(b: Builder, x: Tensor, pool: Pool) -> Tensor:
    """Small integers in float32, which holds them; with dilations, the maximum of slices."""
    window = pool.window(x.shape[2:])
    if set(window.dilations) != {1}:
        return _dilated(b, x, window)
    result = b.op(
        "max_pool",
        x=in_float(b, x),
        kernel_sizes=window.kernel,
        strides=window.strides,
        pad_type="custom",
        pad=flat(window.pads),
    )
    return b.cast(result, x.dtype)


def _dilated(b: Builder, x: Tensor, window: Window) -> Tensor:
    """Axis by axis: a maximum over a box is a maximum along each axis."""
    least = float(np.finfo(x.dtype).min)
    if any(map(any, window.pads)):
        x = b.op("pad", x=x, pad=flat(window.pads), mode="constant", constant_val=b.real(least, x))
    for axis, (size, step, gap) in enumerate(zip(window.kernel, window.strides, window.dilations, strict=True)):
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


def _average(b: Builder, x: Tensor, pool: Pool) -> Tensor:
    """``ceil_mode`` adds windows that reach beyond the padding, which is not counted."""
    stated, whole = pool.stated_window(x.shape[2:]), pool.window(x.shape[2:])
    if set(whole.dilations) != {1} or (pool.count_include_pad and whole != stated):
        return _by_sums(b, x, whole, stated.pads if pool.count_include_pad else ((0, 0),) * len(stated.pads))
    return b.op(
        "avg_pool",
        x=x,
        kernel_sizes=whole.kernel,
        strides=whole.strides,
        pad_type="custom",
        pad=flat(whole.pads),
        exclude_padding_from_average=not pool.count_include_pad,
    )


pooling.lowers("AveragePool", since=11)(average_11(_average))
pooling.lowers("AveragePool", since=(19, 22))(average(_average))


def _by_sums(b: Builder, x: Tensor, window: Window, counted_pads: Pads) -> Tensor:
    """Sums by a convolution of ones for each channel, divided by the number of elements that count."""
    total = _sums(b, x, window)
    counts = np.ones((1, 1), np.float64)
    for axis, size in enumerate(x.sizes[2:]):
        (first, last), (before, after) = counted_pads[axis], window.pads[axis]
        counted = np.zeros(before + size + after)
        counted[before - first : before + size + last] = 1
        reach, gap = window.reaches[axis], window.dilations[axis]
        starts = range(0, len(counted) - reach + 1, window.strides[axis])
        along = np.array([counted[start : start + reach : gap].sum() for start in starts])
        counts = counts[..., None] * along
    return b.op("mul", x=total, y=(1 / counts).astype(x.dtype))


def _sums(b: Builder, x: Tensor, window: Window) -> Tensor:
    channels = x.size(1)
    return b.op(
        "conv",
        x=x,
        weight=np.ones((channels, 1, *window.kernel), x.dtype),
        strides=window.strides,
        pad_type="custom",
        pad=flat(window.pads),
        dilations=window.dilations,
        groups=np.int32(channels),
    )


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
    window = Pool(kernel_shape, Stated(strides, dilations, pads, auto_pad), bool(ceil_mode)).window(x.shape[2:])
    size = b.op("abs", x=x)
    powers = size if p == 1 else b.op("pow", x=size, y=b.full(p, x))
    return _root(b, _sums(b, powers, window), p)


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

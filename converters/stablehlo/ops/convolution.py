"""``convolution`` in full generality: any dimension numbers, dilations, groups and element types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.at_sizes import convolution_window
from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import int64s
from convertkit.converters.stablehlo.mlir import bools, dtype_of, integer, ints, shape_of
from convertkit.converters.stablehlo.ops.convert import converted
from convertkit.converters.stablehlo.ops.dot import pairwise
from convertkit.converters.stablehlo.ops.movement import padded
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tape import Attribute
from convertkit.converters.stablehlo.tensor import (
    BF16,
    F16,
    F32,
    I64,
    Operand,
    Shape,
    Tensor,
    constant,
    is_float,
    splat,
)

convolutions = Handlers()


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of NC… with OI… operands, per spatial axis."""

    strides: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    spread: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    batch_groups: int
    reversal: tuple[bool, ...]
    is_same: bool = False
    """Whether padding is ONNX's SAME_UPPER, which ``low`` and ``high`` do not say."""


@convolutions.translates
def convolution(b: Builder, op: hlo.ConvolutionOp, x: Tensor, kernel: Tensor) -> Tensor:
    return _convolved(b, op, x, kernel)


@convolutions.translates
def dynamic_conv(b: Builder, op: hlo.DynamicConvOp, x: Tensor, kernel: Tensor, amounts: Tensor) -> Tensor:
    """Padding (axis, side) that depends on dynamic sizes is a rule of ONNX, or carried out in front."""
    numbers = hlo.ConvDimensionNumbers(op.dimension_numbers)
    spatial = list(numbers.input_spatial_dimensions)
    value, _, padding = op.operation.operands
    window = convolution_window(op.operation) if x.dtype in (F32, F16, BF16) else None
    if window is not None and b.regions.at_sizes.is_same(value, spatial, padding, window):
        return _convolved(b, op, x, kernel, is_spread=True, is_same=True)
    between = [0] * x.rank
    for axis, spread in zip(spatial, ints(op.lhs_dilation, (1,) * len(spatial)), strict=True):
        between[axis] = spread - 1
    x = padded(b, x, b.like(x, 0), [0] * x.rank, [0] * x.rank, between)
    both = b.reshape(b.transpose(b.cast(amounts, I64), [1, 0]), (2 * len(spatial),))
    inputs = [x, both, b.like(x, 0), int64s(spatial)]
    shape = tuple(None if axis in spatial else size for axis, size in enumerate(x.shape))
    return _convolved(b, op, b.op("Pad", inputs, shape, x.dtype), kernel, is_spread=True)


@convolutions.complex
def complex_convolution(b: Builder, op: hlo.ConvolutionOp, x: Operand, kernel: Operand) -> Operand:
    return pairwise(b, x, kernel, lambda p, q: _convolved(b, op, p, q))


def _attributes(op: hlo.ConvolutionOp | hlo.DynamicConvOp, rank: int, *, is_spread: bool, is_same: bool) -> Convolution:
    ones = (1,) * rank
    zeros = (0,) * (2 * rank)
    padding = zeros if is_spread else ints(op.padding, zeros)
    return Convolution(
        ints(op.window_strides, ones),
        padding[::2],
        padding[1::2],
        ones if is_spread else ints(op.lhs_dilation, ones),
        ints(op.rhs_dilation, ones),
        integer(op.feature_group_count),
        integer(op.batch_group_count),
        bools(op.window_reversal, (False,) * rank),
        is_same,
    )


def _convolved(
    b: Builder,
    op: hlo.ConvolutionOp | hlo.DynamicConvOp,
    x: Tensor,
    kernel: Tensor,
    *,
    is_spread: bool = False,
    is_same: bool = False,
) -> Tensor:
    """``is_spread``: dilation and padding of the input have been carried out, or ``is_same`` says the latter."""
    shape = shape_of(op.result.type)
    if None not in shape and 0 in (*shape, *x.shape, *kernel.shape):
        # Nothing comes out, or sums of nothing; Conv refuses a kernel that is larger than its input.
        return splat(0, shape, dtype_of(op.result.type))
    numbers = hlo.ConvDimensionNumbers(op.dimension_numbers)
    how = _attributes(op, len(numbers.input_spatial_dimensions), is_spread=is_spread, is_same=is_same)
    x = b.transpose(
        x, [numbers.input_batch_dimension, numbers.input_feature_dimension, *numbers.input_spatial_dimensions]
    )
    order = [numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension]
    kernel = b.transpose(kernel, [*order, *numbers.kernel_spatial_dimensions])
    result = convolved(b, x, kernel, how, dtype_of(op.result.type))
    out = [numbers.output_batch_dimension, numbers.output_feature_dimension, *numbers.output_spatial_dimensions]
    return b.transpose(result, [out.index(axis) for axis in range(len(out))])


def convolved(b: Builder, x: Tensor, kernel: Tensor, how: Convolution, dtype: ir.DataType) -> Tensor:
    """NC… by OI… → NO…, in ``dtype``."""
    kernel = b.reverse(kernel, [axis + 2 for axis, flipped in enumerate(how.reversal) if flipped])
    if how.batch_groups > 1:
        x, how = _batch_to_features(b, x, how)
    wide = _common(x.dtype, kernel.dtype, dtype)
    x, kernel = converted(b, x, wide), converted(b, kernel, wide)
    if not how.strides:
        result = _by_matmul(b, x, kernel, how)
    elif wide in (F32, F16, BF16):
        result = _transposed(b, x, kernel, how) or _direct(b, *_prepared(b, x, how), kernel)
    else:
        result = _by_matmul(b, *_prepared(b, x, how)[:1], kernel, _prepared_how(how))
    return converted(b, result, dtype)


def _common(*dtypes: ir.DataType) -> ir.DataType:
    floats = [dtype for dtype in dtypes if is_float(dtype)]
    return max(floats or dtypes, key=lambda dtype: dtype.bitwidth)


def _batch_to_features(b: Builder, x: Tensor, how: Convolution) -> tuple[Tensor, Convolution]:
    """Batch group g convolves with its share of output features: the same as feature groups."""
    count, (batch, features, *spatial) = how.batch_groups, x.shape
    each = None if batch is None else batch // count
    apart = b.reshape(x, (count, each, features, *spatial))
    together = b.transpose(apart, [1, 0, 2, *range(3, x.rank + 1)])
    joined: Shape = (each, None if features is None else count * features, *spatial)
    return b.reshape(together, joined), replace(how, groups=count, batch_groups=1)


def _prepared_how(how: Convolution) -> Convolution:
    ones, zeros = (1,) * len(how.strides), (0,) * len(how.strides)
    return replace(how, low=zeros, high=zeros, spread=ones)


def _prepared(b: Builder, x: Tensor, how: Convolution) -> tuple[Tensor, Convolution]:
    """Carry out what Conv has no attribute for: spreading apart and negative padding."""
    plain = all(spread == 1 for spread in how.spread) and min((*how.low, *how.high), default=0) >= 0
    if plain and x.dtype in (F32, F16, BF16):
        return x, how
    between = [spread - 1 for spread in how.spread]
    zero = b.like(x, 0)
    return padded(b, x, zero, (0, 0, *how.low), (0, 0, *how.high), (0, 0, *between)), _prepared_how(how)


def _output(x: Shape, kernel: Shape, how: Convolution) -> Shape:
    sizes: list[int | None] = [x[0], kernel[0]]
    for axis, size in enumerate(x[2:]):
        reach = ((kernel[axis + 2] or 0) - 1) * how.dilations[axis] + 1
        if size is None:
            sizes.append(None)
            continue
        if how.is_same:
            sizes.append(-(-size // how.strides[axis]))
            continue
        whole = (size - 1) * how.spread[axis] + 1 + how.low[axis] + how.high[axis]
        sizes.append(max(0, (whole - reach) // how.strides[axis] + 1))
    return tuple(sizes)


def _direct(b: Builder, x: Tensor, how: Convolution, kernel: Tensor) -> Tensor:
    padding: dict[str, Attribute] = {"auto_pad": "SAME_UPPER"} if how.is_same else {"pads": [*how.low, *how.high]}
    attributes: dict[str, Attribute] = {
        "strides": how.strides,
        "dilations": how.dilations,
        **padding,
        "group": how.groups,
        "kernel_shape": [size or 0 for size in kernel.shape[2:]],
    }
    return b.op("Conv", [x, kernel], _output(x.shape, kernel.shape, how), x.dtype, attributes)


def _transposed(b: Builder, x: Tensor, kernel: Tensor, how: Convolution) -> Tensor | None:
    """A convolution over a spread input is ``ConvTranspose`` with the kernel turned around."""
    reach = [((size or 0) - 1) * d for size, d in zip(kernel.shape[2:], how.dilations, strict=True)]
    low = [r - p for r, p in zip(reach, how.low, strict=True)]
    high = [r - p for r, p in zip(reach, how.high, strict=True)]
    extra = [max(0, -pad) for pad in high]
    fits = all(e < s for e, s in zip(extra, how.spread, strict=True)) and min(low) >= 0
    if all(s == 1 for s in how.spread) or any(s != 1 for s in how.strides) or not fits:
        return None
    outputs, inputs = kernel.shape[0] or 0, kernel.shape[1] or 0
    spatial = [size or 0 for size in kernel.shape[2:]]
    grouped = b.reshape(kernel, (how.groups, outputs // how.groups, inputs, *spatial))
    turned = b.transpose(grouped, [0, 2, 1, *range(3, grouped.rank)])
    weights = b.reshape(turned, (how.groups * inputs, outputs // how.groups, *spatial))
    weights = b.reverse(weights, list(range(2, weights.rank)))
    attributes: dict[str, Attribute] = {
        "strides": how.spread,
        "dilations": how.dilations,
        "pads": [*low, *(max(0, pad) for pad in high)],
        "output_padding": extra,
        "group": how.groups,
        "kernel_shape": spatial,
    }
    return b.op("ConvTranspose", [x, weights], _output(x.shape, kernel.shape, how), x.dtype, attributes)


def _by_matmul(b: Builder, x: Tensor, kernel: Tensor, how: Convolution) -> Tensor:
    """Patches times kernel, for element types that Conv has no kernel for (doubles, integers)."""
    out = _output(x.shape, kernel.shape, how)
    spatial = [size or 0 for size in kernel.shape[2:]]
    for axis in range(len(spatial) - 1, -1, -1):
        first = np.arange(out[axis + 2] or 0)[:, None] * how.strides[axis]
        places = first + np.arange(spatial[axis])[None, :] * how.dilations[axis]
        x = b.gather(x, constant(places.astype(np.int64)), axis + 2)
    # N, C, out0, k0, out1, k1, … → N, group, C/group, kernel…, out…
    rank = len(spatial)
    order = [0, 1, *(3 + 2 * axis for axis in range(rank)), *(2 + 2 * axis for axis in range(rank))]
    x = b.transpose(x, order)
    channels, positions = x.shape[1] or 0, math.prod(size or 0 for size in out[2:])
    rows = (channels // how.groups) * math.prod(spatial)
    columns = b.reshape(x, (x.shape[0], how.groups, rows, positions))
    weights = b.reshape(kernel, (1, how.groups, (kernel.shape[0] or 0) // how.groups, rows))
    shape: Sequence[int | None] = (x.shape[0], how.groups, (kernel.shape[0] or 0) // how.groups, positions)
    return b.reshape(b.op("MatMul", [weights, columns], tuple(shape), x.dtype), out)

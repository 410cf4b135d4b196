"""QuantizeLinear and DequantizeLinear as MIL; weights become constants that are widened when the model is loaded."""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import known
from convertkit.targets.coreml.tensor import Tensor, constant

quantization = Registry()

_IOS18 = 9
_BYTES = ("int8", "uint8")
_NIBBLES = ("int4", "uint4")
_RAISE = "--coreml-deployment-target iOS18"


@quantization.lowers("QuantizeLinear", since=(13,))
def quantize_13(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, *, axis: int = 1) -> Tensor:
    return _quantize(b, x, scale, zero, axis)


@quantization.lowers("QuantizeLinear", since=(19,))
def quantize_19(
    b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, *, axis: int = 1, saturate: int = 1
) -> Tensor:
    return _quantize(b, x, scale, zero, axis)


@quantization.lowers("QuantizeLinear", since=(21,))
def quantize_21(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Tensor:
    return _quantize(b, x, scale, zero, axis, block_size)


@quantization.lowers("QuantizeLinear", since=(23, 24, 25, 28))
def quantize_23(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Tensor:
    return _quantize(b, x, scale, zero, axis, block_size)


def _quantize(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, block_size: int = 0) -> Tensor:
    """``quantize``, whose zero point is a vector wherever the scale is one; blocks by arithmetic, in int32."""
    steps = known(scale, "scales")
    shift = None if zero is None else known(zero, "zero points")
    kind = "uint8" if shift is None else shift.dtype.name
    if kind not in _BYTES:
        raise Unsupported(f"{kind} integers: MIL's quantize makes int8 and uint8")
    if block_size:
        points = None if shift is None else constant(_spread(shift, x, axis, block_size).astype(x.dtype))
        return _held(b, x, constant(_spread(steps, x, axis, block_size).astype(x.dtype)), points, kind)
    if shift is None:
        shift = np.zeros(steps.shape, np.uint8)
    if steps.size == 1:
        steps, shift = steps.reshape(()), shift.reshape(())
    along = np.int32(axis % x.rank) if steps.ndim else None
    if x.rank == 0:
        raise Unsupported("a scalar: MIL's quantize takes tensors")
    return b.op(
        "quantize", input=x, zero_point=shift[()], scale=steps.astype(x.dtype)[()], axis=along, output_dtype=kind
    )


def _held(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, kind: str) -> Tensor:
    """``x`` in steps of ``scale`` from ``zero`` on, both real, as the int32 that stand for integers of ``kind``."""
    limits = np.iinfo(kind)
    steps = b.op("round", x=b.op("real_div", x=x, y=scale))
    steps = steps if zero is None else b.op("add", x=steps, y=zero)
    return b.cast(b.op("clip", x=steps, alpha=b.real(limits.min, x), beta=b.real(limits.max, x)), "int32")


@quantization.lowers("DynamicQuantizeLinear", since=11)
def dynamic_quantize(b: Builder, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 from the least to the largest number and 0; one step is 1 where all are 0, as ONNX Runtime has it."""
    axes, zero = tuple(range(x.rank)), b.full(0, x)
    flat = b.reshape(x, (1,)) if not x.rank else x
    least = b.op("minimum", x=b.op("reduce_min", x=flat, axes=axes or (0,), keep_dims=False), y=zero)
    most = b.op("maximum", x=b.op("reduce_max", x=flat, axes=axes or (0,), keep_dims=False), y=zero)
    span = b.op("sub", x=most, y=least)
    step = b.op("real_div", x=span, y=b.full(255, x))
    step = b.select(b.op("equal", x=span, y=zero), b.full(1, x), step)
    point = _held(b, b.op("mul", x=least, y=b.full(-1, x)), step, None, "uint8")
    return _held(b, x, step, b.cast(point, x.dtype), "uint8"), step, point


@quantization.lowers("DequantizeLinear", since=(13, 19))
def dequantize_13(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, *, axis: int = 1) -> Tensor:
    return _dequantize(b, x, scale, zero, axis, 0)


@quantization.lowers("DequantizeLinear", since=(21,))
def dequantize_21(
    b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, *, axis: int = 1, block_size: int = 0
) -> Tensor:
    return _dequantize(b, x, scale, zero, axis, block_size)


@quantization.lowers("DequantizeLinear", since=(23, 24, 25, 28))
def dequantize_23(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    return _dequantize(b, x, scale, zero, axis, block_size)


def _dequantize(b: Builder, x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, block_size: int) -> Tensor:
    steps = known(scale, "scales")
    shift = None if zero is None else known(zero, "zero points")
    if x.array is not None:
        return _weight(b, x.array, steps, shift, axis, block_size)
    if x.dtype not in _BYTES:
        return _by_arithmetic(b, x, steps, shift, axis, block_size)
    if steps.size == 1:
        steps, shift = steps.reshape(()), None if shift is None else shift.reshape(())
    along = np.int32(axis % x.rank) if steps.ndim else None
    point = None if shift is None else shift[()]
    return b.op("dequantize", input=x, zero_point=point, scale=steps[()], axis=along)


def _by_arithmetic(b: Builder, x: Tensor, steps: Array, shift: Array | None, axis: int, block_size: int) -> Tensor:
    """Integers that Core ML holds as int32, such as an input of the model."""
    real = b.cast(x, steps.dtype.name)
    if shift is not None and shift.any():
        real = b.op("sub", x=real, y=constant(_spread(shift, x, axis, block_size).astype(real.dtype)))
    return b.op("mul", x=real, y=constant(_spread(steps, x, axis, block_size)))


def _spread(values: Array, x: Tensor, axis: int, block_size: int) -> Array:
    """Scales or zero points in a shape that meets ``x``: one for each element of the axis, or one for all."""
    at = axis % x.rank if x.rank else 0
    if block_size:
        return np.repeat(values, block_size, at).take(range(x.size(at)), at)
    if values.size == 1:
        return values.reshape(())
    return values.reshape([values.size if each == at else 1 for each in range(x.rank)])


def _weight(b: Builder, x: Array, steps: Array, shift: Array | None, axis: int, block_size: int) -> Tensor:
    """Integers that are stored as they are; wider ones, such as biases, as the floats that they stand for."""
    kind = x.dtype.name
    if kind not in (*_BYTES, *_NIBBLES) or x.ndim == 0:
        return constant(_real(x, steps, shift, axis, block_size))
    if kind in _NIBBLES and b.version < _IOS18:
        raise Unsupported("weights of 4 bits, which iOS 18 is the first to have", ways_out=(_RAISE, "--w8"))
    if block_size and b.version < _IOS18:
        raise Unsupported("weights in blocks that share a scale, which iOS 18 is the first to have", ways_out=(_RAISE,))
    if b.version >= _IOS18:
        spread = _blocks(x, steps, axis, block_size)
        offset = None if shift is None or not shift.astype(np.int32).any() else _blocks(x, shift, axis, block_size)
        point = None if offset is None else b.narrow(offset)
        return b.op("constexpr_blockwise_shift_scale", data=b.narrow(x), scale=spread, offset=point)
    scales = steps.reshape(()) if steps.size == 1 else steps
    points = np.zeros((), x.dtype) if shift is None else shift.reshape(scales.shape)
    along = np.int32(axis % x.ndim if steps.size > 1 else 0)
    return b.op("constexpr_affine_dequantize", quantized_data=x, zero_point=points[()], scale=scales[()], axis=along)


def _blocks(x: Array, values: Array, axis: int, block_size: int) -> Array:
    """Scales or offsets with the rank of the weights; ``Unsupported`` where blocks do not fill the axis."""
    view = [1] * x.ndim
    if values.size == 1:
        return values.reshape(view)
    at = axis % x.ndim
    if not block_size:
        view[at] = values.size
        return values.reshape(view)
    if x.shape[at] % block_size:
        raise Unsupported(f"blocks of {block_size} in an axis of {x.shape[at]}: Core ML's blocks fill the axis")
    assert values.shape[at] == math.ceil(x.shape[at] / block_size)
    return values


def _real(x: Array, steps: Array, shift: Array | None, axis: int, block_size: int) -> Array:
    """The floats that integers stand for.  Source: ONNX operators, DequantizeLinear-21."""
    numbers, like = x.astype(np.float64), constant(x)
    if shift is not None:
        numbers = numbers - _spread(shift.astype(np.float64), like, axis, block_size)
    return np.asarray(numbers * _spread(steps.astype(np.float64), like, axis, block_size)).astype(steps.dtype)

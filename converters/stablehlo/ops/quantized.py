"""Quantization of floats to integers and back: ``QuantizeLinear`` and ``DequantizeLinear`` where they say the same.

StableHLO adds the zero point before it rounds to nearest even, ONNX after; an exact tie with an odd zero
point may therefore come out one integer apart.  Types that those two operators do not take are spelled out.
Source: StableHLO specification, ``uniform_quantize``; ONNX operators, QuantizeLinear-13, DequantizeLinear-13.
"""

from __future__ import annotations

from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.ops.convert import converted
from convertkit.converters.stablehlo.quantization import Quantization, quantization_of
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tape import Attribute
from convertkit.converters.stablehlo.tensor import F32, I8, I32, I64, Tensor

quantized = Handlers()


@quantized.translates
def uniform_dequantize(b: Builder, op: hlo.UniformDequantizeOp, x: Tensor) -> Tensor:
    kind = quantization_of(op.operand.type)
    assert kind is not None, "the operator takes quantized tensors only"
    return _expressed(b, x, kind)


@quantized.translates
def uniform_quantize(b: Builder, op: hlo.UniformQuantizeOp, x: Tensor) -> Tensor:
    """The operand is float, or quantized otherwise."""
    before, after = (quantization_of(each.type) for each in (op.operand, op.result))
    assert after is not None, "the operator gives quantized tensors only"
    return _stored(b, x if before is None else _expressed(b, x, before), after)


def _expressed(b: Builder, x: Tensor, kind: Quantization) -> Tensor:
    if kind.storage == I8 or (kind.storage == I32 and not any(kind.zero_points)):
        return _dequantized(b, x, kind)
    wide = I64 if kind.storage == I32 else I32  # so that no difference wraps
    centred = b.sub(b.cast(x, wide), kind.along(kind.zero_points, x.rank, wide))
    return b.mul(b.cast(centred, F32), kind.along(kind.scales, x.rank, F32))


def _dequantized(b: Builder, x: Tensor, kind: Quantization) -> Tensor:
    """As small as broadcasting allows: a bias that the module spreads over an image stays a vector."""
    if x.scalar is not None:
        x = b.full(x)  # a constant of equal integers is a weight as any other
    missing = x.rank - len(x.core_shape)
    axis = None if kind.axis is None else kind.axis - missing
    if axis is not None and (axis < 0 or x.core_shape[axis] != x.shape[axis + missing]):
        x, missing, axis = b.full(x), 0, kind.axis
    core = Tensor(x.core, x.core_shape, x.core_shape, x.dtype)
    result = b.op("DequantizeLinear", [core, *_parameters(kind)], x.core_shape, F32, _axis(axis))
    return Tensor(result.core, x.core_shape, x.shape, F32, x.extent)


def _stored(b: Builder, x: Tensor, kind: Quantization) -> Tensor:
    if kind.storage == I8:
        inside = _inside(b, x, kind) if kind.is_narrow else x
        return b.op("QuantizeLinear", [inside, *_parameters(kind)], x.shape, I8, _axis(kind.axis))
    scaled = b.div(x, kind.along(kind.scales, x.rank, F32))
    shifted = b.add(scaled, kind.along(kind.zero_points, x.rank, F32)) if any(kind.zero_points) else scaled
    if kind.is_narrow:
        shifted = b.minimum(b.maximum(shifted, float(kind.low)), float(kind.high))
    return converted(b, b.elementwise("Round", shifted), kind.storage)


def _inside(b: Builder, x: Tensor, kind: Quantization) -> Tensor:
    """Clipped to what the type expresses; a bound divided by the scale rounds to its integer again."""
    ends = (
        [(end - zero) * scale for scale, zero in zip(kind.scales, kind.zero_points, strict=True)]
        for end in (kind.low, kind.high)
    )
    low, high = (kind.along(end, x.rank, F32) for end in ends)
    return b.minimum(b.maximum(x, low), high)


def _parameters(kind: Quantization) -> tuple[Tensor, Tensor]:
    rank = 0 if kind.axis is None else 1
    flat = Quantization(kind.storage, kind.low, kind.high, kind.scales, kind.zero_points, None if rank == 0 else 0)
    return flat.along(kind.scales, rank, F32), flat.along(kind.zero_points, rank, kind.storage)


def _axis(axis: int | None) -> dict[str, Attribute]:
    return {} if axis is None else {"axis": axis}

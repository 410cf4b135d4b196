"""Integers that stand for reals: quantize, dequantize, and weights that are widened when the model is loaded.

Source: coremltools, mil/ops/defs, quantization_ops.py, constexpr_ops.py and compression.py.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

integers = Table()


def _along(value: Array, axis: Array | None, rank: int) -> Array:
    """A vector along ``axis``; a scalar as it is."""
    if value.ndim == 0 or axis is None:
        return value
    return value.reshape([-1 if at == int(axis) % rank else 1 for at in range(rank)])


@integers.computes("quantize")
def _quantize(
    *, input: Array, scale: Array, output_dtype: Array, zero_point: Array | None = None, axis: Array | None = None
) -> Array:
    kind = np.iinfo(str(output_dtype))
    steps = np.rint(input / _along(scale, axis, input.ndim))
    if zero_point is not None:
        steps = steps + _along(zero_point, axis, input.ndim).astype(np.float32)
    return np.clip(steps, kind.min, kind.max).astype(kind.dtype)


@integers.computes("dequantize")
def _dequantize(*, input: Array, scale: Array, zero_point: Array | None = None, axis: Array | None = None) -> Array:
    steps = input.astype(np.float32)
    if zero_point is not None:
        steps = steps - _along(zero_point, axis, input.ndim).astype(np.float32)
    return steps * _along(scale, axis, input.ndim)


@integers.computes("constexpr_affine_dequantize")
def _affine(*, quantized_data: Array, scale: Array, zero_point: Array, axis: Array) -> Array:
    return _dequantize(input=quantized_data, scale=scale, zero_point=zero_point, axis=axis)


@integers.computes("constexpr_blockwise_shift_scale")
def _blockwise(*, data: Array, scale: Array, offset: Array | None = None) -> Array:
    steps = data.astype(np.float32)
    if offset is not None:
        steps = steps - _repeated(offset, data.shape).astype(np.float32)
    return steps * _repeated(scale, data.shape)


def _repeated(value: Array, shape: tuple[int, ...]) -> Array:
    """One number for each block, as one for each element."""
    for axis, size in enumerate(shape):
        value = np.repeat(value, size // value.shape[axis], axis)
    return value


@integers.computes("constexpr_lut_to_dense")
def _table(*, indices: Array, lut: Array, shape: Array | None = None, vector_axis: Array | None = None) -> Array:
    """Of iOS 18 where there is no ``shape``: then one table for all, whose axes but the last two have one element."""
    if shape is None:
        assert vector_axis is None, "vectors in a table"
        assert lut.size == lut.shape[-2], "several tables"
        return lut.reshape(-1)[indices.astype(np.uint8)]
    sizes, bits = tuple(int(size) for size in shape), int(lut.size).bit_length() - 1
    count = int(np.prod(sizes))
    each = np.unpackbits(indices, bitorder="little")[: count * bits].reshape(count, bits)
    return np.asarray(lut[(each.astype(np.int64) << np.arange(bits)).sum(1)]).reshape(sizes)


@integers.computes("constexpr_cast")
def _constexpr_cast(*, source_val: Array, output_dtype: Array) -> Array:
    return source_val.astype(np.float32)

"""Quantize and Dequantize at the borders of integer parts (domain ``convertkit.tflite``).

The QDQ pass has turned ONNX's operators, whatever their version, into these, with the parameters
as annotations of the integer side.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor

quantize = Registry()

_TYPES: dict[str, DType] = {"int4": "int4", "int8": "int8", "uint8": "uint8", "int16": "int16"}


@quantize.lowers_custom("Quantize", domain=OWN)
def quantize_(b: Builder, x: Tensor, *, to: str) -> Tensor:
    """QUANTIZE, from float or from integers of another scale."""
    (params,) = b.results
    assert params is not None
    if to not in _TYPES:
        raise Unsupported(f"quantization to {to}: TFLite has int8, uint8, int16 and int4")
    if params.axis is not None:
        raise Unsupported("activations quantized along an axis: TFLite has one scale for an activation")
    if x.dtype == _TYPES[to] and x.quantization == params:
        return x
    return b.quantize(x, _TYPES[to], params)


@quantize.lowers_custom("Dequantize", domain=OWN)
def dequantize(b: Builder, x: Tensor) -> Tensor:
    """DEQUANTIZE; int32 has no kernel and takes CAST and MUL, wide constants with many scales are reals now."""
    assert x.quantization is not None
    if x.constant is not None and x.dtype in ("int16", "int32") and x.quantization.axis is not None:
        return b.constant(_reals(x.constant, x.quantization))
    if x.dtype not in ("int32", "int64", "uint16"):
        return b.dequantize(x)
    if len(x.quantization.scale) > 1 or x.quantization.zero_point != (0,):
        raise Unsupported(f"{x.dtype} with a zero point or one scale per channel")
    real = b.cast(x, "float32")
    return b.mul(real, b.scalar(x.quantization.scale[0], real))


def _reals(integers: Array, params: QuantParams) -> Array:
    """``(integers - zero_point) * scale`` with the parameters along their axis, as ONNX computes it."""
    view = tuple(-1 if place == params.axis else 1 for place in range(integers.ndim))
    points, scales = np.array(params.zero_point, np.int64), np.array(params.scale, np.float32)
    return ((integers - points.reshape(view)).astype(np.float32) * scales.reshape(view)).astype(np.float32)

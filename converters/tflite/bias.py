"""The bias of integer convolutions and fully connected layers."""

from __future__ import annotations

import numpy as np

from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.model import Quantization
from convertkit.errors import SourceError, Unsupported

_ROUNDING = 1e-5
"""Relative difference up to which a stored bias scale is the product of the scales, rounded."""


def bias_of(b: Builder, bias: Tensor | None, x: Tensor, w: Tensor) -> Tensor | None:
    """``bias`` as a real value.

    Integer kernels add it to the accumulator, whose scale is that of the input times that of the
    weights, whatever scale the file stores with it (``tensorflow/lite/kernels/kernel_util.cc``).
    """
    if bias is None or "float" in bias.dtype:
        return bias
    if x.quantization is None or w.quantization is None:
        raise SourceError(f"an {bias.dtype} bias for float inputs or weights")
    product = (x.quantization.scale * w.quantization.scale).astype(np.float32)
    stored = bias.quantization
    scale = product
    if stored is not None and stored.scale.size == product.size and np.allclose(stored.scale, product, _ROUNDING, 0):
        scale = stored.scale
    zero = np.zeros(scale.shape, np.int64)
    return b.dequantize(_as_int32(b, bias), Quantization(scale, zero, 0))


def _as_int32(b: Builder, bias: Tensor) -> Tensor:
    """The 64-bit biases of 16-bit models fit 32 bits, or are refused: ONNX dequantizes no wider ones."""
    if bias.dtype == "int32":
        return bias
    values = bias.known
    if np.abs(values).max(initial=0) > np.iinfo(np.int32).max:
        raise Unsupported("a 64-bit bias beyond 32 bits; ONNX cannot dequantize it")
    return b.constant(values.astype(np.int32))

"""Operators of our own domain that passes make from several of ONNX's."""

from __future__ import annotations

import numpy as np

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.builder.core import NONE
from convertkit.targets.tflite.passes.clamped_lines import factor_of, held
from convertkit.targets.tflite.passes.reciprocal_roots import is_reciprocal_root
from convertkit.targets.tflite.tensor import QuantParams, Tensor

fused = Registry()


@fused.lowers_custom("Gelu", domain=OWN)
def gelu(b: Builder, x: Tensor, *, approximate: str = "none") -> Tensor:
    return b.gelu(x, approximate=approximate == "tanh")


@fused.lowers_custom("BatchMatMul", domain=OWN)
def batch_matmul(b: Builder, x: Tensor, y: Tensor, *, adj_x: int, adj_y: int) -> Tensor:
    return b.batch_matmul(x, y, adj_x=bool(adj_x), adj_y=bool(adj_y))


@fused.lowers_custom("HardSigmoid", domain=OWN)
def hard_sigmoid(b: Builder, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Of integers: ``passes.clamped_lines`` tells how."""
    (wanted,) = b.results
    assert wanted is not None
    none = {"fused_activation_function": NONE}
    product = b.emit("MUL", (x, _number(b, alpha)), x.shape, x.dtype, none, held(wanted, beta))
    return b.add(product, _number(b, beta))


_STEPS = 64
"""Of a constant, a power of two: scales are then divided without a rounding."""


def _number(b: Builder, number: float) -> Tensor:
    """A constant that is not 0, as an integer."""
    return b.constant(np.array(np.sign(number) * _STEPS, np.int8), QuantParams.per_tensor(abs(number) / _STEPS, 0))


@fused.lowers_custom("Table", domain=OWN)
def table(b: Builder, x: Tensor, results: Tensor) -> Tensor:
    """``results[x + 128]``: CAST to int32, ADD and GATHER, which the kernels for microcontrollers have, too.

    One MUL where the results are those of a product with a constant: a division, integers of another scale.
    RSQRT where they are its.
    """
    (params,) = b.results
    assert params is not None
    assert results.constant is not None
    assert x.quantization is not None
    factor = factor_of(results.constant, x.quantization, params)
    if factor is not None:
        stored = b.constant(
            np.array(np.sign(factor) * _STEPS, np.int8), QuantParams.per_tensor(abs(factor) / _STEPS, 0)
        )
        return b.emit("MUL", (x, stored), x.shape, x.dtype, {"fused_activation_function": NONE}, params)
    if is_reciprocal_root(results.constant, x.quantization, params):
        return b.emit("RSQRT", (x,), x.shape, x.dtype, {}, params)
    places = b.add(b.cast(x, "int32"), b.constant(np.array(128, np.int32)))
    return b.gather(b.constant(results.constant, params), places, 0)

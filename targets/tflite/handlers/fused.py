"""Operators of our own domain that passes make from several of ONNX's."""

from __future__ import annotations

import numpy as np

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.annotations import OWN
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import Tensor

fused = Registry()


@fused.lowers_custom("Gelu", domain=OWN)
def gelu(b: Builder, x: Tensor, *, approximate: str = "none") -> Tensor:
    return b.gelu(x, approximate=approximate == "tanh")


@fused.lowers_custom("BatchMatMul", domain=OWN)
def batch_matmul(b: Builder, x: Tensor, y: Tensor, *, adj_x: int, adj_y: int) -> Tensor:
    return b.batch_matmul(x, y, adj_x=bool(adj_x), adj_y=bool(adj_y))


@fused.lowers_custom("Table", domain=OWN)
def table(b: Builder, x: Tensor, results: Tensor) -> Tensor:
    """``results[x + 128]``: CAST to int32, ADD and GATHER, which the kernels for microcontrollers have, too."""
    (params,) = b.results
    assert params is not None
    assert results.constant is not None
    places = b.add(b.cast(x, "int32"), b.constant(np.array(128, np.int32)))
    return b.gather(b.constant(results.constant, params), places, 0)

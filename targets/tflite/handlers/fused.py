"""Operators of our own domain that passes make from several of ONNX's."""

from __future__ import annotations

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

"""Weights that Ampere's sparse kernels take: of each four input channels side by side, at most two are not zero."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array

KEPT, OF = 2, 4


def sparse_weights(model: ir.Model) -> tuple[str, ...]:
    """Names of the 2:4 weights of convolutions and products, float or behind DequantizeLinear, in the graph's order."""
    found = dict.fromkeys(name for node in model.graph.all_nodes() if (name := _sparse(node)))
    return tuple(found)


def _sparse(node: ir.Node) -> str:
    """The name of the node's 2:4 weight, empty where it has none."""
    weight = node.inputs[1] if node.op_type in ("Conv", "Gemm", "MatMul") and len(node.inputs) > 1 else None
    if weight is not None and (pair := weight.producer()) is not None and pair.op_type == "DequantizeLinear":
        weight = pair.inputs[0]
    if weight is None or weight.const_value is None or weight.const_value.size == 0:
        return ""
    values = weight.const_value.numpy()
    return str(weight.name) if is_sparse(values, _channels(node, values.ndim)) else ""


def _channels(node: ir.Node, rank: int) -> int:
    """The axis of a weight that is summed over.  Source: ONNX operators, Conv-22, Gemm-13, MatMul-13."""
    if node.op_type == "Conv":
        return 1
    transposed = node.op_type == "Gemm" and bool(node.attributes.get_int("transB", 0))
    return rank - 1 if transposed else max(rank - 2, 0)


def is_sparse(values: Array, axis: int) -> bool:
    """Whether every four neighbours along ``axis`` hold two zeros; False where they do not come in fours."""
    if values.ndim < 2 or values.shape[axis] % OF:
        return False
    groups = np.moveaxis(values != 0, axis, -1).reshape(-1, OF)
    return bool((groups.sum(axis=1) <= KEPT).all())

"""Gemm in forms that have integer kernels: ``x @ W.T + b`` of a stored weight and a row of biases, else a MatMul.

before:  y = alpha * op(a) @ op(b) + beta * c
after:   y = Gemm (Transpose (a), W, row), transB = 1, with ``alpha`` and ``beta`` in W and row, where b is stored
         y = Mul (MatMul (op(a), op(b)), alpha) where b is computed
         then an Add of ``beta * c`` where c is computed, or another number in each row
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted, is_float32, replaced
from convertkit.quantization.graph.units import constant, is_constant

_NONE: Mapping[str, int] = {}
_TRANSPOSED: Mapping[str, int] = {"transB": 1}


def plain_gemm(graph: ir.Graph, node: ir.Node) -> None:
    """Rewrite a Gemm of float32 in place; source: ONNX operators, Gemm-13."""
    a, b = node.inputs[:2]
    if a is None or b is None or not is_float32(node.outputs[0]):
        return
    if node.attributes.get_int("transA", 0):
        a = _transposed(node, a)
    bias, beta = _bias(node)
    operator, operands, attributes = "Gemm", [a], _TRANSPOSED
    if is_constant(b):
        operands.append(_weight(graph, node, b))
        if bias is not None and is_constant(bias) and _is_row(bias):
            operands.append(_row(graph, bias, beta, operands[1]))
            bias = None
    else:
        operator, operands, attributes = _computed(graph, node, a, b)
    if bias is not None:
        product = inserted(node, operator, operands, node.outputs[0], attributes).outputs[0]
        operator, operands, attributes = "Add", [product, _times(graph, node, bias, beta)], _NONE
    replaced(node, operator, operands, attributes)


def _bias(node: ir.Node) -> tuple[ir.Value | None, float]:
    """The bias, None where there is none, and its factor."""
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    beta = node.attributes.get_float("beta", 1.0)
    return (None if beta == 0.0 else bias), beta


def _transposed(node: ir.Node, matrix: ir.Value) -> ir.Value:
    shape = None if matrix.shape is None else ir.Shape(list(matrix.shape)[::-1])
    return inserted(node, "Transpose", [matrix], matrix, {"perm": [1, 0]}, shape).outputs[0]


def _weight(graph: ir.Graph, node: ir.Node, weight: ir.Value) -> ir.Value:
    """``alpha * weight`` as ``(out, in)``."""
    alpha, transposed = node.attributes.get_float("alpha", 1.0), node.attributes.get_int("transB", 0)
    if alpha == 1.0 and transposed:
        return weight
    array = constant(weight) if transposed else constant(weight).T
    return add_constant(graph, f"{weight.name}_plain", np.ascontiguousarray(array) * np.float32(alpha))


def _is_row(bias: ir.Value) -> bool:
    """Whether it is the same in each row of the product."""
    return all(size == 1 for size in constant(bias).shape[:-1])


def _row(graph: ir.Graph, bias: ir.Value, beta: float, weight: ir.Value) -> ir.Value:
    rows = constant(weight).shape[0]
    if beta == 1.0 and constant(bias).shape == (rows,):
        return bias
    flat = np.broadcast_to(constant(bias).ravel(), rows) * np.float32(beta)
    return add_constant(graph, f"{bias.name}_plain", np.ascontiguousarray(flat))


def _computed(
    graph: ir.Graph, node: ir.Node, a: ir.Value, b: ir.Value
) -> tuple[str, list[ir.Value], Mapping[str, int]]:
    """The last operator of ``alpha * a @ op(b)``."""
    alpha = node.attributes.get_float("alpha", 1.0)
    operands = [a, _transposed(node, b) if node.attributes.get_int("transB", 0) else b]
    if alpha == 1.0:
        return "MatMul", operands, _NONE
    product = inserted(node, "MatMul", operands, node.outputs[0]).outputs[0]
    return "Mul", [product, add_constant(graph, f"{node.outputs[0].name}_alpha", np.array(alpha, np.float32))], _NONE


def _times(graph: ir.Graph, node: ir.Node, bias: ir.Value, beta: float) -> ir.Value:
    if beta == 1.0:
        return bias
    if is_constant(bias):
        return add_constant(graph, f"{bias.name}_plain", constant(bias) * np.float32(beta))
    factor = add_constant(graph, f"{node.outputs[0].name}_beta", np.array(beta, np.float32))
    return inserted(node, "Mul", [bias, factor], bias).outputs[0]

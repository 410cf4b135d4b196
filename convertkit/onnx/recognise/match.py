"""Matching a graph against a written-out expression."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

Term = str | float | tuple["Term", ...]
"""A variable by name, a float32 constant, or an operator with its operands' terms."""

_COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min"})


def match(
    term: Term, value: ir.Value | None, bound: Mapping[str, ir.Value], shape: ir.Shape | None = None
) -> dict[str, ir.Value] | None:
    """What the variables of ``term`` stand for where ``value`` computes it, None where it does not.

    A variable that occurs twice must be the same value.  Constants must be the same float32; they are
    scalars, or as large as the result (``shape``), which the caller compares with its variables'.
    """
    if value is None:
        return None
    if isinstance(term, str):
        if bound.get(term, value) is not value:
            return None
        return {**bound, term: value}
    if isinstance(term, float):
        return dict(bound) if is_number(value, term, shape) else None
    node = value.producer()
    operator, *operands = term
    if node is None or node.domain != "" or node.op_type != operator or len(node.inputs) != len(operands):
        return None
    orders = [tuple(node.inputs)]
    if operator in _COMMUTATIVE:
        orders.append(orders[0][::-1])
    for order in orders:
        found: dict[str, ir.Value] | None = dict(bound)
        for operand, inner in zip(operands, order, strict=True):
            found = None if found is None else match(operand, inner, found, node.outputs[0].shape)
        if found is not None:
            return found
    return None


def polynomial(coefficients: tuple[float, ...], x: Term) -> Term:
    """Horner's scheme, highest power first."""
    total: Term = coefficients[0]
    for coefficient in coefficients[1:]:
        total = ("Add", ("Mul", total, x), coefficient)
    return total


def is_number(value: ir.Value | None, number: float, shape: ir.Shape | None = None) -> bool:
    """Whether ``value`` is this float32 constant: a scalar, or everywhere in a tensor of ``shape``."""
    if value is None or value.const_value is None:
        return False
    array = value.const_value.numpy()
    if array.dtype != np.float32 or (array.ndim and (shape is None or list(shape) != list(array.shape))):
        return False
    wanted = np.float32(number)
    return array.size > 0 and bool(array.flat[0] == wanted) and bool((array == wanted).all())


def added(before: ir.Node, operator: str, inputs: list[ir.Value], like: ir.Value, name: str) -> ir.Value:
    """The result of a new node in front of ``before``, of the shape and type of ``like``."""
    node = ir.node(operator, inputs, name=name)
    result = node.outputs[0]
    result.name, result.shape = name, like.shape
    if like.dtype is not None:
        result.type = ir.TensorType(like.dtype)
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return result


def scalar(before: ir.Node, number: float, name: str) -> ir.Value:
    """A new float32 constant of rank 0 in front of ``before``."""
    node = ir.node("Constant", [], {"value": ir.tensor(np.float32(number), name=name)}, name=name)
    result = node.outputs[0]
    result.name, result.shape, result.type = name, ir.Shape([]), ir.TensorType(ir.DataType.FLOAT)
    result.const_value = ir.tensor(np.float32(number), name=name)
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return result

"""Sigmoids whose small values count, written out: a logarithm or a quotient behind them asks for all their digits.

ONNX Runtime's Sigmoid is right to about 1e-8, of 1, so that the logarithm of what it gives for -13 is off by 7e-3.

before:  x → Sigmoid → Add(1e-7) → Log
after:   e = Exp(Neg(Abs(x)));  Where(x < 0, e, 1) / (e + 1) → Add(1e-7) → Log
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from convertkit.onnx.edit import array_of

_ASKS = frozenset({"Log", "Reciprocal", "Sqrt", "Pow"})
_KEEPS = frozenset({"Mul", "Where", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather"})
_SHIFTS = frozenset({"Add", "Clip", "Max", "Min"})
_LITTLE = 1e-2
"""What is added to a value, or the least that it is limited to, leaves its small values small up to this."""
_DEEPEST = 6


def write_out_sigmoids(model: ir.Model) -> None:
    """Rewrite every such Sigmoid of float32, in place."""
    found = [node for node in model.graph.all_nodes() if node.op_type == "Sigmoid" and not node.domain]
    asked = [node for node in found if node.outputs[0].dtype == ir.DataType.FLOAT and _asked(node.outputs[0], _DEEPEST)]
    for node in asked:
        _write_out(node)
    if asked:
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)


def _asked(value: ir.Value, depth: int) -> bool:
    """Whether the digits of small values of ``value`` reach a logarithm, a root or a divisor."""
    return any(_asks(use.node, use.idx, depth) for use in value.uses())


def _asks(node: ir.Node, place: int, depth: int) -> bool:
    if node.domain:
        return False
    multiplies = node.op_type == "Pow" and place == 0 and _multiplies(node)
    if (node.op_type in _ASKS and place == 0 and not multiplies) or (node.op_type == "Div" and place == 1):
        return True
    follows = (
        multiplies
        or node.op_type in _KEEPS
        or node.op_type == "Div"
        or (node.op_type in _SHIFTS and _is_near(node, place))
    )
    return follows and depth > 0 and any(_asked(value, depth - 1) for value in node.outputs)


def _multiplies(power: ir.Node) -> bool:
    """Whether the exponent is 1 or more, as a square's: what small values are off by becomes less."""
    exponent = array_of(power.inputs[1])
    return exponent is not None and bool((exponent >= 1).all())


def _is_near(node: ir.Node, place: int) -> bool:
    others = [value for index, value in enumerate(node.inputs) if index != place and value is not None]
    known = [value.const_value for value in (others[:1] if node.op_type == "Clip" else others)]
    return all(each is not None and np.abs(each.numpy()).max(initial=0) <= _LITTLE for each in known)


def _write_out(node: ir.Node) -> None:
    graph, x, old = node.graph, node.inputs[0], node.outputs[0]
    assert graph is not None
    assert x is not None
    made: list[ir.Node] = []

    def add(op: str, *inputs: ir.Value, dtype: ir.DataType = ir.DataType.FLOAT) -> ir.Value:
        each = ir.node(op, list(inputs), name=f"{node.name}/{op}")
        each.metadata_props.update(node.metadata_props)
        result = each.outputs[0]
        result.name, result.type, result.shape = f"{old.name}/{op}", ir.TensorType(dtype), old.shape
        made.append(each)
        return result

    zero, one = (_number(made, node, value) for value in (0.0, 1.0))
    power = add("Exp", add("Neg", add("Abs", x)))
    above = add("Where", add("Less", x, zero, dtype=ir.DataType.BOOL), power, one)
    result = add("Div", above, add("Add", power, one))
    graph.insert_before(node, made)
    name, is_output = old.name, old.is_graph_output()
    ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    if is_output:
        result.name = name


def _number(made: list[ir.Node], node: ir.Node, value: float) -> ir.Value:
    each = ir.node("Constant", [], {"value": ir.tensor(np.float32(value))}, name=f"{node.name}/{value:g}")
    result = each.outputs[0]
    result.name, result.type, result.shape = (
        f"{node.outputs[0].name}/{value:g}",
        ir.TensorType(ir.DataType.FLOAT),
        ir.Shape([]),
    )
    result.const_value = ir.tensor(np.float32(value))
    made.append(each)
    return result

"""Transposes moved towards the outputs, where they meet their inverses.

JAX keeps channels last, ONNX's convolutions want them first: every one of them is born between two
transposes, with elementwise operators, which do not care, in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import (
    array_of,
    axes_of,
    dropped,
    initializer,
    inserted,
    producer,
    replaced,
    sizes,
)

_ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Mod", "Where", "Equal", "Less", "Greater", "And", "Or", "Not"}
    | {"LessOrEqual", "GreaterOrEqual", "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Neg", "Abs", "Sqrt", "Reciprocal"}
    | {"Erf", "Gelu", "Clip", "Cast", "Identity", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Softplus"}
)
_REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"})


def sink_transposes(graph: ir.Graph) -> None:
    """Move every transpose of the graph past what does not care, as long as something does; in place."""
    waiting = [node for node in graph if node.op_type == "Transpose" and node.domain == ""]
    while waiting:
        node = waiting.pop()
        if node.graph is not None:
            waiting += _moved(node)


def _moved(node: ir.Node) -> list[ir.Node]:
    """One transpose moved past its users; returns the transposes that this made."""
    result, source = node.outputs[0], node.inputs[0]
    rank = len(sizes(result) or ())
    users = [use.node for use in result.uses()]
    if source is None or not rank or result.is_graph_output() or any(user.graph is not node.graph for user in users):
        return []
    perm = list(node.attributes.get_ints("perm", tuple(range(rank))[::-1]))
    made = [_merged(user, source, perm) for user in users if user.op_type == "Transpose" and user.domain == ""]
    rest = [use.node for use in result.uses()]
    done = [each for each in made if each is not None]
    plans = [_plan(user, perm) for user in dict.fromkeys(rest)]
    # With several users the transpose multiplies; it has to be met by others for that.
    alone = len(plans) == 1
    if any(plan is None or not (alone or plan.joins or made) for plan in plans):
        return done
    done += [new for plan in plans if plan is not None for new in plan.carried_out(perm)]
    _removed(node)
    return done


def _removed(node: ir.Node) -> None:
    """Take out a transpose that nothing uses any more, and those of the other operands: they would count as users."""
    if node.graph is not None and not node.outputs[0].uses():
        node.graph.remove(node, safe=True)


def _merged(user: ir.Node, source: ir.Value, perm: Sequence[int]) -> ir.Node | None:
    """A transpose of a transpose as one, or none."""
    inner = list(user.attributes.get_ints("perm", tuple(range(len(perm)))[::-1]))
    both = [perm[axis] for axis in inner]
    if both == list(range(len(perm))):
        dropped(user, source)
        return None
    return replaced(user, "Transpose", [source], {"perm": both})


class _Plan:
    """How a user works on what has not been transposed."""

    def __init__(self, node: ir.Node, joins: bool) -> None:
        self.node = node
        self.joins = joins

    def carried_out(self, perm: Sequence[int]) -> list[ir.Node]:
        """Replace the user; returns the transpose behind it, if it needs one."""
        if self.node.op_type in _REDUCTIONS:
            return _reduced(self.node, perm)
        inputs = [None if each is None else _untransposed(self.node, each, perm) for each in self.node.inputs]
        shape = _inverse_shape(self.node.outputs[0], perm)
        assert all(each is not None for each in inputs) or self.node.op_type == "Clip"
        made = ir.node(self.node.op_type, inputs, name=f"{self.node.name}/moved")
        made.attributes.update(self.node.attributes)
        made.metadata_props.update(self.node.metadata_props)
        result, old = made.outputs[0], self.node.outputs[0]
        result.name, result.shape, result.type = f"{old.name}/moved", shape, old.type
        assert self.node.graph is not None
        self.node.graph.insert_before(self.node, made)
        others = [producer(each, "Transpose") for each in self.node.inputs]
        moved = replaced(self.node, "Transpose", [result], {"perm": list(perm)})
        for other in dict.fromkeys(others):
            if other is not None:
                _removed(other)
        return [moved]


def _plan(user: ir.Node, perm: Sequence[int]) -> _Plan | None:
    if user.domain != "" or len(user.outputs) != 1:
        return None
    rank = len(perm)
    if user.op_type in _REDUCTIONS:
        return _Plan(user, False) if axes_of(user, rank) is not None else None
    if user.op_type not in _ELEMENTWISE or len(sizes(user.outputs[0]) or ()) != rank:
        return None
    others = [each for each in user.inputs if each is not None]
    if not all(_is_movable(each, perm) for each in others):
        return None
    return _Plan(user, sum(producer(each, "Transpose") is not None for each in others) > 1)


def _is_movable(value: ir.Value, perm: Sequence[int]) -> bool:
    """Whether a value is transposed alike, a constant, or the same along all axes."""
    node = producer(value, "Transpose")
    if node is not None and list(node.attributes.get_ints("perm", ())) == list(perm):
        return True
    return array_of(value) is not None or sizes(value) == ()


def _untransposed(before: ir.Node, value: ir.Value, perm: Sequence[int]) -> ir.Value:
    node = producer(value, "Transpose")
    if node is not None:
        assert node.inputs[0] is not None
        return node.inputs[0]
    array = array_of(value)
    if array is None or array.size == 1:
        return value
    whole = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
    return initializer(before, whole.transpose(np.argsort(perm)), f"{before.outputs[0].name}/{value.name}")


def _inverse_shape(value: ir.Value, perm: Sequence[int]) -> ir.Shape:
    assert value.shape is not None
    return ir.Shape([value.shape[int(axis)] for axis in np.argsort(perm)])


def _reduced(node: ir.Node, perm: Sequence[int]) -> list[ir.Node]:
    axes = axes_of(node, len(perm))
    source = node.inputs[0]
    before = None if source is None else producer(source, "Transpose")
    assert axes is not None
    assert before is not None
    assert before.inputs[0] is not None
    keepdims = node.attributes.get_int("keepdims", 1)
    places = sorted(perm[axis] for axis in axes)
    over = initializer(node, np.array(places, np.int64), f"{node.outputs[0].name}/axes")
    inputs = [before.inputs[0], over]
    left = list(perm) if keepdims else [axis for axis in perm if axis not in places]
    order = [sorted(left).index(axis) for axis in left]
    if order == sorted(order):
        replaced(node, node.op_type, inputs, {"keepdims": keepdims})
        return []
    shape = _inverse_shape(node.outputs[0], order)
    made = inserted(node, node.op_type, inputs, node.outputs[0], {"keepdims": keepdims}, shape)
    return [replaced(node, "Transpose", [made.outputs[0]], {"perm": order})]

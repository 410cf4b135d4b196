"""Masks that attention adds to its scores, taken apart: flags of the scores that count, and what is added to those.

A mask is 0 where a score counts and far below all scores elsewhere.  Models compute it from flags or whole numbers:
``Where (keep, 0, -inf)``, ``(1 - mask) * -10000``, sums of such terms, and whatever moves their elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, array_of, inserted, is_same_shape

MARK: Final = -50.0
"""What is added to a score that does not count is at most this: exp(-50) is nothing beside any other weight."""
FAR: Final = -(2.0**20)
"""A score that this is added to leaves no trace: beyond it a number stands for infinity."""
_MOVES: Final = frozenset(
    {"Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)


@dataclass(frozen=True, slots=True)
class Masked:
    """A sum that is ``rest`` (None for 0) where ``flags``, bools, are true; ``mark`` or less is added elsewhere."""

    flags: ir.Value
    rest: ir.Value | None
    mark: float


@dataclass(frozen=True, slots=True)
class Masks:
    """The masks of one graph, each taken apart once; the nodes that compute flags are put in on the way."""

    graph: ir.Graph
    _known: dict[ir.Value, Masked | None] = field(default_factory=dict)

    def apart(self, value: ir.Value | None) -> Masked | None:
        """What ``value`` is apart from its masks; None where it has none."""
        if value is None or value.dtype != ir.DataType.FLOAT:
            return None
        if value not in self._known:
            self._known[value] = self._stored(value) or self._computed(value)
        return self._known[value]

    def _stored(self, value: ir.Value) -> Masked | None:
        array = array_of(value)
        if array is None or array.ndim == 0:
            return None
        kept = array == 0
        if kept.all() or not (array[~kept] <= MARK).all():
            return None
        return Masked(add_constant(self.graph, f"{value.name}_keep", kept), None, float(array[~kept].max()))

    def _computed(self, value: ir.Value) -> Masked | None:
        node = value.producer()
        if node is None or node.domain or node.graph is not self.graph:
            return None
        if node.op_type in _MOVES:
            return self._moved(node)
        parts = {"Where": self._chosen, "Mul": _multiplied, "Add": self._added}.get(node.op_type)
        return None if parts is None else parts(node)

    def _moved(self, node: ir.Node) -> Masked | None:
        value = node.inputs[0]
        inner = self.apart(value)
        flags = None if inner is None or value is None else _of_shape(node, inner, value)
        if inner is None or flags is None:
            return None
        rest = None if inner.rest is None else _again(node, inner.rest)
        return Masked(_again(node, flags), rest, inner.mark)

    def _chosen(self, node: ir.Node) -> Masked | None:
        """``Where (keep, rest, mark)`` and ``Where (masked, mark, rest)``."""
        flags, yes, no = node.inputs
        for kept, far in ((yes, no), (no, yes)):
            mark = _scalar(far)
            if flags is None or kept is None or mark is None or mark > MARK:
                continue
            if kept is no and _is_what_flags_say(flags, kept):
                return Masked(_bools(node, "Not", flags), None, mark)
            keep = flags if kept is yes else _bools(node, "Not", flags)
            if _is_zeros(kept):
                return Masked(keep, None, mark)
            if mark > FAR:  # in place of the rest, and not beside it
                continue
            inner = self.apart(kept)
            return Masked(keep, kept, mark) if inner is None else _both(node, Masked(keep, inner.rest, mark), inner)
        return None

    def _added(self, node: ir.Node) -> Masked | None:
        first, second = node.inputs
        one, other = self.apart(first), self.apart(second)
        if one is None and other is None:
            return None
        if one is None or other is None:
            found, plain = (one, second) if one is not None else (other, first)
            assert found is not None
            return Masked(found.flags, _sum(node, found.rest, plain), found.mark)
        found = _both(node, one, other)
        return None if found is None else replace(found, rest=_sum(node, one.rest, other.rest))


def _both(node: ir.Node, one: Masked, other: Masked) -> Masked | None:
    """The rest of ``one`` where both count; None where one stands for infinity and the other does not."""
    if (one.mark > FAR) != (other.mark > FAR):
        return None
    return Masked(_bools(node, "And", one.flags, other.flags), one.rest, max(one.mark, other.mark))


def flags_equal(value: ir.Value, number: float) -> ir.Value | None:
    """Flags of where ``value``, which is computed from whole numbers or flags, is ``number``; None if it is not."""
    node = value.producer()
    source = None if node is None else node.inputs[0]
    if node is None or node.domain or source is None:
        return None
    if node.op_type == "Cast":
        return _cast_equals(node, source, number)
    if node.op_type == "Neg":
        return flags_equal(source, -number)
    if node.op_type in _MOVES:
        flags = flags_equal(source, number)
        return None if flags is None or not is_same_shape(flags.shape, source.shape) else _again(node, flags)
    return _sum_equals(node, number) if node.op_type in ("Add", "Sub") else None


def _cast_equals(node: ir.Node, source: ir.Value, number: float) -> ir.Value | None:
    if source.dtype == ir.DataType.BOOL and number in (0, 1):
        return source if number == 1 else _bools(node, "Not", source)
    if source.dtype not in (ir.DataType.INT32, ir.DataType.INT64) or number != int(number):
        return None
    assert node.graph is not None
    assert isinstance(node.graph, ir.Graph)
    wanted = np.array(int(number), source.dtype.numpy())
    return _bools(node, "Equal", source, add_constant(node.graph, f"{source.name}_wanted", wanted))


def _sum_equals(node: ir.Node, number: float) -> ir.Value | None:
    """``x + c``, ``c + x``, ``x - c`` and ``c - x`` of a stored ``c``; of the shape of x, so that x may be moved."""
    first, second = node.inputs
    if first is None or second is None:
        return None
    subtracts = node.op_type == "Sub"
    left, right = _scalar(first), _scalar(second)
    if right is not None and is_same_shape(first.shape, node.outputs[0].shape):
        return flags_equal(first, number + right if subtracts else number - right)
    if left is not None and is_same_shape(second.shape, node.outputs[0].shape):
        return flags_equal(second, left - number if subtracts else number - left)
    return None


def _multiplied(node: ir.Node) -> Masked | None:
    """``x * factor`` where x is 0 of what counts, and the product far below 0 for the other one of 0 and 1."""
    first, second = node.inputs
    for number, factor in ((first, second), (second, first)):
        scale = _scalar(factor)
        if number is None or scale is None or not np.isfinite(scale):
            continue
        values = [_of_whole(number, whole) for whole in (0, 1)]
        others = [value for value in values if value != 0]
        if len(others) != 1 or others[0] is None or others[0] * scale > MARK:
            return None
        flags = flags_equal(number, 0)
        return None if flags is None else Masked(flags, None, others[0] * scale)
    return None


def _of_whole(value: ir.Value, whole: int) -> float | None:
    """What ``value`` is where the whole number or flag that it is computed from is ``whole``; None if it is not."""
    node = value.producer()
    source = None if node is None else node.inputs[0]
    if node is None or node.domain or source is None:
        return None
    if node.op_type == "Cast":
        return float(whole)
    if node.op_type in _MOVES or node.op_type == "Neg":
        inner = _of_whole(source, whole)
        return inner if inner is None or node.op_type != "Neg" else -inner
    if node.op_type not in ("Add", "Sub") or node.inputs[1] is None:
        return None
    sides = [
        _scalar(each) if array_of(each) is not None else _of_whole(each, whole) for each in (source, node.inputs[1])
    ]
    if sides[0] is None or sides[1] is None:
        return None
    return sides[0] - sides[1] if node.op_type == "Sub" else sides[0] + sides[1]


def _is_what_flags_say(flags: ir.Value, value: ir.Value) -> bool:
    """``Where (Cast (x), mark, x)``: where the flags are false, x is 0."""
    test = flags.producer()
    return test is not None and test.op_type == "Cast" and test.inputs[0] is value


def _is_zeros(value: ir.Value) -> bool:
    array, node = array_of(value), value.producer()
    if array is not None:
        return not array.any()
    if node is None or node.domain:
        return False
    if node.op_type == "ConstantOfShape":
        filling = node.attributes.get("value")
        return filling is None or not filling.as_tensor().numpy().any()
    return node.op_type == "Expand" and node.inputs[0] is not None and _is_zeros(node.inputs[0])


def _scalar(value: ir.Value | None) -> float | None:
    array = array_of(value)
    return None if array is None or array.size != 1 else float(array.reshape(-1)[0])


def _sum(node: ir.Node, one: ir.Value | None, other: ir.Value | None) -> ir.Value | None:
    if one is None or other is None:
        return other if one is None else one
    return inserted(node, "Add", [one, other], node.outputs[0]).outputs[0]


def _bools(node: ir.Node, operator: str, *operands: ir.Value) -> ir.Value:
    """Flags that an operator in front of ``node`` computes, one for each element of its operands together."""
    made = inserted(node, operator, operands, operands[0], shape=_joined(operands)).outputs[0]
    made.type = ir.TensorType(ir.DataType.BOOL)
    return made


def _joined(operands: tuple[ir.Value, ...]) -> ir.Shape | None:
    """The shape that operands broadcast to; None where it is not known."""
    shapes = [value.shape for value in operands]
    if any(shape is None for shape in shapes):
        return None
    rank = max(len(shape) for shape in shapes if shape is not None)
    ones: list[int | ir.SymbolicDim] = [1] * rank
    whole = [[*ones[len(shape) :], *shape] for shape in shapes if shape is not None]
    columns = [[size for size in sizes if size != 1] or [1] for sizes in zip(*whole, strict=True)]
    return ir.Shape([column[0] for column in columns])


def _of_shape(node: ir.Node, masked: Masked, value: ir.Value) -> ir.Value | None:
    """The flags for each element of ``value``, in front of ``node``, which moves it; None where that is not known."""
    if is_same_shape(masked.flags.shape, value.shape):
        return masked.flags
    if masked.rest is None or value.shape is None or not is_same_shape(masked.rest.shape, value.shape):
        return None
    size = inserted(node, "Shape", [masked.rest], value, shape=ir.Shape([len(value.shape)])).outputs[0]
    size.type = ir.TensorType(ir.DataType.INT64)
    made = inserted(node, "Expand", [masked.flags, size], value).outputs[0]
    made.type = masked.flags.type
    return made


def _again(node: ir.Node, value: ir.Value) -> ir.Value:
    """``value`` moved as ``node`` moves its first input."""
    assert node.graph is not None
    made = ir.node(node.op_type, [value, *node.inputs[1:]], dict(node.attributes), name=f"{node.name}/{value.name}")
    result = made.outputs[0]
    result.name, result.shape, result.type = f"{node.outputs[0].name}/{value.name}", node.outputs[0].shape, value.type
    made.metadata_props.update(node.metadata_props)
    node.graph.insert_before(node, made)
    return result

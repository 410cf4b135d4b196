"""Sequences whose contents are known without running the model, written as the tensors that they hold.

A script that appends to a list and concatenates it becomes SequenceConstruct, SequenceInsert and ConcatFromSequence;
no target but ONNX Runtime has sequences.  Semantics: ONNX operators SequenceAt-11, SequenceInsert-11, SequenceErase-11,
SplitToSequence-11 and ConcatFromSequence-11.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

_Held = dict[ir.Value, tuple[ir.Value, ...]]
"""The tensors in a sequence, in their order."""


def write_out_sequences(model: ir.Model) -> bool:
    """Replace what reads a known sequence by the tensors in it, in place; whether anything was."""
    held: _Held = {}
    changed = False
    for node in list(model.graph.all_nodes()):
        if node.domain or not node.inputs or node.inputs[0] is None:
            _remember(node, held)
            continue
        items = held.get(node.inputs[0])
        if node.op_type in _READS and items is not None:
            changed |= _READS[node.op_type](node, items)
        else:
            _remember(node, held)
    return changed


def _remember(node: ir.Node, held: _Held) -> None:
    """Note what the sequence that the node makes holds, where that is known."""
    items = None if node.domain else _made(node, held)
    if items is not None:
        held[node.outputs[0]] = items


def _made(node: ir.Node, held: _Held) -> tuple[ir.Value, ...] | None:
    given = [value for value in node.inputs if value is not None]
    if node.op_type == "SequenceEmpty":
        return ()
    if node.op_type == "SequenceConstruct":
        return tuple(given)
    before = held.get(given[0]) if given else None
    if before is None:
        return None
    if node.op_type == "Identity":
        return before
    if node.op_type == "SequenceInsert":
        place = len(before) if len(given) < 3 else _number(given[2], len(before))
        return None if place is None else (*before[:place], given[1], *before[place:])
    if node.op_type == "SequenceErase" and before:
        place = len(before) - 1 if len(given) < 2 else _number(given[1], len(before))
        return None if place is None else (*before[:place], *before[place + 1 :])
    return None


def _number(value: ir.Value | None, length: int) -> int | None:
    """A place in a sequence of ``length``, counted from its end where negative; None where it is not a constant."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    place = int(value.const_value.numpy().item())
    return place + length if place < 0 else place


def _at(node: ir.Node, items: tuple[ir.Value, ...]) -> bool:
    place = _number(node.inputs[1], len(items))
    if place is None or not 0 <= place < len(items):
        return False
    _replace(node, ir.node("Identity", [items[place]]))
    return True


def _length(node: ir.Node, items: tuple[ir.Value, ...]) -> bool:
    _replace(node, ir.node("Constant", [], {"value": ir.tensor(len(items))}))
    return True


def _joined(node: ir.Node, items: tuple[ir.Value, ...]) -> bool:
    axis = node.attributes.get_int("axis", 0)
    if not items:
        return False
    if not node.attributes.get_int("new_axis", 0):
        _replace(node, ir.node("Concat", items, {"axis": axis}))
        return True
    axes = ir.node("Constant", [], {"value": ir.tensor([axis])})
    grown = [ir.node("Unsqueeze", [item, axes.outputs[0]]) for item in items]
    _replace(node, axes, *grown, ir.node("Concat", [each.outputs[0] for each in grown], {"axis": axis}))
    return True


_READS: Mapping[str, Callable[[ir.Node, tuple[ir.Value, ...]], bool]] = {
    "SequenceAt": _at,
    "SequenceLength": _length,
    "ConcatFromSequence": _joined,
}


def _replace(node: ir.Node, *made: ir.Node) -> None:
    """Put nodes in the place of one, under its name and with its source line; the last gives its value."""
    assert node.graph is not None
    for each in made:
        each.metadata_props.update(node.metadata_props)
    made[-1].name = node.name
    ir.convenience.replace_nodes_and_values(node.graph, node, [node], made, node.outputs, made[-1].outputs)

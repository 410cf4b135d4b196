"""Lists that a loop appends to, as the rows that the loop gives.

A script that appends a result in each turn and stacks them behind the loop becomes SequenceEmpty, SequenceInsert in a
Loop and ConcatFromSequence; no target but ONNX Runtime has sequences, and a Loop collects rows by itself.

before:  ConcatFromSequence<new_axis=1, axis=a>(Loop(…, SequenceEmpty()) { …, SequenceInsert(list, item) })
after:   rows = Loop(…) { …, item },  Transpose (rows), the turns moved to ``a``

Without a new axis the turns and the items' own axis become one.  Semantics: ONNX operators Loop-11 (scan outputs) and
ConcatFromSequence-11.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import initializer

_FIRST_STATE = 2
"""Inputs of a Loop in front of its states: the number of turns and the condition."""


def write_out_grown_lists(model: ir.Model) -> bool:
    """Let loops give rows in the place of lists that grow by one in each turn, in place; whether any did."""
    loops = [node for node in model.graph.all_nodes() if node.op_type == "Loop" and not node.domain]
    return sum(_rewritten(loop) for loop in loops) > 0


def _rewritten(loop: ir.Node) -> bool:
    done = False
    for place in reversed(range(len(loop.inputs) - _FIRST_STATE)):
        item = _appended(loop, place)
        readers = None if item is None else _readers(loop.outputs[place], item)
        if item is None or readers is None:
            continue
        rows = _as_rows(loop, place, item)
        for reader in readers:
            _stack(reader, rows, item)
        assert loop.graph is not None
        loop.graph.remove(loop, safe=True)
        made = rows.producer()
        assert made is not None
        loop, done = made, True
    return done


def _appended(loop: ir.Node, place: int) -> ir.Value | None:
    """What every turn appends to the list in this state, which begins empty and which the turn reads for that alone."""
    start = loop.inputs[_FIRST_STATE + place]
    maker = None if start is None else start.producer()
    body = loop.attributes["body"].as_graph()
    given, result = body.inputs[_FIRST_STATE + place], body.outputs[1 + place]
    insert = result.producer()
    if maker is None or maker.op_type != "SequenceEmpty" or insert is None or insert.op_type != "SequenceInsert":
        return None
    at_end = len(insert.inputs) < 3 or insert.inputs[2] is None
    alone = [use.node for use in given.uses()] == [insert] and not result.uses() and insert.inputs[0] is given
    return insert.inputs[1] if at_end and alone and insert.graph is body else None


def _readers(grown: ir.Value, item: ir.Value) -> list[ir.Node] | None:
    """The nodes that join the list; None where something else reads it, or where joining needs sizes that vary."""
    nodes = [use.node for use in grown.uses()]
    joins = all(node.op_type == "ConcatFromSequence" and not node.domain for node in nodes)
    if grown.is_graph_output() or not nodes or not joins or item.shape is None:
        return None
    merged = [node for node in nodes if not node.attributes.get_int("new_axis", 0)]
    return nodes if all(_merged_shape(node, item.shape) is not None for node in merged) else None


def _merged_shape(join: ir.Node, shape: ir.Shape) -> list[int] | None:
    """The sizes, as Reshape has them, of turns and items in one axis; None where the file does not tell them."""
    axis = join.attributes.get_int("axis", 0) % len(shape)
    tail = list(shape)[axis:]
    if not all(isinstance(size, int) for size in tail):
        return None
    return [0] * axis + [-1] + [size for size in tail[1:] if isinstance(size, int)]


def _as_rows(loop: ir.Node, place: int, item: ir.Value) -> ir.Value:
    """The rows of a new loop in the place of ``loop``, which has them as its last output and the list no more."""
    body = loop.attributes["body"].as_graph()
    insert = body.outputs[1 + place].producer()
    assert insert is not None
    copied = ir.node("Identity", [item])
    copied.outputs[0].shape, copied.outputs[0].type = item.shape, item.type
    copied.outputs[0].name = f"{body.outputs[1 + place].name}/row"
    body.insert_before(insert, copied)
    del body.outputs[1 + place]
    body.outputs.append(copied.outputs[0])
    body.remove(insert, safe=True)
    del body.inputs[_FIRST_STATE + place]
    kept = [value for number, value in enumerate(loop.inputs) if number != _FIRST_STATE + place]
    left = [value for number, value in enumerate(loop.outputs) if number != place]
    made = ir.Node("", "Loop", kept, tuple(loop.attributes.values()), num_outputs=len(left) + 1, name=loop.name)
    made.metadata_props.update(loop.metadata_props)
    assert loop.graph is not None
    loop.graph.insert_before(loop, made)
    for old, new in zip(left, made.outputs, strict=False):
        new.shape, new.type, name = old.shape, old.type, old.name
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        old.name, new.name = f"{name}/before", name
    rows = made.outputs[-1]
    assert item.shape is not None
    rows.name, rows.type = f"{loop.outputs[place].name}/rows", item.type
    rows.shape = ir.Shape([None, *item.shape])
    return rows


def _stack(join: ir.Node, rows: ir.Value, item: ir.Value) -> None:
    """What joined the list, of the rows."""
    assert item.shape is not None
    is_new = join.attributes.get_int("new_axis", 0)
    axis = join.attributes.get_int("axis", 0) % (len(item.shape) + (1 if is_new else 0))
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(item.shape) + 1)]
    turned = ir.node("Transpose", [rows], {"perm": order}, name=f"{join.name}/turned")
    made = [turned]
    if not is_new:
        sizes = initializer(join, np.array(_merged_shape(join, item.shape), np.int64), f"{join.name}/sizes")
        made.append(ir.node("Reshape", [turned.outputs[0], sizes]))
    for each in made:
        each.metadata_props.update(join.metadata_props)
    made[-1].name = join.name
    assert join.graph is not None
    ir.convenience.replace_nodes_and_values(join.graph, join, [join], made, join.outputs, made[-1].outputs)

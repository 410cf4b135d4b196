"""LSTM, GRU and plain recurrent cells inside a loop over time, as ``lax.scan`` leaves them.

A cell reads one row of a sequence in each turn, and nothing in the loop reads its states before the turn.  Gates are
sums of products with constant weights, in any association, and may be cut from one wider product, also from one of
the whole sequence in front of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.converters.stablehlo.recognise.cells import Cell, cells
from convertkit.converters.stablehlo.recognise.gates import Linear
from convertkit.converters.stablehlo.recognise.turns import ROWS, Scan, plain, row_of, scan_of, take_out
from convertkit.onnx.edit import array_of, initializer, inserted, producer, sizes


def recognise_recurrent(node: ir.Node) -> None:
    """Cells of a loop, one after the other: what is stacked is one loop of several.

    before:  Loop(T, True, c, h, …){ x[t] → gates → c', h' → … }
    after:   Y = LSTM(x, W, R, B, h, c), GRU(x, W, R, B, h) or RNN(x, W, R, B, h);  Loop(T, True, …){ Y[t] → … }

    Turns that go from the sequence's end read it reversed.  A loop that is left with nothing to do goes.
    """
    while (scan := scan_of(node)) is not None and scan.before:
        if not any(_taken_out(scan, cell) for cell in cells(scan)):
            return


def _taken_out(scan: Scan, cell: Cell) -> bool:
    """Put a cell in front of its loop; whether it could be."""
    if not _apart(scan, cell):
        return False
    sequence = _sequence(scan, cell.gates)
    if sequence is None or not cell.is_precise():
        return False
    made = _operator(scan, cell, sequence)
    finals = {place: _squeezed(scan.node, made.outputs[1 + number], 0) for number, place in enumerate(cell.states)}
    rows = _squeezed(scan.node, made.outputs[0], 1)
    h = scan.after[cell.states[0]]
    whole = {len(scan.before) + place: rows for place, value in enumerate(scan.rows) if value is h}
    _emptied(scan, {**finals, **whole}, h, rows)
    return True


def _apart(scan: Scan, cell: Cell) -> bool:
    """Whether the rest of a turn needs no more of the cell than the state h behind it."""
    h, *others = (scan.after[place] for place in cell.states)
    hidden = {id(scan.before[place]) for place in cell.states} | {id(value) for value in others}
    rest = [value for place, value in enumerate(scan.after) if place not in cell.states]
    waiting: list[ir.Value | None] = [*rest, *scan.rows]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if value is None or value is h or id(value) in seen:
            continue
        if id(value) in hidden:
            return False
        seen.add(id(value))
        node = value.producer()
        waiting += [] if node is None else _read(node)
    return True


def _read(node: ir.Node) -> Iterator[ir.Value | None]:
    """What a node and its subgraphs read."""
    yield from node.inputs
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                yield from inner.inputs
            yield from attribute.as_graph().outputs


def _operator(scan: Scan, cell: Cell, sequence: ir.Value) -> ir.Node:
    node, stem = scan.node, f"{scan.node.outputs[cell.states[0]].name}"
    stacked = [np.concatenate([_part(gate, name) for gate in cell.gates])[None] for name in ("weights", "recurrent")]
    size = stacked[1].shape[-1]
    arrays = zip(("W", "R", "B"), (*stacked, cell.bias()), strict=True)
    constants = [initializer(node, array, f"{stem}/{name}") for name, array in arrays]
    starts = [_start(node, state, f"{stem}/start_{state}") for state in cell.states]
    inputs = [sequence, *constants, None, *starts]
    attributes = {"hidden_size": size, **cell.attributes}
    name = f"{stem}/{cell.operator}"
    made = ir.node(cell.operator, inputs, attributes, num_outputs=1 + len(starts), name=name)
    made.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    whole = sizes(sequence)
    assert whole is not None
    shapes = [[whole[0], 1, whole[1], size], *([1, whole[1], size] for _ in starts)]
    for number, (value, shape) in enumerate(zip(made.outputs, shapes, strict=True)):
        value.name, value.shape, value.type = f"{name}_{number}", ir.Shape(shape), ir.TensorType(ir.DataType.FLOAT)
    return made


def _part(gate: Linear, name: str) -> Array:
    """A gate's weights as ONNX has them, outputs first."""
    found: Array | None = getattr(gate, name)
    assert found is not None
    transposed: Array = found.T
    return transposed


def _emptied(scan: Scan, instead: dict[int, ir.Value], h: ir.Value, rows: ir.Value) -> None:
    """Take the outputs at these places out of a loop, for other values; a turn reads ``h`` from ``rows``."""
    node, body = scan.node, scan.node.attributes["body"].as_graph()
    for place, value in instead.items():
        _stands_for(node.outputs[place], value)
    if len(instead) == len(node.outputs):
        for inner in body.all_nodes():
            inner.resize_inputs(0)  # or it would count as a user of what stands outside
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        return
    row = _row(body, scan.turn, rows, h)
    for place, value in enumerate(body.outputs):
        if plain(value) is h:
            body.outputs[place] = _copied(body, row)
    h.replace_all_uses_with(row)
    take_out(node, instead)
    _pruned(body)


def _sequence(scan: Scan, gates: tuple[Linear, ...]) -> ir.Value | None:
    """The sequence that all gates read one row of, in full, where each gate has both products."""
    rows = {id(gate.x): gate.x for gate in gates}
    row = next(iter(rows.values()), None)
    complete = all(gate.weights is not None and gate.recurrent is not None for gate in gates)
    found = None if not complete or len(rows) != 1 or row is None else row_of(row, scan)
    if found is None:
        return None
    sequence, backward = found
    if all(gate.selects for gate in gates):
        sequence = _before_product(scan, sequence, gates)
    return _reversed(scan.node, sequence) if backward else sequence


def _before_product(scan: Scan, sequence: ir.Value, gates: tuple[Linear, ...]) -> ir.Value:
    """What a sequence of all gates' products was made of, its weights and bias moved into the gates; else itself.

    before:  X → MatMul(W) → Add(b) → Transpose → row of each turn → columns of each gate
    after:   X → Transpose → row of each turn → MatMul(columns of W) → Add(columns of b)
    """
    turned = producer(sequence, "Transpose")
    total = sequence if turned is None else turned.inputs[0]
    sum_ = producer(total, "Add")
    places = (0, 1) if sum_ is not None else ()
    biases = [(array_of(sum_.inputs[place]), sum_.inputs[1 - place]) for place in places if sum_ is not None]
    offset, product = next(((b, rest) for b, rest in biases if b is not None), (np.zeros(1, np.float32), total))
    node = producer(product, "MatMul")
    weights = None if node is None else array_of(node.inputs[1])
    x = None if node is None else node.inputs[0]
    if x is None or weights is None or weights.ndim != 2 or weights.dtype != np.float32 or len(sizes(x) or ()) != 3:
        return sequence
    if offset.size != (offset.shape or (1,))[-1] or offset.size not in (1, weights.shape[1]):
        return sequence
    row = np.broadcast_to(offset.reshape(-1), weights.shape[1])
    for gate in gates:
        assert gate.weights is not None
        chosen = gate.weights.argmax(0)
        gate.weights, gate.bias = weights[:, chosen], gate.bias + row[chosen]
    if turned is None:
        return x
    perm = turned.attributes.get_ints("perm", (2, 1, 0))
    shape = ir.Shape([(x.shape or ())[axis] for axis in perm])
    return inserted(scan.node, "Transpose", [x], x, {"perm": list(perm)}, shape).outputs[0]


def _reversed(node: ir.Node, sequence: ir.Value) -> ir.Value:
    bounds = [
        initializer(node, np.array([number], np.int64), f"{sequence.name}/{name}")
        for name, number in (("last", -1), ("first", -np.iinfo(np.int64).max), ("axis", 0), ("step", -1))
    ]
    return inserted(node, "Slice", [sequence, *bounds], sequence).outputs[0]


def _start(node: ir.Node, state: int, name: str) -> ir.Value | None:
    """A state before the first turn with an axis for the direction; absent where it is zero."""
    value = node.inputs[2 + state]
    array, spread = array_of(value), producer(value, "Expand")
    zero = array if spread is None else array_of(spread.inputs[0])
    if zero is not None and not zero.any():
        return None
    if array is not None:
        return initializer(node, array[None], name)
    assert value is not None
    axes = initializer(node, np.array([0], np.int64), f"{name}/axes")
    made = ir.node("Unsqueeze", [value, axes], name=name)
    result = made.outputs[0]
    result.name, result.type = name, value.type
    result.shape = None if value.shape is None else ir.Shape([1, *value.shape])
    assert node.graph is not None
    node.graph.insert_before(node, made)
    return result


def _squeezed(before: ir.Node, value: ir.Value, axis: int) -> ir.Value:
    """``value`` without one axis."""
    axes = initializer(before, np.array([axis], np.int64), f"{value.name}/axes")
    shape = ir.Shape([size for place, size in enumerate(value.shape or ()) if place != axis])
    return inserted(before, "Squeeze", [value, axes], value, shape=shape).outputs[0]


def _stands_for(old: ir.Value, new: ir.Value) -> None:
    """Use ``new`` wherever ``old`` was, under its name."""
    new.shape = old.shape or new.shape
    if not old.uses() and not old.is_graph_output():
        return
    name, old.name = old.name, f"{old.name}/loop"
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name = name


def _row(body: ir.Graph, turn: ir.Value, rows: ir.Value, like: ir.Value) -> ir.Value:
    """The turn's row of a sequence that stands outside."""
    made = ir.node("Gather", [rows, turn], {"axis": 0}, name=f"{like.name}/row")
    made.meta[ROWS] = (turn, False)
    row = made.outputs[0]
    row.name, row.type = f"{like.name}/row", like.type
    row.shape = ir.Shape(list(rows.shape or ())[1:])
    first = next(iter(body), None)
    body.append(made) if first is None else body.insert_before(first, made)
    return row


def _copied(body: ir.Graph, value: ir.Value) -> ir.Value:
    made = ir.node("Identity", [value], name=f"{value.name}/copy")
    copy = made.outputs[0]
    copy.name, copy.type, copy.shape = f"{value.name}/copy", value.type, value.shape
    body.append(made)
    return copy


def _pruned(body: ir.Graph) -> None:
    """Take out what nothing uses."""
    for node in reversed(list(body)):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            body.remove(node, safe=True)

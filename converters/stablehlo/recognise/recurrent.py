"""LSTM and GRU cells inside a loop over time, as ``lax.scan`` leaves them.

The loop must do nothing else: its states are the cell's, its scan outputs the hidden state, its input
one row of a sequence in each turn.  Gates are sums of products with constant weights, in any
association, and may be cut from one wider product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.recognise.edit import array_of, initializer, producer, sizes
from convertkit.onnx.recognise.match import Term, match

_CELL: Term = ("Add", ("Mul", ("Sigmoid", "f"), "c"), ("Mul", ("Sigmoid", "i"), ("Tanh", "g")))
_LSTM: Term = ("Mul", ("Sigmoid", "o"), ("Tanh", "next"))
_UPDATE: Term = ("Sigmoid", "z")
_GRU: Term = (
    "Add",
    ("Mul", ("Sub", 1.0, _UPDATE), ("Tanh", ("Add", "n", ("Mul", ("Sigmoid", "r"), "m")))),
    ("Mul", _UPDATE, "h"),
)


@dataclass(frozen=True, slots=True)
class Scan:
    """A ``Loop`` that runs a known number of turns; states by place, each before and after a turn."""

    node: ir.Node
    trips: int
    turn: ir.Value
    before: tuple[ir.Value, ...]
    after: tuple[ir.Value, ...]
    rows: tuple[ir.Value, ...]


@dataclass(slots=True)
class Linear:
    """``x · weights + h · recurrent + bias``, each of ``size`` columns; absent terms are zero."""

    x: ir.Value | None
    weights: Array | None
    recurrent: Array | None
    bias: Array


def recognise_recurrent(node: ir.Node) -> None:
    """A loop whose body is one cell.

    before:  Loop(T, True, c, h){ x[t] → gates → c', h' }
    after:   LSTM(x, W, R, B, h, c), or GRU(x, W, R, B, h) with linear_before_reset=1
    """
    scan = _scan(node)
    if scan is None:
        return
    if len(scan.before) == 2:
        _lstm(scan)
    elif len(scan.before) == 1:
        _gru(scan)


def _scan(node: ir.Node) -> Scan | None:
    if node.op_type != "Loop" or node.domain != "" or node.inputs[0] is None:
        return None
    trips, going = array_of(node.inputs[0]), array_of(node.inputs[1])
    if going is None and node.inputs[1] is not None:
        return None
    body = node.attributes["body"].as_graph()
    turn, condition, *before = body.inputs
    states = len(before)
    if trips is None or (going is not None and not going.all()) or _plain(body.outputs[0]) is not condition:
        return None
    outputs = [_plain(value) for value in body.outputs[1:]]
    return Scan(node, int(trips.reshape(-1)[0]), turn, tuple(before), tuple(outputs[:states]), tuple(outputs[states:]))


def _plain(value: ir.Value) -> ir.Value:
    """What a value copies."""
    node = producer(value, "Identity")
    return value if node is None or node.inputs[0] is None else _plain(node.inputs[0])


def _lstm(scan: Scan) -> None:
    for c, h in ((0, 1), (1, 0)):
        found = match(_LSTM, scan.after[h], {"next": scan.after[c]})
        found = None if found is None else match(_CELL, scan.after[c], {**found, "c": scan.before[c]})
        if found is None or any(row is not scan.after[h] for row in scan.rows):
            continue
        gates = [_linear(found[name], scan.before[h]) for name in ("i", "o", "f", "g")]
        sequence = _sequence(scan, gates)
        if sequence is None:
            continue
        weights = [_stacked([getattr(gate, part).T for gate in gates]) for part in ("weights", "recurrent")]
        bias = np.concatenate([gate.bias for gate in gates if gate is not None])
        bias = np.concatenate([bias, np.zeros_like(bias)])[None]
        _write(scan, "LSTM", sequence, [*weights, bias], [h, c])
        return


def _gru(scan: Scan) -> None:
    (before,), (after,) = scan.before, scan.after
    found = match(_GRU, after, {"h": before})
    if found is None or any(row is not after for row in scan.rows):
        return
    update, reset, new, gated = (_linear(found[name], before) for name in ("z", "r", "n", "m"))
    if update is None or reset is None or new is None or gated is None:
        return
    if new.recurrent is not None or gated.weights is not None:
        return
    both = Linear(new.x, new.weights, gated.recurrent, new.bias)
    sequence = _sequence(scan, [update, reset, both])
    if sequence is None:
        return
    weights = [_stacked([getattr(gate, part).T for gate in (update, reset, both)]) for part in ("weights", "recurrent")]
    zeros = np.zeros_like(update.bias)
    bias = np.concatenate([update.bias, reset.bias, new.bias, zeros, zeros, gated.bias])[None]
    _write(scan, "GRU", sequence, [*weights, bias], [0])


def _stacked(parts: list[Array]) -> Array:
    """Gates one below the other, for one direction."""
    stacked: Array = np.concatenate(parts)[None]
    return stacked


def _sequence(scan: Scan, gates: list[Linear | None]) -> ir.Value | None:
    """The sequence that all gates read one row of, in full, where each gate has both products."""
    rows = {id(gate.x): gate.x for gate in gates if gate is not None}
    complete = all(gate is not None and gate.weights is not None and gate.recurrent is not None for gate in gates)
    row = next(iter(rows.values()), None)
    if not complete or len(rows) != 1 or row is None:
        return None
    return _row_of(row, scan)


def _row_of(row: ir.Value, scan: Scan) -> ir.Value | None:
    """The sequence [T, batch, size] of which a value is the row of this turn."""
    view = row.producer()
    node = producer(row, "Gather")
    if node is None and view is not None and view.op_type in ("Reshape", "Squeeze"):
        node = producer(view.inputs[0], "Gather")
    if node is None or node.attributes.get_int("axis", 0) != 0:
        return None
    sequence, index = node.inputs
    place = None if index is None else index.producer()
    at = index if place is None or place.op_type not in ("Reshape", "Unsqueeze") else place.inputs[0]
    shape = sizes(sequence)
    if sequence is None or shape is None or at is not scan.turn or len(shape) != 3 or shape[2] is None:
        return None
    # A free batch is as long in the row: its elements are the gathered ones, in rows of the same known size.
    inside = shape[0] == scan.trips and sizes(row) == shape[1:]
    from_outside = sequence.producer() not in _nodes(scan) and all(sequence is not state for state in scan.before)
    return sequence if inside and from_outside else None


def _nodes(scan: Scan) -> set[ir.Node | None]:
    return set(scan.node.attributes["body"].as_graph())


def _linear(value: ir.Value, h: ir.Value) -> Linear | None:
    """A gate before its activation, None where it is no such sum."""
    shape = sizes(value)
    if shape is None or shape[-1] is None:
        return None
    gate = Linear(None, None, None, np.zeros(shape[-1], np.float32))
    return gate if _add_terms(gate, value, h, slice(0, shape[-1])) else None


def _add_terms(gate: Linear, value: ir.Value | None, h: ir.Value, columns: slice) -> bool:
    array = array_of(value)
    if array is not None:
        gate.bias = gate.bias + _columns(array, columns)
        return array.size == 1 or array.size == array.shape[-1]
    node = None if value is None else value.producer()
    if node is None or node.domain != "":
        return False
    if node.op_type == "Add":
        return all(_add_terms(gate, each, h, columns) for each in node.inputs)
    if node.op_type == "Slice":
        inner = _cut(node, columns)
        return inner is not None and _add_terms(gate, node.inputs[0], h, inner)
    if node.op_type == "MatMul":
        return _add_product(gate, node.inputs[0], array_of(node.inputs[1]), h, columns)
    if node.op_type == "Gemm" and not any(name in node.attributes for name in ("alpha", "beta", "transA", "transB")):
        product = _add_product(gate, node.inputs[0], array_of(node.inputs[1]), h, columns)
        return product and (len(node.inputs) < 3 or _add_terms(gate, node.inputs[2], h, columns))
    return False


def _add_product(gate: Linear, x: ir.Value | None, weights: Array | None, h: ir.Value, columns: slice) -> bool:
    if x is None or weights is None or weights.ndim != 2 or weights.dtype != np.float32:
        return False
    if x is h and gate.recurrent is None:
        gate.recurrent = weights[:, columns]
        return True
    if x is not h and gate.weights is None:
        gate.x, gate.weights = x, weights[:, columns]
        return True
    return False


def _columns(bias: Array, columns: slice) -> Array:
    row = bias.reshape(-1)
    return row if row.size == 1 else row[columns]


def _cut(node: ir.Node, columns: slice) -> slice | None:
    """The columns of a slice's input that are ``columns`` of its output."""
    bounds = [array_of(each) for each in node.inputs[1:]]
    shape = sizes(node.inputs[0])
    if shape is None or len(bounds) < 3 or any(each is None or each.size != 1 for each in bounds):
        return None
    start, _, axis, *step = (int(each.reshape(-1)[0]) for each in bounds if each is not None)
    if axis % len(shape) != len(shape) - 1 or step not in ([], [1]) or start < 0:
        return None
    return slice(start + columns.start, start + columns.stop)


def _write(scan: Scan, operator: str, sequence: ir.Value, weights: list[Array], states: list[int]) -> None:
    node, stem = scan.node, scan.node.outputs[0].name
    size = weights[1].shape[-1]
    constants = [
        initializer(node, array, f"{stem}/{name}") for name, array in zip(("W", "R", "B"), weights, strict=True)
    ]
    starts = [_start(node, state, f"{stem}/start_{state}") for state in states]
    attributes = {"hidden_size": size} | ({"linear_before_reset": 1} if operator == "GRU" else {})
    made = ir.node(
        operator,
        [sequence, *constants, None, *starts],
        attributes,
        num_outputs=1 + len(states),
        name=f"{stem}/{operator}",
    )
    made.metadata_props.update(node.metadata_props)
    assert node.graph is not None
    node.graph.insert_before(node, made)
    whole = sizes(sequence)
    assert whole is not None
    shapes = [[whole[0], 1, whole[1], size], *([1, whole[1], size] for _ in states)]
    for number, (value, shape) in enumerate(zip(made.outputs, shapes, strict=True)):
        value.name, value.shape, value.dtype = f"{stem}/{operator}_{number}", ir.Shape(shape), ir.DataType.FLOAT
    for number, state in enumerate(states):
        _squeezed(node, node.outputs[state], made.outputs[1 + number], 0)
    for place in range(len(states), len(node.outputs)):
        _squeezed(node, node.outputs[place], made.outputs[0], 1)
    for inner in node.attributes["body"].as_graph().all_nodes():
        inner.resize_inputs(0)  # or it would count as a user of what stands outside
    node.graph.remove(node, safe=True)


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


def _squeezed(before: ir.Node, old: ir.Value, new: ir.Value, axis: int) -> None:
    """Put ``new`` without one axis in the place of ``old``, where that is used."""
    if not old.uses() and not old.is_graph_output():
        return
    axes = initializer(before, np.array([axis], np.int64), f"{old.name}/axes")
    made = ir.node("Squeeze", [new, axes], name=f"{old.name}/squeeze")
    result = made.outputs[0]
    result.shape, result.type = old.shape, old.type
    assert before.graph is not None
    before.graph.insert_before(before, made)
    name, old.name = old.name, f"{old.name}/loop"
    old.replace_all_uses_with(result, replace_graph_outputs=True)
    result.name = name

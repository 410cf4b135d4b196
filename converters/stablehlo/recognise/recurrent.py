"""LSTM, GRU and plain recurrent cells inside a loop over time, as ``lax.scan`` leaves them.

The loop must do nothing else: its states are the cell's, its scan outputs the hidden state, its input
one row of a sequence in each turn.  Gates are sums of products with constant weights, in any
association, and may be cut from one wider product, also from one of the whole sequence in front of the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.converters.stablehlo.recognise.gates import Linear, linear
from convertkit.converters.stablehlo.recognise.turns import Scan, row_of, scan_of
from convertkit.onnx.recognise.edit import array_of, initializer, inserted, producer, sizes
from convertkit.onnx.recognise.match import Term, match

_NOTHING: Mapping[str, int | Sequence[str]] = MappingProxyType({})
_CELL: Term = ("Add", ("Mul", ("Sigmoid", "f"), "c"), ("Mul", ("Sigmoid", "i"), ("Tanh", "g")))
_LSTM: Term = ("Mul", ("Sigmoid", "o"), ("Tanh", "next"))
_UPDATE: Term = ("Sigmoid", "z")
_GRU: Term = (
    "Add",
    ("Mul", ("Sub", 1.0, _UPDATE), ("Tanh", ("Add", "n", ("Mul", ("Sigmoid", "r"), "m")))),
    ("Mul", _UPDATE, "h"),
)

_OLDER_GRU: Term = ("Add", ("Mul", ("Sub", 1.0, _UPDATE), ("Tanh", "n")), ("Mul", _UPDATE, "h"))
_RESET: Term = ("Mul", ("Sigmoid", "r"), "h")


def recognise_recurrent(node: ir.Node) -> None:
    """A loop whose body is one cell.

    before:  Loop(T, True, c, h){ x[t] → gates → c', h' }
    after:   LSTM(x, W, R, B, h, c), GRU(x, W, R, B, h) or RNN(x, W, R, B, h)

    Turns that go from the sequence's end read it reversed.
    """
    scan = scan_of(node)
    if scan is None:
        return
    if len(scan.before) == 2:
        _lstm(scan)
    elif len(scan.before) == 1 and not _rnn(scan):
        _gru(scan)


def _lstm(scan: Scan) -> None:
    for c, h in ((0, 1), (1, 0)):
        found = match(_LSTM, scan.after[h], {"next": scan.after[c]})
        found = None if found is None else match(_CELL, scan.after[c], {**found, "c": scan.before[c]})
        if found is None or any(row is not scan.after[h] for row in scan.rows):
            continue
        gates = [linear(found[name], scan.before[h]) for name in ("i", "o", "f", "g")]
        sequence = _sequence(scan, gates)
        if sequence is None:
            continue
        weights = [_stacked([getattr(gate, part).T for gate in gates]) for part in ("weights", "recurrent")]
        bias = np.concatenate([gate.bias for gate in gates if gate is not None])
        bias = np.concatenate([bias, np.zeros_like(bias)])[None]
        _write(scan, "LSTM", sequence, [*weights, bias], [h, c])
        return


def _rnn(scan: Scan) -> bool:
    """A cell of one gate, whose activation is the operator's own; whether it was one."""
    (before,), (after,) = scan.before, scan.after
    node = after.producer()
    if node is None or node.domain != "" or node.op_type not in ("Tanh", "Relu"):
        return False
    gate = None if node.inputs[0] is None else linear(node.inputs[0], before)
    sequence = None if any(row is not after for row in scan.rows) else _sequence(scan, [gate])
    if gate is None or gate.weights is None or gate.recurrent is None or sequence is None:
        return False
    bias = np.concatenate([gate.bias, np.zeros_like(gate.bias)])[None]
    weights = [_stacked([part.T]) for part in (gate.weights, gate.recurrent)]
    _write(scan, "RNN", sequence, [*weights, bias], [0], {"activations": [node.op_type]})
    return True


def _gru(scan: Scan) -> None:
    (before,), (after,) = scan.before, scan.after
    found = match(_GRU, after, {"h": before})
    if any(row is not after for row in scan.rows):
        return
    if found is None:
        _gru_of_reset_states(scan)
        return
    update, reset, new, gated = (linear(found[name], before) for name in ("z", "r", "n", "m"))
    if update is None or reset is None or new is None or gated is None:
        return
    if new.recurrent is not None or gated.weights is not None:
        return
    both = Linear(new.x, new.weights, gated.recurrent, new.bias, new.selects)
    sequence = _sequence(scan, [update, reset, both])
    if sequence is None:
        return
    weights = [_stacked([getattr(gate, part).T for gate in (update, reset, both)]) for part in ("weights", "recurrent")]
    zeros = np.zeros_like(update.bias)
    bias = np.concatenate([update.bias, reset.bias, both.bias, zeros, zeros, gated.bias])[None]
    _write(scan, "GRU", sequence, [*weights, bias], [0], {"linear_before_reset": 1})


def _gru_of_reset_states(scan: Scan) -> None:
    """The older cell, whose reset gate comes before the product."""
    (before,), (after,) = scan.before, scan.after
    found = match(_OLDER_GRU, after, {"h": before})
    resets = [match(_RESET, node.outputs[0], {"h": before}) for node in scan.node.attributes["body"].as_graph()]
    for reset, node in zip(resets, scan.node.attributes["body"].as_graph(), strict=True):
        if found is None or reset is None:
            continue
        gates = [linear(found["z"], before), linear(reset["r"], before), linear(found["n"], node.outputs[0])]
        sequence = _sequence(scan, gates)
        if sequence is None:
            continue
        weights = [_stacked([getattr(gate, part).T for gate in gates]) for part in ("weights", "recurrent")]
        bias = np.concatenate([gate.bias for gate in gates if gate is not None])
        _write(scan, "GRU", sequence, [*weights, np.concatenate([bias, np.zeros_like(bias)])[None]], [0])
        return


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
    found = row_of(row, scan)
    if found is None:
        return None
    sequence, backward = found
    if all(gate is not None and gate.selects for gate in gates):
        sequence = _before_product(scan, sequence, [gate for gate in gates if gate is not None])
    return _reversed(scan.node, sequence) if backward else sequence


def _before_product(scan: Scan, sequence: ir.Value, gates: list[Linear]) -> ir.Value:
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


def _write(
    scan: Scan,
    operator: str,
    sequence: ir.Value,
    weights: list[Array],
    states: list[int],
    special: Mapping[str, int | Sequence[str]] = _NOTHING,
) -> None:
    node, stem = scan.node, scan.node.outputs[0].name
    size = weights[1].shape[-1]
    constants = [
        initializer(node, array, f"{stem}/{name}") for name, array in zip(("W", "R", "B"), weights, strict=True)
    ]
    starts = [_start(node, state, f"{stem}/start_{state}") for state in states]
    attributes = {"hidden_size": size} | dict(special)
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

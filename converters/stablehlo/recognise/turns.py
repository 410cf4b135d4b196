"""Loops over time that do nothing but turn after turn, and which row of a sequence a turn reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, producer, sizes

ROWS = "row of the turn"
"""Key of a ``Gather``'s analysis data: which loop's turn it reads the row of, and whether from the end."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A ``Loop`` that runs to its last turn; states by place, each before and after a turn.

    ``trips`` is None where only the running model knows how many there are.
    """

    node: ir.Node
    trips: int | None
    turn: ir.Value
    before: tuple[ir.Value, ...]
    after: tuple[ir.Value, ...]
    rows: tuple[ir.Value, ...]


def scan_of(node: ir.Node) -> Scan | None:
    """A loop as what it carries, None where it may end before its last turn."""
    if node.op_type != "Loop" or node.domain != "" or node.inputs[0] is None:
        return None
    first = node.inputs[1] if len(node.inputs) > 1 else None  # a loop without states need not name it
    trips, going = array_of(node.inputs[0]), array_of(first)
    if going is None and first is not None:
        return None
    body = node.attributes["body"].as_graph()
    turn, condition, *before = body.inputs
    states = len(before)
    if (going is not None and not going.all()) or plain(body.outputs[0]) is not condition:
        return None
    outputs = [plain(value) for value in body.outputs[1:]]
    known = None if trips is None else int(trips.reshape(-1)[0])
    return Scan(node, known, turn, tuple(before), tuple(outputs[:states]), tuple(outputs[states:]))


def plain(value: ir.Value) -> ir.Value:
    """What a value copies."""
    node = producer(value, "Identity")
    return value if node is None or node.inputs[0] is None else plain(node.inputs[0])


def row_of(row: ir.Value, scan: Scan) -> tuple[ir.Value, bool] | None:
    """The sequence [T, batch, size] of which a value is the row of this turn, and whether turns go from its end."""
    view = row.producer()
    node = producer(row, "Gather")
    if node is None and view is not None and view.op_type in ("Reshape", "Squeeze"):
        node = producer(view.inputs[0], "Gather")
    if node is None or node.attributes.get_int("axis", 0) != 0:
        return None
    sequence, index = node.inputs
    shape = sizes(sequence)
    backward = _marked(node, scan) if scan.trips is None else direction(index, scan.turn, scan.trips)
    if sequence is None or shape is None or backward is None or len(shape) != 3 or shape[2] is None:
        return None
    # A dynamic batch is as long in the row: its elements are the gathered ones, in rows of the same known size.
    inside = (scan.trips is None or shape[0] == scan.trips) and sizes(row) == shape[1:]
    from_outside = sequence.producer() not in _nodes(scan) and all(sequence is not state for state in scan.before)
    return (sequence, backward) if inside and from_outside else None


def _marked(node: ir.Node, scan: Scan) -> bool | None:
    """Whether a ``Gather`` reads the sequence from its end, of which a turn of this loop reads one row each."""
    turn, backward = node.meta.get(ROWS) or (None, False)
    return backward if turn is scan.turn else None


def _nodes(scan: Scan) -> set[ir.Node | None]:
    return set(scan.node.attributes["body"].as_graph())


def take_out(node: ir.Node, places: Collection[int]) -> None:
    """Take outputs of a loop, states and rows, out of it; its turns and what is behind it read them no more."""
    body, states = node.attributes["body"].as_graph(), len(node.inputs) - 2
    kept = [place for place in range(len(node.outputs)) if place not in places]
    for place in sorted(places, reverse=True):
        del body.outputs[1 + place]
        if place < states:
            del body.inputs[2 + place]
    inputs = [value for place, value in enumerate(node.inputs) if place - 2 not in places]
    node.resize_inputs(len(inputs))
    for place, given in enumerate(inputs):
        node.replace_input_with(place, given)
    for to, place in enumerate(kept):
        if to != place:
            _moved(node.outputs[place], node.outputs[to])
    node.resize_outputs(len(kept))


def _moved(old: ir.Value, new: ir.Value) -> None:
    """Let ``new``, another output of the same node, be what ``old`` was."""
    new.shape, new.type = old.shape, old.type
    name, old.name = old.name, f"{old.name}/moved"
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    new.name = name


_COMPUTED: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum, "Clip": np.clip}
)
_COPIES = frozenset({"Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity"})


def direction(index: ir.Value | None, turn: ir.Value, trips: int) -> bool | None:
    """False where an index is the number of the turn, True where it counts them from the last one, else None."""
    places = _places(index, turn, trips)
    forward = np.arange(trips)
    if places is None or trips < 2:
        return False if places is not None and np.array_equal(places, forward) else None
    return True if np.array_equal(places, forward[::-1]) else False if np.array_equal(places, forward) else None


def _places(value: ir.Value | None, turn: ir.Value, trips: int) -> Array | None:
    """What a whole number computed from the turn's is in each of them."""
    if value is turn:
        return np.arange(trips)
    known = array_of(value)
    if known is not None:
        whole = known.size == 1 and known.dtype.kind in "iu"
        return np.full(trips, int(known.reshape(())), np.int64) if whole else None
    node = None if value is None else value.producer()
    if node is None or node.domain != "":
        return None
    if node.op_type in _COPIES:
        to = node.attributes.get_int("to", int(ir.DataType.INT64))
        return _places(node.inputs[0], turn, trips) if to in (ir.DataType.INT32, ir.DataType.INT64) else None
    if node.op_type not in _COMPUTED or any(each is None for each in node.inputs):
        return None
    parts = [_places(each, turn, trips) for each in node.inputs]
    if any(part is None for part in parts) or len(parts) != (3 if node.op_type == "Clip" else 2):
        return None
    return np.asarray(_COMPUTED[node.op_type](*parts))

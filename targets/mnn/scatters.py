"""Scatters that add, multiply or take an extreme, as comparisons of all places: MNN 3.6 overwrites or loses some.

before:  y = ScatterND <reduction> (data, indices, updates)
after:   hit [R, U, 1] = Equal (0 … R - 1, places), y = data ∘ Reduce (Where (hit, updates, neutral)) over U
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import is_float32
from convertkit.targets.forms.writing import Place, dims

SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_LARGEST = 1 << 22
"""Elements that are compared; more are refused."""
_KINDS: Mapping[str, tuple[str, str, float]] = {
    "add": ("ReduceSum", "Add", 0.0),
    "mul": ("ReduceProd", "Mul", 1.0),
    "max": ("ReduceMax", "Max", -math.inf),
    "min": ("ReduceMin", "Min", math.inf),
}
"""By ``reduction``: over updates, with the data, and what changes nothing."""


def write_scatter(node: ir.Node) -> None:
    """In place; one that overwrites stays.  ``Unsupported`` for sizes that are dynamic or too many."""
    if node.attributes.get_string("reduction", "none") == "none":
        return
    place = Place(node)
    if not all(value is not None and is_float32(value) for value in (node.inputs[0], node.inputs[2])):
        raise place.refused("MNN computes its reduction in another way, and it is not of float32")
    data, indices, _ = (_fixed(place, each) for each in range(3))
    place.becomes((_slices if node.op_type == "ScatterND" else _elements)(place, data, indices))


def _fixed(place: Place, number: int) -> tuple[int, ...]:
    sizes = dims(place.node.inputs[number])
    known = tuple(size for size in sizes or () if isinstance(size, int))
    if sizes is None or len(known) < len(sizes):
        raise place.refused("MNN computes its reduction in another way, and its sizes are dynamic; --static gives them")
    return known


def _slices(place: Place, data: tuple[int, ...], indices: tuple[int, ...]) -> ir.Value:
    depth, count = indices[-1], math.prod(indices[:-1])
    rows, inner = math.prod(data[:depth]), math.prod(data[depth:])
    whole = _counted(place, data[:depth])
    steps = np.array([math.prod(data[axis + 1 : depth]) for axis in range(depth)], np.float32)
    flat = _viewed(place, place.op("Mul", whole, place.constant(steps), like=whole), count, depth)
    axis = place.constant(np.array([1]))
    places = _viewed(place, place.op("ReduceSum", flat, axis, shape=[count, 1], keepdims=1), 1, count, 1)
    given = _viewed(place, place.node.inputs[2], 1, count, inner)
    found = _reduced(place, places, given, rows, (rows, count, inner))
    return _viewed(place, _joined(place, _viewed(place, place.node.inputs[0], rows, inner), found), *data)


def _elements(place: Place, data: tuple[int, ...], indices: tuple[int, ...]) -> ir.Value:
    rank = len(data)
    axis = place.node.attributes.get_int("axis", 0) % rank
    first, last = math.prod(data[:axis]), math.prod(data[axis + 1 :])
    if first != math.prod(indices[:axis]) or last != math.prod(indices[axis + 1 :]):
        raise place.refused("MNN computes its reduction in another way, and it leaves out rows of its data")
    rows, count = data[axis], indices[axis]
    whole = _counted(place, (rows,))
    places, given = (_viewed(place, each, first, 1, count, last) for each in (whole, place.node.inputs[2]))
    wide = (first, rows, count, last)
    found = _reduced(place, places, given, rows, wide)
    return _viewed(place, _joined(place, _viewed(place, place.node.inputs[0], first, rows, last), found), *data)


def _counted(place: Place, sizes: tuple[int, ...]) -> ir.Value:
    """The indices as floats, from the start."""
    numbers = place.op("Cast", place.node.inputs[1], dtype=ir.DataType.FLOAT, to=int(ir.DataType.FLOAT))
    below = place.op("Less", numbers, place.constant(np.float32(0)), like=numbers, dtype=ir.DataType.BOOL)
    turned = place.op("Add", numbers, place.constant(np.array(sizes, np.float32)), like=numbers)
    return place.op("Where", below, turned, numbers, like=numbers)


def _reduced(place: Place, places: ir.Value, given: ir.Value, rows: int, wide: tuple[int, ...]) -> ir.Value:
    """What the updates of each row come to; ``wide`` has the rows and the updates side by side."""
    count = math.prod(wide)
    if count > _LARGEST:
        raise place.refused(f"MNN computes its reduction in another way, and {count:,} comparisons are too many")
    kind, _, neutral = _KINDS[place.node.attributes.get_string("reduction")]
    updates = len(wide) - 2
    view = [-1 if axis == updates - 1 else 1 for axis in range(len(wide))]
    numbers = place.constant(np.arange(rows, dtype=np.float32).reshape(view))
    last = (dims(places) or wide)[-1]
    hit = place.op("Equal", numbers, places, dtype=ir.DataType.BOOL, shape=[*wide[:-1], last])
    kept = place.op("Where", hit, given, place.constant(np.float32(neutral)), like=given, shape=wide)
    rest = [size for axis, size in enumerate(wide) if axis != updates]
    return place.op(kind, kept, place.constant(np.array([updates])), shape=rest, keepdims=0)


def _joined(place: Place, data: ir.Value, found: ir.Value) -> ir.Value:
    _, kind, _ = _KINDS[place.node.attributes.get_string("reduction")]
    return place.op(kind, data, found)


def _viewed(place: Place, value: ir.Value | None, *shape: int) -> ir.Value:
    return place.op("Reshape", value, place.constant(np.array(shape)), shape=shape)

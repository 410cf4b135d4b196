"""Places that count from the end of an axis, for runtimes that do not look at the sign."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, dims, refusal


def from_the_start(node: ir.Node) -> None:
    """Negative places of GatherElements, ScatterElements and GatherND as those from the start, in place.

    before:  y = GatherElements (x, i)
    after:   y = GatherElements (x, Where (Less (i, 0), Add (i, size), i))

    Leaves stored places from 0 on.  ``Unsupported`` where it is not known how many places a GatherND has.
    """
    x, places = node.inputs[:2]
    assert x is not None
    assert places is not None
    stored = array_of(places)
    if stored is not None and (stored >= 0).all():
        return
    place = Place(node)
    kind = ir.DataType.INT64 if places.dtype is None else places.dtype
    size = _sizes(place, x, _axes(node), kind)
    negative = place.op("Less", places, place.constant(np.zeros((), kind.numpy())), dtype=ir.DataType.BOOL)
    counted = place.op("Where", negative, place.op("Add", places, size), places, like=places)
    node.replace_input_with(1, counted)


def _axes(node: ir.Node) -> list[int]:
    """The axes that places are of; one alone where it is an attribute."""
    if node.op_type != "GatherND":
        return [node.attributes.get_int("axis", 0)]
    first, sizes = node.attributes.get_int("batch_dims", 0), dims(node.inputs[1])
    count = sizes[-1] if sizes else None
    if not isinstance(count, int):
        raise refusal(node, "how many places it takes for each element is only known at run time")
    return list(range(first, first + count))


def _sizes(place: Place, x: ir.Value, axes: list[int], kind: ir.DataType) -> ir.Value:
    """The sizes of these axes, as one vector; stored where they are known."""
    sizes = dims(x)
    known = [None] if sizes is None else [sizes[axis] for axis in axes]
    if all(isinstance(size, int) for size in known):
        return place.constant(np.array(known, kind.numpy()))
    whole = place.op("Shape", x, dtype=ir.DataType.INT64, shape=None if sizes is None else [len(sizes)])
    counts = [axis % len(sizes) if sizes else axis for axis in axes]
    found = place.op("Gather", whole, place.constant(np.array(counts, np.int64)), shape=[len(axes)])
    return found if kind == ir.DataType.INT64 else place.op("Cast", found, dtype=kind, to=int(kind))

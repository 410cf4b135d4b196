"""Pad in forms that runtimes take: without axes, without negative numbers, and wrapping around as gathers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, dims


def write_wrapped(node: ir.Node) -> None:
    """``mode`` wrap as a gather along each padded axis."""
    if node.attributes.get_string("mode", "constant") != "wrap":
        return
    place, value, sizes = Place(node), node.inputs[0], dims(node.inputs[0])
    given = [array_of(each) for each in node.inputs[1:]]
    pads, axes = given[0], given[2] if len(given) > 2 else None
    if value is None or sizes is None or pads is None or (len(node.inputs) > 3 and node.inputs[3] and axes is None):
        raise place.refused("it wraps around by pads that are computed")
    named = range(len(sizes)) if axes is None else [int(each) % len(sizes) for each in axes]
    for axis, first, last in zip(named, pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True):
        size = sizes[axis]
        if not first and not last:
            continue
        if not isinstance(size, int):
            raise place.refused("it wraps around an axis whose size is dynamic; --static gives it one")
        indices = np.arange(-int(first), size + int(last)) % size
        sizes = (*sizes[:axis], len(indices), *sizes[axis + 1 :])
        value = place.op("Gather", value, place.constant(indices), shape=sizes, axis=axis)
    place.becomes(value if value.producer() else place.op("Identity", value))


def write_cropped(node: ir.Node) -> None:
    """Negative pads of a constant one as a slice before it; pads that are computed stay.

    before:  y = Pad (x, [0, 1, 2, -1])
    after:   y = Pad (Slice (x, to = -1), [0, 1, 2, 0])
    """
    x, sizes = node.inputs[0], dims(node.inputs[0])
    given, axes = (array_of(node.inputs[place]) if len(node.inputs) > place else None for place in (1, _AXES))
    named = len(node.inputs) > _AXES and node.inputs[_AXES] is not None
    if node.attributes.get_string("mode", "constant") != "constant" or x is None or sizes is None:
        return
    if given is None or (given >= 0).all() or (named and axes is None):
        return
    place, pairs = Place(node), given.reshape(2, -1)
    over = np.arange(len(sizes)) if axes is None else axes.reshape(-1) % len(sizes)
    starts, ends = np.maximum(-pairs[0], 0), np.where(pairs[1] < 0, pairs[1], _END)
    after = list(sizes)
    for axis, start, cut in zip(over, starts, np.maximum(-pairs[1], 0), strict=True):
        size = sizes[axis]
        if start or cut:
            after[axis] = max(size - int(start) - int(cut), 0) if isinstance(size, int) else ir.SymbolicDim(None)
    told = [place.constant(each.astype(np.int64)) for each in (starts, ends, over)]
    node.replace_input_with(0, place.op("Slice", x, *told, shape=after))
    node.replace_input_with(1, place.constant(np.maximum(given, 0)))


def write_all_axes(node: ir.Node) -> None:
    """Pads of named axes as pads of all; where either is computed, or the rank is unknown, the node stays."""
    sizes = dims(node.inputs[0])
    given, axes = (array_of(node.inputs[place]) if len(node.inputs) > place else None for place in (1, _AXES))
    if given is None or axes is None or sizes is None:
        return
    pads = np.zeros((2, len(sizes)), np.int64)
    pads[:, axes.reshape(-1) % len(sizes)] = given.reshape(2, axes.size)
    node.replace_input_with(1, Place(node).constant(pads.reshape(-1)))
    node.resize_inputs(_AXES)


_END = np.iinfo(np.int32).max
_AXES = 3
"""The place of the axes among the inputs."""

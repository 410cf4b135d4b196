"""Pad in forms that runtimes take: without axes, without negative numbers, and wrapping around as gathers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, Size, dims


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
    """Negative pads of all axes of a constant one as a slice behind it; of named axes and computed ones they stay.

    before:  y = Pad (x, [0, 1, 2, -1])
    after:   y = Slice (Pad (x, [0, 1, 2, 0]), to = -1)
    """
    x, sizes = node.inputs[0], dims(node.inputs[0])
    given = array_of(node.inputs[1])
    named = len(node.inputs) > _AXES and node.inputs[_AXES] is not None
    if node.attributes.get_string("mode", "constant") != "constant" or x is None or sizes is None or named:
        return
    if given is None or (given >= 0).all():
        return
    place, pairs = Place(node), given.reshape(2, -1)
    added = np.maximum(pairs, 0)
    if added.any():
        more = added.sum(0).tolist()
        wider = [
            size + each if isinstance(size, int) else _unknown(size, each)
            for size, each in zip(sizes, more, strict=True)
        ]
        x = place.op("Pad", x, place.constant(added.reshape(-1)), *node.inputs[2:_AXES], shape=wider)
    starts, ends = np.maximum(-pairs[0], 0), np.where(pairs[1] < 0, pairs[1], _END)
    told = [place.constant(each.astype(np.int64)) for each in (starts, ends, np.arange(len(sizes)))]
    place.becomes(place.op("Slice", x, *told, like=node.outputs[0]))


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


def _unknown(size: Size, more: int) -> Size:
    """A dynamic size that grows by so much."""
    return ir.SymbolicDim(None) if more else size


_END = np.iinfo(np.int32).max
_AXES = 3
"""The place of the axes among the inputs."""

"""Pad in forms that runtimes take: without axes, without negative numbers, and wrapping around as gathers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, Size, dims, refusal


def write_wrapped(node: ir.Node) -> None:
    """``mode`` wrap as a gather along each padded axis."""
    if node.attributes.get_string("mode", "constant") != "wrap":
        return
    borders, sizes = _borders(node), dims(node.inputs[0]) or ()
    if borders is None:
        raise refusal(node, "it wraps around by pads that are computed")
    if not all(isinstance(sizes[axis], int) for axis in borders):
        raise refusal(node, "it wraps around an axis whose size is dynamic; --static gives it one")
    _gather(node, borders, lambda places, size: places % size)


def write_reflected(node: ir.Node) -> None:
    """``mode`` reflect as a gather along each padded axis; by computed pads, or of a dynamic size, it stays."""
    borders, sizes = _borders(node), dims(node.inputs[0]) or ()
    if borders is None or node.attributes.get_string("mode", "constant") != "reflect":
        return
    known = {axis: size for axis in borders if isinstance(size := sizes[axis], int)}
    if len(known) == len(borders) and all(max(borders[axis]) < size for axis, size in known.items()):
        _gather(node, borders, lambda places, size: size - 1 - np.abs(size - 1 - np.abs(places)))


def _borders(node: ir.Node) -> dict[int, tuple[int, int]] | None:
    """Elements before and behind each axis that has any; None where they are computed."""
    sizes, given = dims(node.inputs[0]), [array_of(each) for each in node.inputs[1:]]
    pads, axes = given[0], given[_AXES - 1] if len(given) > _AXES - 1 else None
    if sizes is None or pads is None or (len(node.inputs) > _AXES and node.inputs[_AXES] and axes is None):
        return None
    named = range(len(sizes)) if axes is None else [int(each) % len(sizes) for each in axes]
    pairs = zip(pads[: len(pads) // 2].tolist(), pads[len(pads) // 2 :].tolist(), strict=True)
    return {axis: pair for axis, pair in zip(named, pairs, strict=True) if any(pair)}


def _gather(node: ir.Node, borders: Mapping[int, tuple[int, int]], placed: Callable[[Array, int], Array]) -> None:
    """``placed`` says which elements of an axis stand at places from before its first on, for its size."""
    place, value, sizes = Place(node), node.inputs[0], dims(node.inputs[0]) or ()
    for axis, (first, last) in borders.items():
        size = sizes[axis]
        assert isinstance(size, int)
        indices = placed(np.arange(-first, size + last), size)
        sizes = (*sizes[:axis], len(indices), *sizes[axis + 1 :])
        value = place.op("Gather", value, place.constant(indices), shape=sizes, axis=axis)
    assert value is not None
    place.becomes(value if borders else place.op("Identity", value))


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

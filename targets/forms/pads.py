"""Pad in forms that runtimes take: without axes, and wrapping around as gathers."""

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


_AXES = 3
"""The place of the axes among the inputs."""

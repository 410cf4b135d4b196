"""Samples moved a little along the axes in which a network's first windows slide: pictures in space, sounds in time.

A sample that was moved is another one that the original answers, so that few samples go further.  Which axes these are
tells the graph: those along which the first convolution or pooling behind an input slides.  How far, tell the samples:
where the mean one becomes another by it, as coefficients of a sound do in each other's places, nothing is moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
import torch
from torch import Tensor

from convertkit.quantization.graph.sizes import sizes

_SHARE = 0.1
"""Of an axis: as far as samples are moved."""
_CHANGE = 0.25
"""What moving may change in the mean sample, as a share of the variance of samples."""
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Cast", "Identity", "QuantizeLinear", "DequantizeLinear", "Clip"})
_SAME_ORDER = frozenset({"Reshape", "Squeeze", "Unsqueeze"})
_WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool"})

Shifts = Mapping[str, tuple[tuple[int, int], ...]]
"""By an input's name: axes of its samples, and by how many elements these are moved at most."""


def shifts(graph: ir.Graph) -> Shifts:
    """How far the samples of each float input may be moved; inputs that no window slides over are not there."""
    found = {}
    for value in graph.inputs:
        if value.dtype == ir.DataType.FLOAT and (axes := _sliding(value)):
            lengths = sizes(value)
            far = tuple((axis, round(_SHARE * lengths[axis])) for axis in sorted(axes))
            if moved := tuple((axis, most) for axis, most in far if most):
                found[str(value.name)] = moved
    return found


def steady(movable: Shifts, samples: Mapping[str, Tensor]) -> Shifts:
    """As ``movable``, no farther than leaves the mean of ``samples`` (samples, …) much what it is."""
    found = {}
    for name, axes in movable.items():
        far = ((axis, _steady(samples[name].double(), axis, most)) for axis, most in axes)
        if kept := tuple((axis, most) for axis, most in far if most):
            found[name] = kept
    return found


def _steady(samples: Tensor, axis: int, most: int) -> int:
    """How far all samples can be moved along an axis of theirs both ways, at most ``most``."""
    mean, allowed = samples.mean(0), _CHANGE * float(samples.var(0, correction=0).mean())
    place = torch.arange(mean.shape[axis])
    for far in range(1, most + 1):
        for step in (far, -far):
            there = mean.index_select(axis, (place - step).clamp(0, len(place) - 1))
            if float((there - mean).square().mean()) > allowed:
                return far - 1
    return most


def _sliding(value: ir.Value) -> frozenset[int]:
    """The axes of an input in which the first window behind it slides, followed through what keeps its elements."""
    places: dict[int, int] = {axis: axis for axis in range(len(sizes(value)))}
    while True:
        uses = list(value.uses())
        if len(uses) != 1 or uses[0].node.domain:
            return frozenset()
        node, index = uses[0].node, uses[0].idx
        if node.op_type in _WINDOWS and index == 0:
            return frozenset(axis for axis, place in places.items() if place >= 2 and _is_wide(node, place - 2))
        after = _behind(node, value, places) if index == 0 or node.op_type in _ELEMENTWISE else None
        if after is None:
            return frozenset()
        value, places = node.outputs[0], after


def _is_wide(node: ir.Node, axis: int) -> bool:
    """Whether the window has more than one element along this axis in space."""
    kernel: Sequence[int] = node.attributes.get_ints("kernel_shape", ())
    if not kernel and node.inputs[1] is not None:
        kernel = sizes(node.inputs[1])[2:]
    return axis < len(kernel) and kernel[axis] > 1


def _behind(node: ir.Node, value: ir.Value, places: Mapping[int, int]) -> dict[int, int] | None:
    """Where the axes are in the output of a node that keeps all elements; axes of one element may get lost."""
    before, after = sizes(value), sizes(node.outputs[0])
    if node.op_type == "Transpose":
        order = list(node.attributes.get_ints("perm", tuple(reversed(range(len(before))))))
        return {axis: order.index(place) for axis, place in places.items()}
    if node.op_type in _ELEMENTWISE and before == after:
        return dict(places)
    if node.op_type not in _SAME_ORDER:
        return None
    wide = [place for place, size in enumerate(before) if size > 1]
    there = [place for place, size in enumerate(after) if size > 1]
    if [before[place] for place in wide] != [after[place] for place in there]:
        return None
    moved = dict(zip(wide, there, strict=True))
    return {axis: moved[place] for axis, place in places.items() if place in moved}


def moved(samples: Tensor, axes: Sequence[tuple[int, int]], random: torch.Generator) -> Tensor:
    """Each sample (samples, …) moved on its own along ``axes`` of a sample; what lies at an edge is repeated."""
    count = len(samples)
    for axis, most in axes:
        length, place = samples.shape[axis + 1], axis + 1
        steps = torch.randint(-most, most + 1, (count, 1), generator=random)
        index = (torch.arange(length) - steps).clamp(0, length - 1)
        shape = [count if each == 0 else length if each == place else 1 for each in range(samples.ndim)]
        samples = samples.gather(place, index.reshape(shape).expand(samples.shape))
    return samples

"""InstanceNormalization and GroupNormalization of images, so that channels stay where they are.

Exporters write a group norm as Reshape to [N, groups, rest], InstanceNormalization, Reshape.  That merges channels
with pixels, which no channels-last image allows.  The means of channels, averaged over their group, say the same, and
leave every large operator with the shape of the image.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, bypass, only_user, producer
from convertkit.onnx.recognise.deviation import is_shifted
from convertkit.targets.forms.edits import new_constant, typed
from convertkit.targets.forms.einsum import Writer
from convertkit.targets.forms.source import set_source

VARIES = "convertkit.varies"
"""Metadata of a GroupNormalization whose elements are never all equal, so that the rounding of their mean is hidden."""


def norm_nodes(
    b: Writer, rank: int, channels: int | None, groups: int | None, epsilon: float, repeats: int, *, twice: bool
) -> str:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` for inputs x, scale, bias; the result's name.

    ``groups`` is None where every channel has its own mean; ``repeats`` says how many channels share one number of
    scale and bias.  ``twice`` takes off the mean of what the first one leaves, too: its rounding is all that equal
    elements leave.
    """
    x = b.inputs[0]
    view = b.constant(np.array([-1, *[1] * (rank - 2)], np.int64))
    scale, bias = (b.op("Reshape", [_repeated(b, name, repeats), view]) for name in b.inputs[1:3])
    centred = b.op("Sub", [x, _mean(b, x, rank, channels, groups)])
    if twice:
        centred = b.op("Sub", [centred, _mean(b, centred, rank, channels, groups)])
    variance = _mean(b, b.op("Mul", [centred, centred]), rank, channels, groups)
    deviation = b.op("Sqrt", [b.op("Add", [variance, b.constant(np.array(epsilon, np.float32))])])
    return b.op("Add", [b.op("Mul", [centred, b.op("Div", [scale, deviation])]), bias])


def _repeated(b: Writer, name: str, repeats: int) -> str:
    if repeats == 1:
        return name
    column = b.op("Reshape", [name, b.constant(np.array([-1, 1], np.int64))])
    return b.op("Tile", [column, b.constant(np.array([1, repeats], np.int64))])


def _mean(b: Writer, x: str, rank: int, channels: int | None, groups: int | None) -> str:
    """Means over the pixels, as [N, channels, 1, …], the same for all channels of a group."""
    axes = b.constant(np.arange(2, rank, dtype=np.int64))
    mean = b.op("ReduceMean", [x, axes], {"keepdims": 1})
    if groups is None or channels is None or groups == channels:
        return mean
    if groups == 1:
        return b.op("ReduceMean", [mean, b.constant(np.array([1], np.int64))], {"keepdims": 1})
    members = channels // groups
    ones = np.kron(np.eye(groups), np.ones((members, members))).astype(np.float32)
    sums = b.op("Conv", [mean, b.constant(ones.reshape(channels, channels, *[1] * (rank - 2)))])
    return b.op("Mul", [sums, b.constant(np.array(1 / members, np.float32))])


def recognise_group_norms(model: ir.Model) -> None:
    """Reshape, InstanceNormalization and Reshape become one node, with a scale and a bias for each channel.

    before:  x → Reshape [N, groups, rest] → InstanceNormalization → Reshape like x → Mul → Add
    after:   x → GroupNormalization

    Also of groups that are taken from their first element first, instead of which their mean is taken off twice.
    Leaves norms whose own scale or bias are not 1 and 0: they belong to groups of pixels, not to channels.
    """
    for node in list(model.graph.all_nodes()):
        if node.domain == "" and node.op_type == "InstanceNormalization":
            _recognise(node)


def _recognise(norm: ir.Node) -> None:
    second, taken = only_user(norm.outputs[0]), norm.inputs[0]
    shifted = taken.producer() if taken is not None and is_shifted(taken) else None
    first = producer(taken if shifted is None else shifted.inputs[0], "Reshape")
    if first is None or second is None or second.op_type != "Reshape":
        return
    x, graph = first.inputs[0], norm.graph
    if x is None or not isinstance(graph, ir.Graph) or not _groups(x, first) or not _restores(x, second):
        return
    if not _all_are(norm.inputs[1], 1) or not _all_are(norm.inputs[2], 0):
        return
    assert x.shape is not None
    assert first.outputs[0].shape is not None
    channels, groups = x.shape[1], first.outputs[0].shape[1]
    assert isinstance(channels, int)
    last, numbers = second, [np.ones(channels, np.float32), np.zeros(channels, np.float32)]
    for place, kind in enumerate(("Mul", "Add")):
        follower = only_user(last.outputs[0])
        factor = None if follower is None else _per_channel(follower, kind, last.outputs[0], channels, len(x.shape))
        if follower is not None and factor is not None:
            last, numbers[place] = follower, factor
    names = [new_constant(graph, f"{norm.name}/{what}", each) for what, each in zip(("scale", "bias"), numbers)]
    made = ir.node("GroupNormalization", [x, *names], {"epsilon": _epsilon(norm), "num_groups": groups})
    made.name = f"{norm.name}/groups"
    set_source(made, norm)
    if shifted is None:
        made.metadata_props[VARIES] = "1"
    made.outputs[0].name = f"{last.outputs[0].name}/normalised"
    typed(made.outputs[0], x.shape, x.dtype)
    graph.insert_after(last, made)
    bypass(last, made.outputs[0])


def _groups(x: ir.Value, reshape: ir.Node) -> bool:
    """Whether ``reshape`` makes [N, groups, rest] of [N, channels, …], the groups being of whole channels."""
    source, target = x.shape, reshape.outputs[0].shape
    if source is None or target is None or len(source) < 3 or len(target) != 3:
        return False
    channels, groups = source[1], target[1]
    if not isinstance(channels, int) or not isinstance(groups, int) or channels % groups:
        return False
    sizes = array_of(reshape.inputs[1])
    if sizes is not None and sizes[0] == 0 and not reshape.attributes.get_int("allowzero", 0):
        return True
    rest, behind = [list(source)[1:], list(target)[1:]]
    known = [size for size in (*rest, *behind) if isinstance(size, int)]
    if len(known) == len(rest) + len(behind):
        return math.prod(known[: len(rest)]) == math.prod(known[len(rest) :])
    return isinstance(source[0], int) and source[0] == target[0]


def _restores(x: ir.Value, reshape: ir.Node) -> bool:
    """Whether ``reshape`` gives back the shape of ``x``: all sizes but one are known, or they are asked of ``x``."""
    asked = reshape.inputs[1].producer() if reshape.inputs[1] is not None else None
    if asked is not None and asked.op_type == "Shape" and asked.inputs[0] is x and not asked.attributes:
        return True
    source, target = x.shape, reshape.outputs[0].shape
    if source is None or target is None or len(source) != len(target):
        return False
    pairs = list(zip(source, target, strict=True))
    free = [pair for pair in pairs if not isinstance(pair[0], int) or not isinstance(pair[1], int)]
    return len(free) <= 1 and all(one == other for one, other in pairs if (one, other) not in free)


def _per_channel(node: ir.Node, kind: str, value: ir.Value, channels: int, rank: int) -> Array | None:
    """The constant that ``node`` multiplies ``value`` by or adds to it, as one number for each channel."""
    if node.domain != "" or node.op_type != kind:
        return None
    found = array_of(node.inputs[1] if node.inputs[0] is value else node.inputs[0])
    if found is None or found.ndim not in (rank, rank - 1):
        return None
    wanted = (1,) * (found.ndim - rank + 1) + (channels,) + (1,) * (rank - 2)
    return found.reshape(-1).astype(np.float32) if found.shape == wanted else None


def _all_are(value: ir.Value | None, number: float) -> bool:
    found = array_of(value)
    return found is not None and bool((found == number).all())


def _epsilon(node: ir.Node) -> float:
    return float(node.attributes.get_float("epsilon", 1e-5))

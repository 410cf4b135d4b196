"""Pools in forms that MNN computes: its converter leaves out defaults, and its library pools images alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.pool_pads import pad_in_front, pad_to_result, state_same_pads
from convertkit.targets.forms.writing import Place, dims, refusal

POOLS = frozenset({"MaxPool", "AveragePool"})
_VOLUME = 3
_STATED = ("count_include_pad", "ceil_mode")


def write_pool(node: ir.Node) -> None:
    """In place; ``Unsupported`` for what MNN does not look at.

    Strides that are left to their default of 1 are 0 for MNN, which divides by them.
    """
    kernel = node.attributes.get_ints("kernel_shape", ())
    if any(each != 1 for each in node.attributes.get_ints("dilations", ())):
        raise refusal(node, "dilations, which MNN's pooling does not look at")
    if any(each.uses() or each.is_graph_output() for each in node.outputs[1:]):
        raise refusal(node, "places of the largest elements, which MNN counts in another way")
    if "strides" not in node.attributes:
        node.attributes["strides"] = ir.AttrInt64s("strides", [1] * len(kernel))
    state_same_pads(node)
    if node.attributes.get_int("ceil_mode", 0) and not node.attributes.get_int("count_include_pad", 0):
        pad_to_result(node)
    _pad_before(node)
    if len(kernel) == _VOLUME:
        _by_two(node)
    elif len(kernel) > _VOLUME:
        raise refusal(node, "a pool over more than three axes, of which MNN's library has none")


def _pad_before(node: ir.Node) -> None:
    """Zeros that count in a mean, and are not the same on both sides, in front: MNN counts others."""
    pads = node.attributes.get_ints("pads", ())
    half = len(pads) // 2
    if node.attributes.get_int("count_include_pad", 0) == 0 or pads[:half] == pads[half:]:
        return
    if dims(node.inputs[0]) is None or node.attributes.get_int("ceil_mode", 0) != 0:
        raise refusal(node, "other padding before than behind that counts in a mean, which MNN counts in another way")
    pad_in_front(node)


def _by_two(node: ir.Node) -> None:
    """A pool of volumes as one of images and one along the depth: windows are products, and so are their sizes.

    before:  x [N, C, D, H, W] → pool
    after:   x → [N, C·D, H, W] → pool → [N, C, D, H·W] → pool of columns → [N, C, D, H, W]
    """
    x, before, after = node.inputs[0], dims(node.inputs[0]), dims(node.outputs[0])
    known = [each for each in (*(before or ())[1:], *(after or ())[2:]) if isinstance(each, int)]
    if x is None or before is None or len(known) < 2 * _VOLUME + 1:
        raise refusal(node, "a pool of volumes whose sizes are dynamic; --static gives them")
    if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise refusal(node, "a pool of volumes with auto_pad, of which MNN's library has none")
    channels, depth, height, width, *result = known
    kernel, strides = (node.attributes.get_ints(name) for name in ("kernel_shape", "strides"))
    pads = node.attributes.get_ints("pads", (0,) * 2 * _VOLUME)
    given = {name: node.attributes.get_int(name) for name in _STATED if name in node.attributes}
    place, batch = Place(node), before[0]

    def viewed(value: ir.Value, *shape: int) -> ir.Value:
        return place.op("Reshape", value, place.constant(np.array([0, *shape])), shape=[batch, *shape])

    def pooled(value: ir.Value, axes: Sequence[int], shape: Sequence[int]) -> ir.Value:
        own: dict[str, Sequence[int]] = {
            "kernel_shape": [kernel[axis] if axis >= 0 else 1 for axis in axes],
            "strides": [strides[axis] if axis >= 0 else 1 for axis in axes],
            "pads": [pads[axis + end] if axis >= 0 else 0 for end in (0, _VOLUME) for axis in axes],
        }
        made = place.op(node.op_type, value, shape=[batch, *shape])
        made_by = made.producer()
        assert made_by is not None
        for name, numbers in own.items():
            made_by.attributes[name] = ir.AttrInt64s(name, numbers)
        for name, number in given.items():
            made_by.attributes[name] = ir.AttrInt64(name, number)
        return made

    images = pooled(viewed(x, channels * depth, height, width), (1, 2), (channels * depth, *result[1:]))
    columns = viewed(images, channels, depth, math.prod(result[1:]))
    place.becomes(viewed(pooled(columns, (0, -1), (channels, result[0], math.prod(result[1:]))), channels, *result))

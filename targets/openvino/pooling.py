"""MaxPool as OpenVINO computes it: sizes that are rounded up, and indices of columns."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place, dims, refusal


def write_max_pool(node: ir.Node) -> None:
    """State what ``ceil_mode`` comes to as padding, and turn indices over where ``storage_order`` is 1."""
    if node.attributes.get_int("ceil_mode", 0):
        _pad_to_result(node)
    if node.attributes.get_int("storage_order", 0):
        _count_by_columns(node)


def _pad_to_result(node: ir.Node) -> None:
    """The padding behind with which windows fit as often as ONNX says; what is padded is never the largest.

    OpenVINO counts a window that lies in the padding behind alone, too.  Source: ONNX operators, MaxPool-22.
    """
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    if before is None or after is None or node.attributes.get_string("auto_pad", "NOTSET") != "NOTSET":
        return
    count = len(before) - 2
    kernel = node.attributes.get_ints("kernel_shape")
    ones, zeros = (1,) * count, (0,) * 2 * count
    strides, dilations = (node.attributes.get_ints(name, ones) for name in ("strides", "dilations"))
    pads = list(node.attributes.get_ints("pads", zeros))
    for axis, (size, result) in enumerate(zip(before[2:], after[2:], strict=True)):
        if not isinstance(size, int) or not isinstance(result, int):
            return
        reach = (result - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        pads[count + axis] = max(pads[count + axis], reach - size - pads[axis])
        if (size + pads[axis] + pads[count + axis] - reach) // strides[axis]:
            return
    node.attributes["pads"] = ir.AttrInt64s("pads", pads)
    node.attributes["ceil_mode"] = ir.AttrInt64("ceil_mode", 0)


def _count_by_columns(node: ir.Node) -> None:
    """Look up each index, which counts along rows, in a table."""
    node.attributes["storage_order"] = ir.AttrInt64("storage_order", 0)
    indices = node.outputs[1] if len(node.outputs) > 1 else None
    if indices is None or not (indices.uses() or indices.is_graph_output()):
        return
    sizes = dims(node.inputs[0])
    fixed = [size for size in sizes or () if isinstance(size, int)]
    if sizes is None or len(fixed) < len(sizes):
        raise refusal(node, "OpenVINO counts indices along rows, and counting along columns needs sizes that are fixed")
    images, inner = math.prod(fixed[:2]), fixed[2:]
    turned = np.arange(math.prod(inner)).reshape(inner[::-1]).T.reshape(-1)
    table = (np.arange(images)[:, None] * math.prod(inner) + turned).reshape(-1)
    place = Place(node)
    place.read_through(indices, "Gather", place.constant(table), axis=0)

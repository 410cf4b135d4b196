"""MaxPool as OpenVINO computes it: sizes that are rounded up, and indices of columns."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.pool_pads import pad_to_result
from convertkit.targets.forms.writing import Place, dims, refusal


def write_max_pool(node: ir.Node) -> None:
    """State what ``ceil_mode`` comes to as padding, and turn indices over where ``storage_order`` is 1."""
    if node.attributes.get_int("ceil_mode", 0):
        pad_to_result(node)
    if node.attributes.get_int("storage_order", 0):
        _count_by_columns(node)


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

"""Windows that are larger than what they run over: sizes for which ONNX defines no result."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.inliner
from onnx.helper import get_node_attr_value

from convertkit.artifact import Artifact
from convertkit.errors import ToolError
from convertkit.onnx.mapped import read_proto
from convertkit.onnx.stored_sizes import StoredSizes
from convertkit.onnx.tolerated import as_taken
from convertkit.stage import Feed

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})


def refuse_overhang(source: Artifact, feeds: Sequence[Feed]) -> None:
    """Raise ``ToolError`` where a pool's window is larger than its input, borders included, at these inputs' sizes.

    ONNX Runtime divides towards zero and so computes one window of less than nothing, which other runtimes do not.
    """
    if source.format != "onnx" or all(isinstance(dim, int) for spec in source.inputs for dim in spec.shape[1:]):
        return
    proto = onnx.inliner.inline_local_functions(as_taken(read_proto(source.path)))
    if not any(node.op_type in _POOLS and not node.domain for node in proto.graph.node):
        return
    for shapes in {tuple((name, value.shape) for name, value in sorted(feed.items())) for feed in feeds}:
        _refuse_at(proto, dict(shapes))


def _refuse_at(proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]]) -> None:
    for value in proto.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, shapes.get(value.name, ()), strict=False):
            dim.dim_value = size
    known = StoredSizes(proto)
    for node in known.nodes:
        if node.op_type in _POOLS and not node.domain:
            _refuse(node, known.sizes(node.input[0])[2:])


def _refuse(node: onnx.NodeProto, sizes: Sequence[int]) -> None:
    given = {each.name for each in node.attribute}
    if ("auto_pad" in given and get_node_attr_value(node, "auto_pad") not in (b"NOTSET", b"VALID")) or not sizes:
        return
    if "ceil_mode" in given and get_node_attr_value(node, "ceil_mode"):
        return
    kernel = get_node_attr_value(node, "kernel_shape")
    dilations = get_node_attr_value(node, "dilations") if "dilations" in given else [1] * len(kernel)
    pads = get_node_attr_value(node, "pads") if "pads" in given else [0] * 2 * len(kernel)
    for axis, size in enumerate(sizes):
        extent, room = (kernel[axis] - 1) * dilations[axis] + 1, size + pads[axis] + pads[axis + len(kernel)]
        if size and extent > room:
            title = f"{node.name or node.output[0]} ({node.op_type})"
            raise ToolError(f"{title}: a window of {extent} over {room} elements has no result; larger sizes have")

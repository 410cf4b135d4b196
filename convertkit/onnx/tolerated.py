"""Departures from ONNX's letter that ONNX Runtime takes, and so real files have, put right.

ONNX Runtime's optimiser writes some of its operators in ONNX's own domain; converters leave out the name of a graph,
leave out the shape of an output that they do not know or write -1 for it, write operators that ONNX's checker no
longer takes, and take weights from the inputs of files whose version (IR 3) wants them there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx
from onnx import TensorProto, helper

from convertkit.onnx.experimental import write_out_experimental
from convertkit.onnx.group_norms import write_out_group_norms
from convertkit.onnx.node_order import sort_nodes

CONTRIB = "com.microsoft"
_SINCE: Mapping[str, int | None] = {"LayerNormalization": 17, "SimplifiedLayerNormalization": None}
"""Operators of ONNX Runtime in ONNX's domain, and since which opset ONNX has them itself."""
_LARGE_ENTRIES = 1 << 10
_LONG = "ai.onnx"
_WEIGHTS_ALONE = 4
"""The first IR version whose initializers need not be inputs."""


def put_right(proto: onnx.ModelProto) -> None:
    """Give operators the domain that they are known by and write out what ONNX took back, in place.

    The domain of ONNX Runtime's operators is imported where a file forgets to, as its tests and its tools do.
    A file whose weights are not inputs is of IR version 4 at least, whatever it says.
    """
    _name_shortly(proto)
    _forget_negative_sizes(proto.graph)
    proto.graph.name = proto.graph.name or "graph"
    if {each.name for each in proto.graph.initializer} - {each.name for each in proto.graph.input}:
        proto.ir_version = max(proto.ir_version, _WEIGHTS_ALONE)
    opset = max((each.version for each in proto.opset_import if not each.domain), default=1)
    own = {op for op, since in _SINCE.items() if since is None or opset < since}
    write_out_group_norms(proto, opset)
    write_out_experimental(proto, opset)
    for node in _nodes(proto.graph):
        if node.op_type in own and not node.domain:
            node.domain = CONTRIB
    uses = any(node.domain == CONTRIB for node in _nodes(proto.graph))
    if uses and all(each.domain != CONTRIB for each in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(CONTRIB, 1))


def as_taken(proto: onnx.ModelProto) -> onnx.ModelProto:
    """``proto``, of a file that has been opened before, with all that is put right there."""
    sort_nodes(proto.graph)
    put_right(proto)
    return proto


def _name_shortly(proto: onnx.ModelProto) -> None:
    """ONNX's domain by the empty name: the checker takes both names, everything behind it that one."""
    nodes = (*_nodes(proto.graph), *(inner for each in proto.functions for inner in _nodes(each)))
    for node in (*nodes, *(each for holder in (proto, *proto.functions) for each in holder.opset_import)):
        if node.domain == _LONG:
            node.domain = ""


def _forget_negative_sizes(graph: onnx.GraphProto) -> None:
    """PaddlePaddle's converter writes -1 for a size that it does not know; ONNX Runtime, too, reads it as unknown."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _forget_negative_sizes(inner)


def in_letter(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for ONNX's checker, which asks of outputs that they have a shape and of data that it can be found.

    Large weights and those outside the file are left to inputs: copying and reading them again takes several times as
    long as all that is checked.
    """
    weights = [each for each in proto.graph.initializer if _is_copied(each)]
    rest = {field.name: value for field, value in proto.graph.ListFields() if field.name != "initializer"}
    graph = onnx.GraphProto(**rest, initializer=weights)
    copy = onnx.ModelProto(
        **{field.name: value for field, value in proto.ListFields() if field.name != "graph"}, graph=graph
    )
    for value in copy.graph.output:
        if _lacks_shape(value):
            value.type.tensor_type.shape.SetInParent()
    named = {value.name for value in copy.graph.input}
    for tensor in proto.graph.initializer:
        if not _is_copied(tensor) and tensor.name not in named:
            copy.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return copy


def _is_copied(tensor: onnx.TensorProto) -> bool:
    is_inside: bool = tensor.data_location != TensorProto.EXTERNAL
    return is_inside and math.prod(tensor.dims) <= _LARGE_ENTRIES


def _lacks_shape(value: onnx.ValueInfoProto) -> bool:
    kind = value.type
    return kind.HasField("tensor_type") and kind.tensor_type.elem_type != 0 and not kind.tensor_type.HasField("shape")


def _nodes(graph: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)

"""Shapes inside the bodies of If, Loop and Scan, which ONNX's inference computes and does not record."""

from __future__ import annotations

import onnx
import onnx_ir as ir

_SMALL = 1 << 10


def infer_bodies(graph: ir.Graph, opsets: dict[str, int], ir_version: int) -> None:
    """Set shapes and types of all values in inner graphs, outer ones first, in place."""
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                body = attribute.as_graph()
                _infer(body, opsets, ir_version)
                infer_bodies(body, opsets, ir_version)


def _infer(body: ir.Graph, opsets: dict[str, int], ir_version: int) -> None:
    for node in body:
        for value in node.outputs:
            if value.shape is not None and not value.shape.is_static():
                value.shape = None
    proto = ir.to_proto(body)
    assert isinstance(proto, onnx.GraphProto)
    del proto.value_info[:]
    for output in proto.output:
        output.type.tensor_type.ClearField("shape")
    names = {value.name for value in body.inputs} | set(body.initializers)
    for value in _outer(body):
        if value.name in names:
            continue
        names.add(value.name)
        if value.const_value is not None and value.const_value.size <= _SMALL:
            proto.initializer.append(ir.to_proto(value.const_value))
        elif value.dtype is not None:
            proto.input.append(ir.to_proto(value))
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = onnx.helper.make_model(proto, opset_imports=imports, ir_version=ir_version)
    found = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    known = {info.name: info for info in (*found.value_info, *found.output)}
    for node in body:
        for value in node.outputs:
            info = known.get(str(value.name))
            if info is not None and info.type.HasField("tensor_type"):
                _learn(value, info.type.tensor_type)


def _outer(body: ir.Graph) -> list[ir.Value]:
    """Values that nodes of the body, or of bodies in it, take from outside."""
    inside = {value for node in body.all_nodes() for value in node.outputs} | set(body.inputs)
    return [value for node in body.all_nodes() for value in node.inputs if value is not None and value not in inside]


def _learn(value: ir.Value, kind: onnx.TypeProto.Tensor) -> None:
    if value.dtype is None and kind.elem_type:
        value.dtype = ir.DataType(kind.elem_type)
    if value.shape is None and kind.HasField("shape"):
        value.shape = ir.Shape(
            [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
        )

"""Shapes inside the bodies of If, Loop and Scan, which ONNX's inference computes and does not record."""

from __future__ import annotations

import onnx
import onnx_ir as ir

_SMALL = 1 << 10


def infer_bodies(graph: ir.Graph, opsets: dict[str, int], ir_version: int) -> bool:
    """Set shapes and types of all values in inner graphs, outer ones first, in place.

    Returns whether a node's own results became known by that: then the graph around it is to be inferred again.
    """
    learned = False
    for node in graph:
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                body = attribute.as_graph()
                _infer_turns(node, body, opsets, ir_version)
                infer_bodies(body, opsets, ir_version)
        if node.domain == "" and node.op_type in ("If", "Loop"):
            learned |= _learn_results(node)
    return learned


def _infer_turns(node: ir.Node, body: ir.Graph, opsets: dict[str, int], ir_version: int) -> None:
    """A carried value of a Loop keeps its first shape if one turn gives it back: then so does every other turn."""
    seeded = []
    if node.op_type == "Loop":
        for place, value in enumerate(body.inputs[2:], 2):
            first = node.inputs[place]
            if value.shape is None and first is not None and first.shape is not None and first.shape.is_static():
                value.shape = first.shape
                seeded.append((value, body.outputs[place - 1]))
    _infer(body, opsets, ir_version)
    if all(value.shape == result.shape for value, result in seeded):
        return
    for value, _ in seeded:
        value.shape = None
    for inner in body:
        for value in inner.outputs:
            value.shape = None
    _infer(body, opsets, ir_version)


def _learn_results(node: ir.Node) -> bool:
    """Shapes of an If whose branches agree, and of what a Loop carries unchanged in shape."""
    bodies = [
        attribute.as_graph() for attribute in node.attributes.values() if attribute.type == ir.AttributeType.GRAPH
    ]
    learned = False
    for place, value in enumerate(node.outputs):
        if value.shape is not None:
            continue
        if node.op_type == "If":
            shapes = [body.outputs[place].shape for body in bodies]
        elif 2 + place < len(node.inputs):
            first = node.inputs[2 + place]
            shapes = [bodies[0].outputs[1 + place].shape, None if first is None else first.shape]
        else:
            continue
        if shapes[0] is not None and shapes[0].is_static() and all(shape == shapes[0] for shape in shapes):
            value.shape = shapes[0]
            learned = True
    return learned


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
            constant = ir.to_proto(value.const_value)
            constant.name = str(value.name)  # a tensor has a name of its own, which may be none
            proto.initializer.append(constant)
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
        value.type = ir.TensorType(ir.DataType(kind.elem_type))
    if value.shape is None and kind.HasField("shape"):
        value.shape = ir.Shape(
            [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
        )

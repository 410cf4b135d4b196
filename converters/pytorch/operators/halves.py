"""Half-precision arithmetic done in float32.

ONNX Runtime has no bfloat16 kernels on a CPU and TFLite has none for either half type, while torch's own
kernels add up in float32 and round results.  Weights are widened exactly.  Inputs and outputs of float16 keep
their type; bfloat16, which numpy and the runtimes cannot pass in, becomes float32 there too.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.stage import FLOAT32, Tolerance

_RELATIVE = {ir.DataType.BFLOAT16: 2.0**-6, ir.DataType.FLOAT16: 2.0**-9}
"""A few roundings of the type: its unit in the last place is half of this."""


def tolerance_of(model: ir.Model) -> Tolerance:
    """How far a float32 computation may differ from the model's own: more where that rounds to a half type."""
    used = {value.dtype for value in _values(model)}
    for dtype, relative in _RELATIVE.items():
        if dtype in used:
            return Tolerance(f"the source rounds to {dtype.name.lower()}, the artifact computes in float32", relative)
    return FLOAT32


def widen(model: ir.Model) -> None:
    """Replace half types by float32 in place, between the model's inputs and outputs."""
    graph = model.graph
    narrow = ir.DataType.FLOAT16
    outputs = [(place, str(value.name)) for place, value in enumerate(graph.outputs) if value.dtype == narrow]
    inputs = [value for value in graph.inputs if value.dtype == narrow and value.name not in graph.initializers]
    for value in set(_values(model)) - set(inputs):
        _widen_value(value)
    for node in list(graph.all_nodes()):
        _widen_attributes(node)
    for value in inputs:
        cast = _cast(value, ir.DataType.FLOAT, f"{value.name}_float32")
        first = next(iter(graph), None)
        ir.convenience.replace_all_uses_with(value, cast.outputs[0], replace_graph_outputs=True)
        cast.replace_input_with(0, value)
        graph.append(cast) if first is None else graph.insert_before(first, cast)
    for place, name in outputs:
        wide = graph.outputs[place]
        wide.name = f"{name}_float32_result"
        cast = _cast(wide, narrow, name)
        graph.append(cast)
        graph.outputs[place] = cast.outputs[0]


def _values(model: ir.Model) -> list[ir.Value]:
    found = [*model.graph.inputs, *model.graph.initializers.values()]
    for node in model.graph.all_nodes():
        found += node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found += [*attribute.as_graph().inputs, *attribute.as_graph().initializers.values()]
    return found


def _widen_value(value: ir.Value) -> None:
    if value.dtype in _RELATIVE:
        value.type = ir.TensorType(ir.DataType.FLOAT)
    if value.const_value is not None and value.const_value.dtype in _RELATIVE:
        value.const_value = _widened(value.const_value)


def _widened(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    return ir.Tensor(tensor.numpy().astype(np.float32), name=tensor.name)


def _widen_attributes(node: ir.Node) -> None:
    for name, attribute in list(node.attributes.items()):
        if attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in _RELATIVE:
            node.attributes[name] = ir.AttrTensor(name, _widened(attribute.as_tensor()))
        elif name in ("to", "dtype") and attribute.type == ir.AttributeType.INT and attribute.as_int() in _RELATIVE:
            node.attributes[name] = ir.AttrInt64(name, int(ir.DataType.FLOAT))


def _cast(value: ir.Value, to: ir.DataType, name: str) -> ir.Node:
    node = ir.node("Cast", [value], {"to": int(to)}, name=f"{name}_cast")
    result = node.outputs[0]
    result.name, result.shape, result.type = name, value.shape, ir.TensorType(to)
    return node

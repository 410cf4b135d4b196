"""A transpose in front of Flatten and a fully connected layer moves into the layer's weights.

before:  x:NHWC → Transpose(0,3,1,2) → Reshape(N, C·H·W) → Relu → Gemm(w) → y
after:   x:NHWC → Reshape(N, H·W·C) → Relu → Gemm(rows of w in that order) → y

Leaves a flattened tensor that anything else uses too.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, only_user
from convertkit.targets.forms.edits import new_constant, typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.edits import is_weight
from convertkit.targets.tflite.passes.part import Part

_DENSE = frozenset({("", "Gemm"), ("", "MatMul"), (OWN, "Dense")})
_UNARY = frozenset(
    {
        ("", name)
        for name in [
            "Relu",
            "Clip",
            "Sigmoid",
            "Tanh",
            "LeakyRelu",
            "Identity",
            "Elu",
            "HardSwish",
            "Gelu",
            "Cast",
            "Dropout",
        ]
    }
    | {(OWN, "Quantize"), (OWN, "Dequantize")}
)


def absorb_flatten(part: Part) -> None:
    """Remove such transposes in place."""
    for node in list(part.graph):
        if node.op_type == "Transpose" and node.domain == "":
            order = _order(node)
            user = only_user(node.outputs[0])
            layers = None if order is None or user is None else _layers(user.outputs[0], len(order))
            if layers and order is not None and user is not None:
                for layer in layers:
                    _reorder(part.graph, layer, order)
                user.replace_input_with(0, node.inputs[0])
                part.graph.remove(node, safe=True)


def _order(node: ir.Node) -> np.ndarray | None:
    """Where each element of the flattened tensor comes from, where a reshape to (N, elements) follows."""
    user = only_user(node.outputs[0])
    perm = node.attributes.get("perm")
    shape = node.outputs[0].shape
    if user is None or perm is None or shape is None or user.op_type not in ("Reshape", "Flatten") or user.domain != "":
        return None
    sizes = list(shape)[1:]
    result = user.outputs[0].shape
    if next(iter(perm.value)) != 0 or not all(isinstance(size, int) for size in sizes) or result is None:
        return None
    count = math.prod(int(size) for size in sizes if isinstance(size, int))
    if len(result) != 2 or result[1] != count or result[0] != shape[0]:
        return None
    back = np.argsort(np.array(perm.value)[1:] - 1)
    numbers: np.ndarray = np.arange(count).reshape([int(size) for size in sizes if isinstance(size, int)])
    return numbers.transpose(back).reshape(-1)


def _layers(value: ir.Value, count: int) -> list[ir.Node] | None:
    """The layers that all paths from ``value`` end in, None where one ends elsewhere."""
    if value.is_graph_output() or not value.uses():
        return None
    found: list[ir.Node] = []
    for use in value.uses():
        kind = (use.node.domain, use.node.op_type)
        if kind in _DENSE and use.idx == 0 and _takes(use.node, count):
            found.append(use.node)
        elif kind in _UNARY and use.idx == 0:
            params = quantization_of(use.node.outputs[0]) or quantization_of(value)
            inner = None if params is not None and params.axis is not None else _layers(use.node.outputs[0], count)
            if inner is None:
                return None
            found += inner
        else:
            return None
    return found


def _takes(node: ir.Node, count: int) -> bool:
    weight = node.inputs[1]
    transposed = node.attributes.get("transA")
    if weight is None or weight.shape is None or len(weight.shape) != 2 or not is_weight(weight):
        return False
    return not (transposed is not None and transposed.value) and weight.shape[_axis(node)] == count


def _axis(node: ir.Node) -> int:
    """The weight's axis along which inputs lie."""
    transposed = node.attributes.get("transB")
    return 1 if transposed is not None and transposed.value else 0


def _reorder(graph: ir.Graph, node: ir.Node, order: np.ndarray) -> None:
    value = node.inputs[1]
    assert value is not None
    array = array_of(value)
    if array is not None:
        node.replace_input_with(1, _reordered(graph, value, array, order, _axis(node)))
        return
    widened = value.producer()
    assert widened is not None
    inner = widened.inputs[0]
    stored = array_of(inner)
    assert inner is not None
    assert stored is not None
    attributes = list(widened.attributes.values())
    made = ir.node(widened.op_type, [_reordered(graph, inner, stored, order, _axis(node))], domain=widened.domain)
    made.attributes.update({each.name: each for each in attributes})
    set_source(made, widened)
    made.name = f"{widened.name}/reordered"
    made.outputs[0].name = f"{value.name}/reordered"
    typed(made.outputs[0], value.shape, value.dtype)
    graph.insert_before(node, made)
    node.replace_input_with(1, made.outputs[0])


def _reordered(graph: ir.Graph, value: ir.Value, array: np.ndarray, order: np.ndarray, axis: int) -> ir.Value:
    made = new_constant(graph, f"{value.name}/reordered", np.take(array, order, axis))
    params = quantization_of(value)
    if params is not None:
        set_quantization(made, params)
    return made

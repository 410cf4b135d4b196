"""Integer weights that float operators read, in a form that ONNX Runtime makes real once and not at each call.

It folds constants when it loads a model, but leaves DequantizeLinear alone, so that it can fuse it.  A float operator
behind one therefore waits at every call until its whole weight is real: MobileNetV3 small takes 2.7 times as long.
Source: ONNX Runtime, ``ConstantFolding`` and its ``skip_dequantize_linear``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.profile import RECURRENT

_BLOCKWISE = "block_size"
_CLAMPS = frozenset({"Relu", "Clip"})


def make_foldable(model: ir.Model, *, products: bool) -> int:
    """``DequantizeLinear(int8 constant)`` as ``Cast * scale``, in place, where only float operators read it.

    ``products`` includes weights of MatMul, for which ONNX Runtime has a kernel that reads blocks of integers.
    Returns how many there were.  The numbers are equal, bit for bit.
    """
    found = [
        node
        for node in model.graph
        if _is_weight(node) and all(_computes_in_float(r, products) for r in _readers(node))
    ]
    for node in found:
        _rewrite(model.graph, node)
    return len(found)


def _readers(node: ir.Node) -> list[ir.Node]:
    return [use.node for use in node.outputs[0].uses()]


def _is_weight(node: ir.Node) -> bool:
    """Whether the node makes an int8 constant real that has more than one number, without a zero point or blocks."""
    if node.op_type != "DequantizeLinear" or node.domain or _BLOCKWISE in node.attributes:
        return False
    if node.outputs[0].is_graph_output() or not all(value is None or value.is_initializer() for value in node.inputs):
        return False
    integers = node.inputs[0]
    if integers is None or integers.const_value is None or integers.dtype != ir.DataType.INT8 or not integers.shape:
        return False
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    return zero is None or (zero.const_value is not None and not zero.const_value.numpy().any())


def _computes_in_float(node: ir.Node, products: bool) -> bool:
    """Whether ONNX Runtime has no integer kernel for a node and what surrounds it."""
    if node.op_type == "MatMul" and not products:
        return False
    if node.op_type in RECURRENT:
        return True
    data = node.inputs[0]
    producer = None if data is None else data.producer()
    if producer is None or producer.op_type != "DequantizeLinear" or _is_weight(producer):
        return True
    # Gemm and MatMul can write float; the others need integers behind them, too.
    return node.op_type not in ("Gemm", "MatMul") and not any(_quantizes(reader) for reader in _readers(node))


def _quantizes(node: ir.Node) -> bool:
    clamped = node.op_type in _CLAMPS and any(reader.op_type == "QuantizeLinear" for reader in _readers(node))
    return node.op_type == "QuantizeLinear" or clamped


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    integers, scale, real = node.inputs[0], node.inputs[1], node.outputs[0]
    assert integers is not None
    assert integers.shape is not None
    assert scale is not None
    assert scale.const_value is not None
    array = scale.const_value.numpy()
    axis = node.attributes.get_int("axis", 1) % len(integers.shape)
    shape = [array.size if place == axis else 1 for place in range(len(integers.shape))] if array.ndim else []
    shaped = _constant(graph, f"{scale.name}_shaped", array.reshape(shape))
    cast = _made("Cast", [integers], [ir.AttrInt64("to", int(ir.DataType.FLOAT))], f"{real.name}_whole", real)
    product = _made("Mul", [cast.outputs[0], shaped], [], f"{real.name}_real", real)
    graph.insert_before(node, (cast, product))
    ir.convenience.replace_all_uses_with(real, product.outputs[0])
    constants = dict.fromkeys(value for value in node.inputs if value is not None)
    graph.remove(node, safe=True)
    for value in constants:
        if value.name is not None and not value.uses():
            del graph.initializers[value.name]


def _made(op: str, inputs: list[ir.Value | None], attributes: list[ir.Attr], name: str, like: ir.Value) -> ir.Node:
    node = ir.Node("", op, inputs, attributes, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].shape, node.outputs[0].dtype = name, like.shape, ir.DataType.FLOAT
    return node


def _constant(graph: ir.Graph, name: str, array: np.typing.NDArray[np.generic]) -> ir.Value:
    while name in graph.initializers:
        name += "_"
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    value.dtype, value.shape = ir.DataType.from_numpy(array.dtype), ir.Shape(array.shape)
    graph.register_initializer(value)
    return value

"""Integer weights that float operators read, in a form that ONNX Runtime makes real once and not at each call.

It folds constants when it loads a model, but leaves DequantizeLinear alone, so that it can fuse it.  A float operator
behind one therefore waits at every call until its whole weight is real: MobileNetV3 small takes 2.7 times as long.
Source: ONNX Runtime, ``ConstantFolding`` and its ``skip_dequantize_linear``.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.profile import RECURRENT
from convertkit.targets.onnxruntime.stored import Stored, array_of, is_large, readers, remove, rows, stored_weight

_CLAMPS = frozenset({"Relu", "Clip"})


def make_foldable(model: ir.Model) -> int:
    """``DequantizeLinear(constant)`` as ``Cast * scale``, in place, where only float operators read it.

    A product keeps its form where ONNX Runtime's kernel that reads integers from memory (MatMulNBits) is the better
    one, which takes no transposed weight of a Gemm: that is turned.  Returns how many became ``Cast * scale``.  The
    numbers are equal, bit for bit.
    """
    found = [(node, weight) for node in model.graph if (weight := stored_weight(node)) is not None]
    folded = [(node, weight) for node, weight in found if all(_computes_in_float(r, weight) for r in readers(node))]
    for node, weight in folded:
        _rewrite(model.graph, node, weight)
    for node, weight in found:
        for reader in readers(node):
            if _is_transposed(reader) and _is_plain_gemm(reader) and _is_read_whole(reader, weight):
                _untranspose(model.graph, reader, weight)
    return len(folded)


def _computes_in_float(node: ir.Node, weight: Stored) -> bool:
    """Whether ONNX Runtime has no better kernel for a node and what surrounds it."""
    if (node.op_type == "MatMul" or _is_plain_gemm(node)) and _is_read_whole(node, weight):
        return False
    if node.op_type in RECURRENT:
        return True
    data = node.inputs[0]
    producer = None if data is None else data.producer()
    if producer is None or producer.op_type != "DequantizeLinear" or stored_weight(producer) is not None:
        return True
    # Gemm and MatMul can write float; the others need integers behind them, too.
    return node.op_type not in ("Gemm", "MatMul") and not any(_quantizes(reader) for reader in readers(node))


def _is_read_whole(node: ir.Node, weight: Stored) -> bool:
    """Whether a product waits for its weight more than it computes: one row, as decoders have.

    How many rows a dynamic size stands for nobody knows; at 4 bits the model may be one that is too large in float.  A
    Gemm of 8 bits becomes float: for many rows, which a dynamic batch may be, that is faster.
    """
    data = node.inputs[0]
    count = None if data is None else rows(data)
    if _becomes_gemm(node) or (node.op_type == "Gemm" and weight.integers.dtype != ir.DataType.INT4):
        return False
    if count is None:
        return weight.integers.dtype == ir.DataType.INT4
    return count == 1 and is_large(weight)


def _is_plain_gemm(node: ir.Node) -> bool:
    """Whether MatMulNBits can do what a Gemm does, once its weight is not transposed: ``x W + one row``.

    Source: ONNX Runtime, ``QDQ::DQMatMulNodeGroupSelector``.
    """
    if node.op_type != "Gemm" or node.domain or node.attributes.get_int("transA", 0) != 0:
        return False
    if any(node.attributes.get_float(name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return False
    _, weight, bias = (*node.inputs, None)[:3]
    maker = None if weight is None else weight.producer()
    if maker is None or stored_weight(maker) is None or len(readers(maker)) > 1:
        return False
    return bias is None or (bias.const_value is not None and bias.shape is not None and len(bias.shape) == 1)


def _is_transposed(node: ir.Node) -> bool:
    return node.attributes.get_int("transB", 0) == 1


def _untranspose(graph: ir.Graph, node: ir.Node, weight: Stored) -> None:
    """The other order of a Gemm's weight, which no other node reads."""
    maker = node.inputs[1].producer() if node.inputs[1] is not None else None
    assert maker is not None
    for place, value in enumerate((weight.integers, weight.scale)):
        array = array_of(value)
        if array.ndim == 2:
            turned = add_constant(graph, f"{value.name}_transposed", np.ascontiguousarray(array.T), separator="")
            maker.replace_input_with(place, turned)
    if len(maker.inputs) > 2:
        maker.resize_inputs(2)  # a zero point, which is zero
    maker.attributes["axis"] = ir.AttrInt64("axis", 1 - weight.axis)
    maker.outputs[0].type = ir.TensorType(weight.scale.dtype or ir.DataType.FLOAT)
    maker.outputs[0].shape = ir.Shape(weight.shape[::-1])
    del node.attributes["transB"]
    drop_unused(graph)


def _becomes_gemm(node: ir.Node) -> bool:
    """Whether ONNX Runtime joins a product and the Add behind it before it looks for DequantizeLinear.

    Behind a Gemm whose addend is not one row of numbers there is no MatMulNBits: the weight is made real at each call.
    Source: ONNX Runtime, ``MatMulAddFusion`` and ``QDQ::DQMatMulToMatMulNBitsAction``.
    """
    users, data = readers(node), node.inputs[0]
    if len(users) != 1 or users[0].op_type != "Add" or node.outputs[0].is_graph_output():
        return False
    other = next((value for value in users[0].inputs if value is not node.outputs[0]), None)
    matrices = (data, other)
    return all(value is not None and value.shape is not None and len(value.shape) == 2 for value in matrices)


def _quantizes(node: ir.Node) -> bool:
    clamped = node.op_type in _CLAMPS and any(reader.op_type == "QuantizeLinear" for reader in readers(node))
    return node.op_type == "QuantizeLinear" or clamped


def _rewrite(graph: ir.Graph, node: ir.Node, weight: Stored) -> None:
    real = node.outputs[0]
    cast = _made("Cast", [weight.integers], f"{real.name}_whole", [ir.AttrInt64("to", int(ir.DataType.FLOAT))])
    steps, shape = [cast], weight.shape
    if weight.block:
        # One axis as blocks and what is in them, so that a scale per block multiplies it.
        parts = (*shape[: weight.axis], -1, weight.block, *shape[weight.axis + 1 :])
        steps.append(_reshaped(graph, cast.outputs[0], f"{real.name}_blocks", parts))
        scales = np.expand_dims(weight.scales, weight.axis + 1)
    else:
        scales = weight.scales
        scales = (
            scales.reshape([-1 if place == weight.axis else 1 for place in range(len(shape))])
            if scales.ndim
            else scales
        )
    shaped = add_constant(graph, f"{weight.scale.name}_shaped", scales, separator="")
    steps.append(_made("Mul", [steps[-1].outputs[0], shaped], f"{real.name}_real"))
    if weight.block:
        steps.append(_reshaped(graph, steps[-1].outputs[0], f"{real.name}_whole_real", shape))
    steps[0].outputs[0].shape = steps[-1].outputs[0].shape = ir.Shape(shape)
    graph.insert_before(node, steps)
    ir.convenience.replace_all_uses_with(real, steps[-1].outputs[0])
    remove(graph, node)


def _reshaped(graph: ir.Graph, value: ir.Value, name: str, shape: tuple[int, ...]) -> ir.Node:
    return _made(
        "Reshape", [value, add_constant(graph, f"{name}_shape", np.array(shape, np.int64), separator="")], name
    )


def _made(
    op: str, inputs: list[ir.Value | None], name: str, attributes: tuple[ir.Attr, ...] | list[ir.Attr] = ()
) -> ir.Node:
    node = ir.Node("", op, inputs, attributes, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].type = name, ir.TensorType(ir.DataType.FLOAT)
    return node

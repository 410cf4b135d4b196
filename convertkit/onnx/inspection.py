"""The operators of an ONNX file: which compute in integers is read from the pairs around them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.onnx.load import load_own
from convertkit.operators import ON_THE_FLY, Operator

_CONVERSIONS = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
_INTEGER_PRODUCTS = frozenset({"MatMulInteger", "ConvInteger"})
_STATIC_PRODUCTS = frozenset({"QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_FLOATS = {ir.DataType.FLOAT: "float32", ir.DataType.FLOAT16: "float16", ir.DataType.DOUBLE: "float64",
           ir.DataType.BFLOAT16: "bfloat16"}  # fmt: skip
_MOVES = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Cast", "Mul", "Identity"})


def operators(path: Path) -> tuple[Operator, ...]:
    """Every node of the graph and of its bodies, in the file's order; conversions and constants count as such."""
    model = with_shapes(load_own(path))
    return tuple(_operator(node) for node in model.graph.all_nodes() if node.op_type != "Constant")


def with_shapes(model: ir.Model) -> ir.Model:
    """``model``, whose values have types and shapes as far as these can be inferred."""
    if any(value.dtype is None or value.shape is None for node in model.graph for value in node.outputs):
        ShapeInferencePass()(model)
    return model


def _operator(node: ir.Node) -> Operator:
    inputs = [value for value in node.inputs if value is not None]
    constants = [value for value in inputs if value.const_value is not None]
    return Operator(
        name=str(node.outputs[0].name) if node.outputs else str(node.name),
        kind=node.op_type,
        precision=_precision(node),
        weight_bytes=sum(value.const_value.nbytes for value in constants if value.const_value is not None),
        macs=macs_of(node),
    )


def _precision(node: ir.Node) -> str:
    if node.op_type in _INTEGER_PRODUCTS:
        return ON_THE_FLY
    if node.op_type in _STATIC_PRODUCTS:
        return "int8"
    if node.op_type in _CONVERSIONS:
        constant = node.inputs[0] is not None and node.inputs[0].const_value is not None
        return f"{_stored(node) or 'int8'} weights" if constant else "float32"
    real = [value.dtype for value in (*node.inputs, *node.outputs) if value is not None and value.dtype in _FLOATS]
    if not real:
        return ""
    data, stored = _sides(node)
    if data and all(each is not None and each.op_type == "DequantizeLinear" for each in data) and _all_quantized(node):
        widths = {_stored(each) for each in data if each is not None}
        return "float8" if "float8" in widths else "int16x8" if "int16" in widths else "int8"
    if stored:
        return f"{stored} weights"
    return _FLOATS[real[-1]]


def _sides(node: ir.Node) -> tuple[list[ir.Node | None], str]:
    """What makes the data that a node reads, and the integers that its constants are stored as, if any."""
    data: list[ir.Node | None] = []
    stored = ""
    for value in node.inputs:
        if value is None or value.dtype not in _FLOATS:
            continue
        maker = _behind_moves(value)
        if maker is not None and maker.inputs and _constant_integers(maker):
            stored = _stored(maker)
        elif value.const_value is None:
            data.append(value.producer())
    return data, stored


def _behind_moves(value: ir.Value) -> ir.Node | None:
    """The node that makes a constant real, seen through what only moves, casts or scales it."""
    node = value.producer()
    while node is not None and node.op_type in _MOVES and not _constant_integers(node):
        others = [each for each in node.inputs if each is not None and each.const_value is None]
        if len(others) != 1:
            return None
        node = others[0].producer()
    return node


def _constant_integers(node: ir.Node) -> bool:
    first = node.inputs[0] if node.inputs else None
    return (
        node.op_type in ("DequantizeLinear", "Cast")
        and first is not None
        and first.const_value is not None
        and (first.dtype in _INTEGERS)
    )


_INTEGERS = {ir.DataType.INT8: "int8", ir.DataType.UINT8: "int8", ir.DataType.INT4: "int4", ir.DataType.UINT4: "int4",
             ir.DataType.INT16: "int16", ir.DataType.UINT16: "int16", ir.DataType.FLOAT8E4M3FN: "float8"}  # fmt: skip


def _stored(node: ir.Node) -> str:
    first = node.inputs[0]
    return "" if first is None or first.dtype is None else _INTEGERS.get(first.dtype, "")


def _all_quantized(node: ir.Node) -> bool:
    """Whether constants beside the data are integers, too: a float weight makes a float product."""
    return all(
        value is None or value.dtype not in _FLOATS or value.const_value is None or value.const_value.size <= 1
        for value in node.inputs[:2]  # a bias may be float: runtimes round it to their sums
    )


def macs_of(node: ir.Node) -> int:
    """Multiply-adds of one call with every dynamic dimension 1; 0 for what is not a product."""
    inputs = [() if value is None else _sizes(value) for value in node.inputs]
    output = _sizes(node.outputs[0]) if node.outputs else ()
    if node.op_type in ("Conv", "ConvInteger", "QLinearConv") and len(inputs) > 1:
        weight = inputs[3] if node.op_type == "QLinearConv" else inputs[1]
        return math.prod(output) * math.prod(weight[1:])
    if node.op_type == "ConvTranspose":
        return math.prod(inputs[0]) * math.prod(inputs[1][1:])
    if node.op_type in ("MatMul", "MatMulInteger", "Gemm"):
        depth = inputs[0][-1] if inputs[0] else 1
        if node.op_type == "Gemm" and node.attributes.get_int("transA", 0) == 1 and inputs[0]:
            depth = inputs[0][0]
        return math.prod(output) * depth
    if node.op_type in _RECURRENT:
        return math.prod(inputs[0][:2]) * (math.prod(inputs[1]) + math.prod(inputs[2]))
    return 0


def _sizes(value: ir.Value) -> tuple[int, ...]:
    """A shape with 1 for what is dynamic; empty where it is not known."""
    return _numbers(value.shape) if value.shape is not None else ()


def _numbers(shape: Iterable[object]) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else 1 for size in shape)

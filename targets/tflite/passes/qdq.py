"""QuantizeLinear and DequantizeLinear of any opset become Quantize and Dequantize of our own domain.

The parameters become annotations of the integer values, and unsigned bytes become signed ones: TFLite's
kernels are signed, and ``u8 - 128`` with the zero point moved along is the same real number.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.edit import array_of
from convertkit.targets.forms.edits import insert_before, new_constant
from convertkit.targets.tflite.annotations import OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.tensor import QuantParams

_HALF = 128
_INTEGERS = {
    ir.DataType.INT4: "int4",
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "uint8",
    ir.DataType.INT16: "int16",
    ir.DataType.INT32: "int32",
}
_MOVES = frozenset(
    [
        "Reshape",
        "Transpose",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Identity",
        "MaxPool",
        "Concat",
        "Slice",
        "Split",
        "Gather",
    ]
)

_COMPUTES = """Cast Add Sub Mul Div Mod Pow Neg Abs Sign Clip Relu Sum BitShift BitwiseAnd BitwiseOr BitwiseXor
BitwiseNot ReduceSum ReduceProd CumSum MatMul MatMulInteger ConvInteger Einsum"""
"""Operators whose integers are plain numbers in ONNX: a kernel that knew a scale would compute with the reals."""


def mark_quantization(part: Part) -> None:
    """Rewrite every Q and DQ with constant, unblocked parameters, in place; others stay for decomposition."""
    graph = part.graph
    for node in list(graph):
        if node.op_type == "QuantizeLinear" and node.domain == "":
            _quantize(node)
    for node in list(graph):
        if node.op_type == "DequantizeLinear" and node.domain == "":
            _dequantize(graph, node)
    _through_moves(graph)


def _quantize(node: ir.Node) -> None:
    result = node.outputs[0]
    params = _params(node, result.dtype)
    kind = result.dtype
    if params is None or not _has_kernels(params, kind) or _is_channelwise_activation(params, node.inputs[0]):
        return
    if kind == ir.DataType.UINT8 and not result.is_graph_output() and _feeds_only_dequantize(result):
        params, kind = _signed(params), ir.DataType.INT8
        result.type = ir.TensorType(kind)
    assert kind is not None, "it has kernels"
    set_quantization(result, params)
    _become(node, "Quantize", {"to": _INTEGERS[kind]})


def _dequantize(graph: ir.Graph, node: ir.Node) -> None:
    source = node.inputs[0]
    assert source is not None
    kind = source.dtype
    producer = source.producer()
    if kind == ir.DataType.INT8 and producer is not None and producer.domain == OWN:
        kind = node.inputs[2].dtype if len(node.inputs) > 2 and node.inputs[2] is not None else kind
    params = _params(node, kind)
    if params is None or not _has_kernels(params, kind) or _is_channelwise_activation(params, source):
        return
    if producer is not None and producer.domain == "" and producer.op_type in _COMPUTES.split():
        return
    if kind == ir.DataType.UINT8 and source.dtype == ir.DataType.INT8:
        params = _signed(params)
    elif kind == ir.DataType.UINT8:
        source, params = _as_signed(graph, node, source, params)
    known = quantization_of(source)
    if known is not None and known != params:
        source = _relabelled(graph, source)
    set_quantization(source, params)
    node.replace_input_with(0, source)
    _become(node, "Dequantize", {})


def _has_kernels(params: QuantParams, kind: ir.DataType | None) -> bool:
    """Whether TFLite has such integers: its int16 kernels know no zero point, arithmetic does."""
    return kind in _INTEGERS and not (kind == ir.DataType.INT16 and any(params.zero_point))


def _is_channelwise_activation(params: QuantParams, value: ir.Value | None) -> bool:
    """Whether computed values have scales along an axis, which TFLite's tensors cannot say: arithmetic does it."""
    if params.axis is None or value is None or value.const_value is not None:
        return False
    producer = value.producer()
    return producer is None or producer.domain != OWN


def _params(node: ir.Node, kind: ir.DataType | None) -> QuantParams | None:
    """Scale and zero point, where constant and not blocked."""
    scale = array_of(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    points = array_of(given)
    if scale is None or (given is not None and points is None) or ("block_size" in node.attributes and scale.ndim > 1):
        return None
    if scale.ndim > 1 or scale.dtype != np.float32:
        return None
    axis = node.attributes.get("axis")
    place = int(axis.value) if axis is not None else 1
    scales = tuple(float(item) for item in scale.reshape(-1))
    if points is None:
        zeros: tuple[int, ...] = (0,) * len(scales)
    else:
        zeros = tuple(int(item) for item in points.reshape(-1))
    value = node.inputs[0]
    if len(scales) == 1:
        return QuantParams(scales, zeros)
    rank = len(value.shape) if value is not None and value.shape is not None else None
    if rank is None:
        return None
    return QuantParams(scales, zeros, place % rank)


def _signed(params: QuantParams) -> QuantParams:
    return QuantParams(params.scale, tuple(point - _HALF for point in params.zero_point), params.axis)


def _as_signed(graph: ir.Graph, node: ir.Node, source: ir.Value, params: QuantParams) -> tuple[ir.Value, QuantParams]:
    """A signed copy of an unsigned constant, or an exact requantization of a computed value."""
    signed = _signed(params)
    array = array_of(source)
    if array is not None:
        moved = (array.astype(np.int16) - _HALF).astype(np.int8)
        return new_constant(graph, f"{source.name}/signed", moved), signed
    set_quantization(source, params)
    made = ir.node("Quantize", [source], {"to": "int8"}, domain=OWN, name=f"{node.name}/signed")
    result = insert_before(node, made, like=source)
    result.name, result.type = f"{source.name}/signed", ir.TensorType(ir.DataType.INT8)
    return result, signed


def _relabelled(graph: ir.Graph, source: ir.Value) -> ir.Value:
    array = array_of(source)
    if array is None:
        raise Unsupported(f"{source.name} is read with two different scales")
    return new_constant(graph, f"{source.name}/again", array)


def _feeds_only_dequantize(value: ir.Value) -> bool:
    return all(use.node.op_type == "DequantizeLinear" and use.idx == 0 for use in value.uses())


def _become(node: ir.Node, name: str, attributes: dict[str, str]) -> None:
    node.op_type, node.domain = name, OWN
    node.resize_inputs(1)
    node.attributes.clear()
    for key, value in attributes.items():
        node.attributes[key] = ir.AttrString(key, value)


def _through_moves(graph: ir.Graph) -> None:
    """Integers that are only moved between Q and DQ keep their meaning."""
    for node in graph:
        first = node.inputs[0] if node.inputs else None
        params = None if first is None else quantization_of(first)
        if first is None or params is None or node.op_type not in _MOVES or node.domain != "":
            continue
        for value in node.outputs:
            known = quantization_of(value)
            if known is None and value.dtype == first.dtype:
                set_quantization(value, params)
            elif known is not None and known != params:
                raise Unsupported(f"{value.name} is read with another scale than it was written with")
    for node in reversed(list(graph)):
        first = node.inputs[0] if node.inputs else None
        params = quantization_of(node.outputs[0]) if node.outputs else None
        if first is not None and params is not None and node.op_type in _MOVES and node.domain == "":
            _mark_source(first, node.outputs[0], params)


def _mark_source(source: ir.Value, moved: ir.Value, params: QuantParams) -> None:
    if quantization_of(source) is None and source.dtype == moved.dtype and params.axis is None:
        set_quantization(source, params)

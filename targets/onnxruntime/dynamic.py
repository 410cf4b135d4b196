"""Matrix products of stored int8 weights with activations that are made integers on the fly.

Behind a DequantizeLinear of one scale per column, ONNX Runtime multiplies many rows slower than in float: MatMulNBits
at 8 bits takes 1.8 times as long for 64 rows of 128.  ``DynamicQuantizeLinear → MatMulInteger`` is as fast as static
int8 and needs no calibration.  It is written where it pays by the cost table.
Source: ONNX Runtime, ``MatMulIntegerToFloatFusion`` and ``DynamicQuantizeMatMulFusion``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant
from convertkit.profile import OpCost
from convertkit.targets.onnxruntime.stored import Stored, array_of, is_large, readers, remove, rows, stored_weight

_TYPICAL_ROWS = 32
"""Stands for a number of rows that the graph does not tell."""


def make_dynamic(model: ir.Model, costs: Mapping[str, OpCost]) -> int:
    """Rewrite every MatMul and Gemm of a stored int8 weight that gets faster so, in place; how many there were."""
    integers: dict[ir.Value, tuple[ir.Value, ...]] = {}
    made = 0
    for node in tuple(model.graph):
        weight = _weight(node)
        if weight is None or not _pays(node, weight, costs):
            continue
        data = node.inputs[0]
        assert data is not None
        if data not in integers:
            integers[data] = _quantized(model.graph, data, node)
        _rewrite(model.graph, node, weight, integers[data])
        made += 1
    return made


def _weight(node: ir.Node) -> Stored | None:
    """The int8 weight of a product of float activations, with one scale or one per column of the result."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain or node.inputs[0] is None or node.inputs[1] is None:
        return None
    data, maker = node.inputs[0].producer(), node.inputs[1].producer()
    weight = stored_weight(maker)
    if weight is None or weight.block or weight.integers.dtype != ir.DataType.INT8 or len(weight.shape) != 2:
        return None
    if data is not None and data.op_type == "DequantizeLinear" and stored_weight(data) is None:
        return None
    columns = 1
    if node.op_type == "Gemm":
        plain = {"alpha": 1.0, "beta": 1.0}
        if node.attributes.get_int("transA", 0) or any(node.attributes.get_float(k, v) != v for k, v in plain.items()):
            return None
        columns = 0 if node.attributes.get_int("transB", 0) else 1
    return weight if weight.scales.size == 1 or weight.axis == columns else None


def _pays(node: ir.Node, weight: Stored, costs: Mapping[str, OpCost]) -> bool:
    """By the cost table; one row alone is read from memory more than it is multiplied, and blocks do as well.

    A dynamic batch of a MatMul may be many rows, for which blocks take up to nine times as long; a Gemm of one becomes
    float, unless its weight is so large that a model of such ones should not be kept in float.
    """
    count = _row_count(node, weight)
    if count == 1:
        return False
    deep, wide = (weight.shape[::-1] if _transposed(node) else weight.shape)[-2:]
    integer, real = costs["MatMul"].times(float(count * deep * wide), float(count * (deep + wide)))
    return integer + costs["QuantizeLinear"].times(float(count * deep), 0.0)[0] < real


def _row_count(node: ir.Node, weight: Stored) -> int:
    data = node.inputs[0]
    known = None if data is None else rows(data)
    if known is None or data is None or data.shape is None:
        return _TYPICAL_ROWS
    is_batch = not all(isinstance(size, int) for size in data.shape)
    return _TYPICAL_ROWS if is_batch and (node.op_type == "MatMul" or is_large(weight)) else known


def _transposed(node: ir.Node) -> bool:
    return node.op_type == "Gemm" and node.attributes.get_int("transB", 0) == 1


def _quantized(graph: ir.Graph, data: ir.Value, before: ir.Node) -> tuple[ir.Value, ...]:
    """``data`` as uint8, its scale and its zero point."""
    node = ir.Node("", "DynamicQuantizeLinear", [data], num_outputs=3, name=f"{data.name}_dynamic")
    kinds = (ir.DataType.UINT8, ir.DataType.FLOAT, ir.DataType.UINT8)
    for value, kind, what in zip(node.outputs, kinds, ("integers", "scale", "zero_point"), strict=True):
        value.name, value.type, value.shape = f"{data.name}_dynamic_{what}", ir.TensorType(kind), ir.Shape(())
    node.outputs[0].shape = data.shape
    graph.insert_before(before, node)
    return tuple(node.outputs)


def _rewrite(graph: ir.Graph, node: ir.Node, weight: Stored, data: tuple[ir.Value, ...]) -> None:
    result, maker = node.outputs[0], node.inputs[1].producer() if node.inputs[1] is not None else None
    assert maker is not None
    integers, scales = weight.integers, weight.scale
    if _transposed(node):
        integers = add_constant(
            graph, f"{integers.name}_transposed", np.ascontiguousarray(array_of(integers).T), separator=""
        )
    if weight.scales.ndim and weight.scales.size == 1:
        scales = add_constant(graph, f"{scales.name}_shaped", weight.scales.reshape(()), separator="")
    name = str(result.name)
    product = _made("MatMulInteger", [data[0], integers, data[2]], f"{name}_integers", ir.DataType.INT32, result)
    cast = _made("Cast", [product.outputs[0]], f"{name}_whole", ir.DataType.FLOAT, result)
    cast.attributes["to"] = ir.AttrInt64("to", int(ir.DataType.FLOAT))
    scale = _made("Mul", [data[1], scales], f"{name}_scale", ir.DataType.FLOAT, scales)
    real = _made("Mul", [cast.outputs[0], scale.outputs[0]], f"{name}_real", ir.DataType.FLOAT, result)
    steps = [product, cast, scale, real]
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        steps.append(_made("Add", [real.outputs[0], node.inputs[2]], f"{name}_biased", ir.DataType.FLOAT, result))
    graph.insert_before(node, steps)
    last = steps[-1].outputs[0]
    ir.convenience.replace_all_uses_with(result, last, replace_graph_outputs=True)
    remove(graph, node)
    if last.is_graph_output():
        last.name = name
    if not readers(maker):
        remove(graph, maker)


def _made(op: str, inputs: list[ir.Value | None], name: str, kind: ir.DataType, like: ir.Value) -> ir.Node:
    node = ir.Node("", op, inputs, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = name, ir.TensorType(kind), like.shape
    return node

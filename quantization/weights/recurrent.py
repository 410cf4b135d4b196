"""Weights of LSTM, GRU and RNN as int8: they are most of such a model's bytes, and are read once per step."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant
from convertkit.profile import RECURRENT
from convertkit.quantization.graph.units import constant, is_constant, is_float
from convertkit.quantization.weights.integers import best_scales, quantize_weight

LEAST_ENTRIES = 1024
"""A smaller weight costs more in scales than it saves."""
_WEIGHTS = (1, 2)
_GATE_ROWS = 1
_LIMITS = (-127, 127)
_REARRANGES = frozenset({"Slice", "Concat", "Unsqueeze", "Squeeze", "Transpose", "Reshape", "Split"})


def quantize_recurrent(model: ir.Model) -> tuple[str, ...]:
    """``W`` and ``R`` behind DequantizeLinear, in place; the nodes' names.

    Each row of each gate has a scale, which both directions share.
    """
    done = []
    for node in tuple(model.graph):
        if node.domain or node.op_type not in RECURRENT:
            continue
        arrays = {index: _known(node.inputs[index], model) for index in _WEIGHTS}
        for index, array in arrays.items():
            if array is not None and array.dtype == np.float32 and array.size >= LEAST_ENTRIES:
                _quantize(model.graph, node, index, array)
                done.append(str(node.name))
    if done:
        RemoveUnusedNodesPass()(model)
    return tuple(dict.fromkeys(done))


def _quantize(graph: ir.Graph, node: ir.Node, index: int, array: Array) -> None:
    name = f"{node.name}_{'WR'[index - 1]}"
    weight = quantize_weight(array, _GATE_ROWS, _LIMITS, best_scales(array, _GATE_ROWS, _LIMITS))
    inputs = [
        add_constant(graph, f"{name}_quantized", weight.integers),
        add_constant(graph, f"{name}_scale", weight.scales),
        add_constant(graph, f"{name}_zero_point", np.zeros(weight.scales.shape, np.int8)),
    ]
    axis = [ir.AttrInt64("axis", _GATE_ROWS)]
    real = ir.Node("", "DequantizeLinear", inputs, axis, num_outputs=1, name=f"{name}_dequantize")
    made = real.outputs[0]
    made.name, made.type, made.shape = f"{name}_dequantized", ir.TensorType(ir.DataType.FLOAT), ir.Shape(array.shape)
    graph.insert_before(node, real)
    node.replace_input_with(index, made)


def _known(value: ir.Value | None, model: ir.Model) -> Array | None:
    """The array of a constant, or of one that exporters only rearranged: gates in another order, joined directions."""
    if value is None or (not is_float(value) and value.dtype != ir.DataType.INT64):
        return None
    if is_constant(value):
        return constant(value)
    node = value.producer()
    if node is None or node.domain or node.op_type not in _REARRANGES or node.graph is not model.graph:
        return None
    feeds = {str(item.name): _known(item, model) for item in node.inputs if item is not None}
    if any(array is None for array in feeds.values()):
        return None
    return _evaluated(node, value, {name: array for name, array in feeds.items() if array is not None}, model)


def _evaluated(node: ir.Node, value: ir.Value, feeds: dict[str, Array], model: ir.Model) -> Array:
    specs = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    output = onnx.helper.make_tensor_value_info(str(value.name), onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([ir.to_proto(node)], "constants", specs, [output])
    opset = onnx.helper.make_opsetid("", model.graph.opset_imports.get("", 18))
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=[opset]))
    return np.asarray(evaluator.run(None, feeds)[0])

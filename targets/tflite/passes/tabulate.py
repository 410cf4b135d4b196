"""Functions of one number between integers of 8 bits become a table of their 256 results.

before:  x:i8 → Dequantize → HardSigmoid → Quantize → y:i8
after:   x:i8 → Table → y:i8

The results are those of ONNX's reference for the three operators, so the table is what the QDQ graph says, exactly.
For ``--full-integer``, where no kernel computes the function in integers; floats are faster elsewhere.
"""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of
from convertkit.onnx.pointwise import Function, function_to
from convertkit.profile import KEEP_FLOAT
from convertkit.targets.forms.edits import new_constant
from convertkit.targets.tflite.annotations import OWN, activation_of, quantization_of, set_activation
from convertkit.targets.tflite.builder.core import NONE
from convertkit.targets.tflite.passes.clamped_lines import is_product_and_sum
from convertkit.targets.tflite.passes.fuse import LIMITS
from convertkit.targets.tflite.passes.part import Part
from convertkit.targets.tflite.passes.qdq_groups import fold_group, qdq_group
from convertkit.targets.tflite.tensor import QuantParams

UNARY = frozenset({
    "Abs", "Acos", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round",
    "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
    "ThresholdedRelu",
})  # fmt: skip
"""Operators of ONNX that compute each element by itself from one operand and attributes."""

OF_CONSTANT = frozenset({"Div", "Pow"})
"""Those that do so where their second operand is one constant number."""


def tabulate(part: Part, opset: int) -> None:
    """Replace every such operator that has integers on both sides, in place; a HardSigmoid by a product and a sum."""
    for node in list(part.graph):
        group = None if KEEP_FLOAT in node.metadata_props or not is_of_one_number(node) else qdq_group(node)
        given = None if group is None else group.params(0)
        if group is None or given is None or group.kind != ir.DataType.INT8 or given.axis is not None:
            continue
        table = _table(node, given, group.result, opset)
        if table is None:
            continue
        if is_product_and_sum(node, given, group.result, table):
            fold_group(group)
            node.domain = OWN
            continue
        places = new_constant(part.graph, f"{node.name or node.op_type}/table", table)
        fold_group(group)
        node.resize_inputs(2)
        node.replace_input_with(1, places)
        node.op_type, node.domain = "Table", OWN
        node.attributes.clear()
        set_activation(node, NONE)  # the table has it


def is_of_one_number(node: ir.Node) -> bool:
    """Whether each element of the result depends on one element of the first operand alone."""
    if node.domain != "" or not node.inputs:
        return False
    if node.op_type in UNARY:
        return len(node.inputs) == 1
    other = array_of(node.inputs[1]) if node.op_type in OF_CONSTANT else None
    shape = None if node.inputs[0] is None else node.inputs[0].shape
    return other is not None and other.size == 1 and other.ndim <= len(shape or ())  # of more axes, so is the result


def tabulate_functions(part: Part, opset: int) -> None:
    """The same for what is written in several operators, and for integers that get another scale, in place.

    XNNPACK's kernel from integers to integers makes a tenth of them others.
    """
    for quantize in list(part.graph):
        result = quantize.inputs[0] if (quantize.domain, quantize.op_type) == (OWN, "Quantize") else None
        wanted = None if result is None else quantization_of(quantize.outputs[0])
        if result is None or wanted is None:
            continue
        found = Function(result, ()) if _is_dequantized(result) else function_to(result, _is_dequantized)
        source = None if found is None else found.source.producer()
        integers = None if source is None else source.inputs[0]
        given = None if integers is None else quantization_of(integers)
        if found is None or integers is None or given is None or quantize.outputs[0].is_graph_output():
            continue
        if not found.nodes and given == wanted:  # nothing is done to them
            continue
        kinds = {integers.dtype, quantize.outputs[0].dtype}
        if kinds != {ir.DataType.INT8} or given.axis is not None or wanted.axis is not None:
            continue
        table = _results(found, given, wanted, opset)
        if table is not None:
            places = new_constant(part.graph, f"{found.result.name or 'function'}/table", table)
            quantize.op_type = "Table"
            quantize.attributes.clear()
            quantize.resize_inputs(2)
            quantize.replace_input_with(0, integers)
            quantize.replace_input_with(1, places)


def _is_dequantized(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is not None and (maker.domain, maker.op_type) == (OWN, "Dequantize")


def _table(node: ir.Node, given: QuantParams, wanted: QuantParams, opset: int) -> Array | None:
    """The result for -128 to 127, None where one of them is not a number."""
    assert node.inputs[0] is not None
    return _results(Function(node.inputs[0], (node,)), given, wanted, opset)


def _results(function: Function, given: QuantParams, wanted: QuantParams, opset: int) -> Array | None:
    reals = ((np.arange(-128, 128) - given.zero_point[0]) * np.float32(given.scale[0])).astype(np.float32)
    with np.errstate(all="ignore"):
        found = _computed(function, reals, opset) if function.nodes else reals
        steps = np.rint(found / np.float32(wanted.scale[0])) + wanted.zero_point[0]
    return None if np.isnan(steps).any() else np.clip(steps, -128, 127).astype(np.int8)


def _computed(function: Function, reals: Array, opset: int) -> Array:
    """What ONNX's reference computes of these numbers."""
    feed = {str(function.source.name): reals}
    for value in (value for node in function.nodes for value in node.inputs if value is not None):
        array = array_of(value)
        if array is not None:
            feed[str(value.name)] = array
    nodes = [made for node in function.nodes for made in _written(node, feed)]
    inputs = [_stated(name, array) for name, array in feed.items()]
    outputs = [_stated(str(function.result.name), reals)]
    graph = onnx.helper.make_graph(nodes, "table", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    (found,) = ReferenceEvaluator(model).run(None, feed)
    return np.asarray(found, np.float32).reshape(-1)


def _written(node: ir.Node, feed: dict[str, Array]) -> list[onnx.NodeProto]:
    """``node`` as ONNX has it, and behind it the clamp that was fused into it, whose limits ``feed`` gets."""
    made = ir.to_proto(node)
    assert isinstance(made, onnx.NodeProto)
    limits = LIMITS.get(activation_of(node))
    if limits is None:
        return [made]
    result = made.output[0]
    made.output[0] = f"{result}/unclamped"
    names = [f"{result}/least", f"{result}/most"]
    feed |= {name: np.array(limit, np.float32) for name, limit in zip(names, limits, strict=True)}
    return [made, onnx.helper.make_node("Clip", [made.output[0], *names], [result])]


def _stated(name: str, array: Array) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

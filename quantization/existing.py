"""Models that arrive quantized: they pass through with the scales that they came with.

QDQ stays as it is.  The QLinear operators of ONNX and of ONNX Runtime become the same computation
as QDQ, which is what targets read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.quantization.prepare import add_constant
from convertkit.quantization.units import constant, is_constant

_CONTRIB = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Form:
    """Where a QLinear operator keeps its operands.

    ``operands`` are the first indices of (integers, scale, zero point) triples, ``output`` the index of
    the output's scale, followed by its zero point; ``bias`` an int32 input with scale ``first × second``.
    """

    op: str
    operands: tuple[int, ...]
    output: int
    bias: int | None = None
    weight_axis: int | None = None


_FORMS: Mapping[tuple[str, str], Form] = {
    ("", "QLinearConv"): Form("Conv", (0, 3), 6, bias=8, weight_axis=0),
    ("", "QLinearMatMul"): Form("MatMul", (0, 3), 6, weight_axis=1),
    (_CONTRIB, "QGemm"): Form("Gemm", (0, 3), 7, bias=6, weight_axis=1),
    (_CONTRIB, "QLinearAdd"): Form("Add", (0, 3), 6),
    (_CONTRIB, "QLinearMul"): Form("Mul", (0, 3), 6),
    (_CONTRIB, "QLinearLeakyRelu"): Form("LeakyRelu", (0,), 3),
    (_CONTRIB, "QLinearSigmoid"): Form("Sigmoid", (0,), 3),
    (_CONTRIB, "QLinearSoftmax"): Form("Softmax", (0,), 3),
    (_CONTRIB, "QLinearAveragePool"): Form("AveragePool", (0,), 3),
    (_CONTRIB, "QLinearGlobalAveragePool"): Form("GlobalAveragePool", (0,), 3),
}
_FOREIGN_ATTRIBUTES = ("channels_last", "opset")


def is_quantized(model: ir.Model) -> bool:
    """Whether any operator quantizes an activation already (QDQ, or QLinear operators)."""
    return any(
        node.op_type in ("QuantizeLinear", "QGemm", "ConvInteger", "MatMulInteger")
        or node.op_type.startswith("QLinear")
        for node in model.graph
    )


def to_qdq(model: ir.Model) -> None:
    """Rewrite QLinear operators as QDQ, in place; numerics stay."""
    for node in tuple(model.graph):
        if node.op_type == "QLinearConcat" and node.domain == _CONTRIB:
            starts = tuple(range(2, len(node.inputs), 3))
            _rewrite(model.graph, node, Form("Concat", starts, 0))
        elif (node.domain, node.op_type) in _FORMS and not node.attributes.get_int("channels_last", 0):
            _rewrite(model.graph, node, _FORMS[node.domain, node.op_type])
    ShapeInferencePass()(model)


def _rewrite(graph: ir.Graph, node: ir.Node, form: Form) -> None:
    inputs = (*node.inputs, None, None)
    name = node.name or str(node.outputs[0].name)
    operands = []
    for place, start in enumerate(form.operands):
        axis = form.weight_axis if place == 1 and _size(inputs[start + 1]) > 1 else None
        if axis is not None and form.op == "Gemm":
            axis = 0 if node.attributes.get_int("transB", 0) else 1
        operands.append(_real(graph, node, inputs[start : start + 3], axis, f"{name}_operand_{place}"))
    if form.bias is not None and inputs[form.bias] is not None:
        operands.append(_bias(graph, node, inputs, form, name))
    attributes = [item for key, item in node.attributes.items() if key not in _FOREIGN_ATTRIBUTES]
    plain = ir.Node("", form.op, operands, attributes, num_outputs=1, name=f"{name}_float")
    quantized = node.outputs[0]
    real = plain.outputs[0]
    real.name, real.dtype, real.shape = f"{quantized.name}_float", ir.DataType.FLOAT, quantized.shape
    scale, zero = inputs[form.output : form.output + 2]
    again = ir.Node(
        "", "QuantizeLinear", [real, scale, *([zero] if zero else [])], num_outputs=1, name=f"{name}_quantize"
    )
    # Shape inference knows nothing of ONNX Runtime's own operators; the zero point does.
    again.outputs[0].shape = quantized.shape
    again.outputs[0].dtype = ir.DataType.UINT8 if zero is None or zero.dtype is None else zero.dtype
    graph.insert_before(node, (plain, again))
    kept = quantized.name
    ir.convenience.replace_all_uses_with(quantized, again.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)
    again.outputs[0].name = kept


def _real(
    graph: ir.Graph, before: ir.Node, triple: tuple[ir.Value | None, ...], axis: int | None, name: str
) -> ir.Value:
    inputs = [value for value in triple if value is not None]
    if axis is not None and len(inputs) == 3 and is_constant(inputs[2]) and _size(inputs[2]) == 1:
        # DequantizeLinear wants one zero point per scale; QLinearConv lets one stand for all.
        zeros = np.full(_size(inputs[1]), constant(inputs[2]).item(), constant(inputs[2]).dtype)
        inputs[2] = add_constant(graph, f"{name}_zero_points", zeros)
    attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
    node = ir.Node("", "DequantizeLinear", inputs, attributes, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = name, ir.DataType.FLOAT, inputs[0].shape
    graph.insert_before(before, node)
    return node.outputs[0]


def _bias(graph: ir.Graph, node: ir.Node, inputs: tuple[ir.Value | None, ...], form: Form, name: str) -> ir.Value:
    bias, first, second = inputs[form.bias or 0], inputs[form.operands[0] + 1], inputs[form.operands[1] + 1]
    assert bias is not None
    assert first is not None
    assert second is not None
    product = constant(first).reshape(-1) * constant(second).reshape(-1)
    scales = product.reshape(()) if product.size == 1 else product
    scale = add_constant(graph, f"{name}_bias_scale", scales.astype(np.float32))
    return _real(graph, node, (bias, scale), None if product.size == 1 else 0, f"{name}_bias")


def _size(value: ir.Value | None) -> int:
    return 1 if value is None or not is_constant(value) else int(constant(value).size)

"""QLinear operators, ONNX's and ONNX Runtime's, as the same computation in QDQ, which is what passes and targets read.

Between them such graphs move integers about (MaxPool, Transpose, …): these moves get a pair of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.edit import add_constant

_CONTRIB = "com.microsoft"


@dataclass(frozen=True, slots=True)
class Form:
    """Where a QLinear operator keeps its operands.

    ``operands`` are the first indices of (integers, scale, zero point) triples, ``output`` the index of
    the output's scale, followed by its zero point; ``bias`` an int32 input with scale ``first × second``; ``plain``
    counts inputs in front of them that are what they are.
    """

    op: str
    operands: tuple[int, ...]
    output: int
    bias: int | None = None
    weight_axis: int | None = None
    plain: int = 0


_FORMS: Mapping[tuple[str, str], Form] = {
    ("", "QLinearConv"): Form("Conv", (0, 3), 6, bias=8, weight_axis=0),
    ("", "QLinearMatMul"): Form("MatMul", (0, 3), 6, weight_axis=1),
    (_CONTRIB, "QLinearConv"): Form("Conv", (0, 3), 6, bias=8, weight_axis=0),
    (_CONTRIB, "QGemm"): Form("Gemm", (0, 3), 7, bias=6, weight_axis=1),
    (_CONTRIB, "QLinearAdd"): Form("Add", (0, 3), 6),
    (_CONTRIB, "QLinearMul"): Form("Mul", (0, 3), 6),
    (_CONTRIB, "QLinearLeakyRelu"): Form("LeakyRelu", (0,), 3),
    (_CONTRIB, "QLinearSigmoid"): Form("Sigmoid", (0,), 3),
    (_CONTRIB, "QLinearSoftmax"): Form("Softmax", (0,), 3),
    (_CONTRIB, "QLinearAveragePool"): Form("AveragePool", (0,), 3),
    (_CONTRIB, "QLinearGlobalAveragePool"): Form("GlobalAveragePool", (0,), 3),
    (_CONTRIB, "QLinearWhere"): Form("Where", (1, 4), 7, plain=1),
}
_MOVES = frozenset({
    "MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Gather", "Expand", "Tile",
    "DepthToSpace", "SpaceToDepth", "Identity",
})  # fmt: skip
"""They pass integers on as they are, so their scales and zero points go with them."""
_FOREIGN_ATTRIBUTES = ("channels_last", "opset")


def to_qdq(model: ir.Model) -> bool:
    """Rewrite QLinear operators as QDQ, in place; False where there are none."""
    graph = model.graph
    found = False
    for node in tuple(graph):
        form = _form(node)
        if form is not None:
            if _is_channels_last(node) and _rank(node) is None:
                ShapeInferencePass()(model)
            _rewrite(graph, node, form)
            found = True
    if found:
        _pair_moves(graph)
        ShapeInferencePass()(model)
    return found


def _form(node: ir.Node) -> Form | None:
    if node.op_type == "QLinearConcat" and node.domain == _CONTRIB:
        return Form("Concat", tuple(range(2, len(node.inputs), 3)), 0)
    return _FORMS.get((node.domain, node.op_type))


def _is_channels_last(node: ir.Node) -> bool:
    """Whether input and output have their channels last, as ONNX Runtime's optimizer wants them; weights do not."""
    return node.attributes.get_int("channels_last", 0) == 1


def _rank(node: ir.Node) -> int | None:
    window = node.attributes.get("kernel_shape")
    if window is not None:
        return len(window.as_ints()) + 2
    values = (node.inputs[3] if node.op_type == "QLinearConv" else None, node.inputs[0])
    return next((len(value.shape) for value in values if value is not None and value.shape is not None), None)


def _pair_moves(graph: ir.Graph) -> None:
    """``x:i8 → MaxPool → y:i8`` as ``x:i8 → DequantizeLinear → MaxPool → QuantizeLinear → y:i8``: the same integers."""
    known: dict[ir.Value, list[ir.Value]] = {}
    for node in tuple(graph):
        if node.op_type == "QuantizeLinear":
            known[node.outputs[0]] = [value for value in node.inputs[1:] if value is not None]
        source = node.inputs[0] if node.inputs else None
        if node.op_type not in _MOVES or node.domain or source is None or source not in known:
            continue
        parameters = known[source]
        node.replace_input_with(0, _real(graph, node, (source, *parameters), None, f"{node.name}_operand"))
        for output in node.outputs:
            known[_quantized(graph, node, output, parameters)] = parameters


def _quantized(graph: ir.Graph, node: ir.Node, output: ir.Value, parameters: list[ir.Value]) -> ir.Value:
    """Make an output float and quantize it again; what was integers keeps its name."""
    again = ir.Node("", "QuantizeLinear", [output, *parameters], num_outputs=1, name=f"{output.name}_quantize")
    made = again.outputs[0]
    made.shape = output.shape
    made.type = ir.TensorType((parameters[1].dtype if len(parameters) > 1 else None) or ir.DataType.UINT8)
    ir.convenience.replace_all_uses_with(output, made, replace_graph_outputs=True)
    again.replace_input_with(0, output)
    output.name, made.name = f"{output.name}_float", output.name
    output.type = ir.TensorType(ir.DataType.FLOAT)
    graph.insert_after(node, again)
    return made


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
    operands = [*(value for value in inputs[: form.plain] if value is not None), *operands]
    made = _channels_last(node, form, operands, attributes) if _is_channels_last(node) else ()
    made = made or (ir.Node("", form.op, operands, attributes, num_outputs=1, name=f"{name}_float"),)
    quantized = node.outputs[0]
    real = made[-1].outputs[0]
    real.name, real.type, real.shape = f"{quantized.name}_float", ir.TensorType(ir.DataType.FLOAT), quantized.shape
    scale, zero = inputs[form.output : form.output + 2]
    again = ir.Node(
        "", "QuantizeLinear", [real, scale, *([zero] if zero else [])], num_outputs=1, name=f"{name}_quantize"
    )
    # Shape inference knows nothing of ONNX Runtime's own operators; the zero point does.
    again.outputs[0].shape = quantized.shape
    again.outputs[0].type = ir.TensorType(ir.DataType.UINT8 if zero is None or zero.dtype is None else zero.dtype)
    graph.insert_before(node, (*made, again))
    kept = quantized.name
    ir.convenience.replace_all_uses_with(quantized, again.outputs[0], replace_graph_outputs=True)
    graph.remove(node, safe=True)
    again.outputs[0].name = kept


def _channels_last(
    node: ir.Node, form: Form, operands: list[ir.Value], attributes: list[ir.Attr]
) -> tuple[ir.Node, ...]:
    """The operator between transposes of its first operand and of its result."""
    rank, name = _rank(node), node.name or str(node.outputs[0].name)
    if rank is None:
        raise Unsupported("channels last, of an unknown rank", subject=f"{name} ({node.domain}.{node.op_type})")
    perms = [[0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]]
    before = ir.node("Transpose", operands[:1], {"perm": perms[0]}, name=f"{name}_channels_first")
    plain = ir.Node("", form.op, [before.outputs[0], *operands[1:]], attributes, num_outputs=1, name=f"{name}_float")
    after = ir.node("Transpose", [plain.outputs[0]], {"perm": perms[1]}, name=f"{name}_channels_last")
    return before, plain, after


def _real(
    graph: ir.Graph, before: ir.Node, triple: tuple[ir.Value | None, ...], axis: int | None, name: str
) -> ir.Value:
    inputs = [value for value in triple if value is not None]
    if axis is not None and len(inputs) == 3 and inputs[2].const_value is not None and _size(inputs[2]) == 1:
        # DequantizeLinear wants one zero point per scale; QLinearConv lets one stand for all.
        zeros = np.full(_size(inputs[1]), _constant(inputs[2]).item(), _constant(inputs[2]).dtype)
        inputs[2] = add_constant(graph, f"{name}_zero_points", zeros)
    attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
    node = ir.Node("", "DequantizeLinear", inputs, attributes, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = (
        name,
        ir.TensorType(ir.DataType.FLOAT),
        inputs[0].shape,
    )
    graph.insert_before(before, node)
    return node.outputs[0]


def _bias(graph: ir.Graph, node: ir.Node, inputs: tuple[ir.Value | None, ...], form: Form, name: str) -> ir.Value:
    bias, first, second = inputs[form.bias or 0], inputs[form.operands[0] + 1], inputs[form.operands[1] + 1]
    assert bias is not None
    assert first is not None
    assert second is not None
    product = _constant(first).reshape(-1) * _constant(second).reshape(-1)
    scales = product.reshape(()) if product.size == 1 else product
    scale = add_constant(graph, f"{name}_bias_scale", scales.astype(np.float32))
    return _real(graph, node, (bias, scale), None if product.size == 1 else 0, f"{name}_bias")


def _constant(value: ir.Value) -> Array:
    assert value.const_value is not None, f"{value.name} is computed at run time"
    return value.const_value.numpy()


def _size(value: ir.Value | None) -> int:
    return 1 if value is None or value.const_value is None else int(_constant(value).size)

"""Operators that TFLite has as one: biases, batch norms and clamps join the operator in front of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.batch_norm import factor_and_offset, scaled_and_shifted
from convertkit.onnx.edit import array_of, bypass, only_user
from convertkit.targets.forms.edits import can_drop, new_constant, typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.annotations import OWN, activation_of, set_activation
from convertkit.targets.tflite.builder.core import NONE, RELU, RELU6, RELU_N1_TO_1
from convertkit.targets.tflite.passes.edits import is_weight
from convertkit.targets.tflite.passes.part import Part

_CLAMPS: dict[tuple[float | None, float | None], int] = {
    (0.0, None): RELU,
    (0.0, np.inf): RELU,
    (0.0, 6.0): RELU6,
    (-1.0, 1.0): RELU_N1_TO_1,
}
LIMITS: Mapping[int, tuple[float, float]] = {RELU: (0.0, np.inf), RELU6: (0.0, 6.0), RELU_N1_TO_1: (-1.0, 1.0)}
"""What the fused activations clamp to."""
_FUSABLE = frozenset(
    {
        ("", name)
        for name in ["Add", "Sub", "Mul", "Div", "Gemm", "MatMul", "Conv", "ConvTranspose", "MaxPool", "AveragePool"]
    }
    | {(OWN, "Dense")}
)


def fold_batch_norm(part: Part) -> None:
    """BatchNormalization with constant statistics: into a Conv in front of it, else a Mul and an Add.

    before:  x → Conv(w, b) → BatchNormalization → y
    after:   x → Conv(w * f, (b - mean) * f + beta) → y
    """
    for node in list(part.graph):
        if (node.op_type == "BatchNormalization" and node.domain == "" and node.outputs[0].uses()) or (
            node.op_type == "BatchNormalization" and node.outputs[0].is_graph_output()
        ):
            _fold_batch_norm(part.graph, node)


def _fold_batch_norm(graph: ir.Graph, node: ir.Node) -> None:
    parts = [array_of(value) for value in node.inputs[1:5]]
    training = node.attributes.get("training_mode")
    if any(part is None for part in parts) or len([value for value in node.outputs if value.uses()]) > 1:
        return
    if (training is not None and training.value) or node.inputs[0] is None or node.inputs[0].shape is None:
        return
    factor, offset = factor_and_offset(node, [part for part in parts if part is not None])
    source = node.inputs[0]
    assert source is not None
    conv = source.producer()
    takes = conv is not None and conv.op_type in ("Conv", "ConvTranspose") and only_user(source) is node
    if conv is not None and takes and can_drop(node, source) and _into_conv(graph, conv, factor, offset):
        bypass(node, source)
        return
    _as_affine(graph, node, source, factor, offset)


def _into_conv(graph: ir.Graph, conv: ir.Node, factor: np.ndarray, offset: np.ndarray) -> bool:
    weight = array_of(conv.inputs[1])
    given = conv.inputs[2] if len(conv.inputs) > 2 else None
    bias = array_of(given)
    group = conv.attributes.get("group")
    transposed = conv.op_type == "ConvTranspose"
    if (
        weight is None
        or (given is not None and bias is None)
        or (transposed and group is not None and group.value != 1)
    ):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        made = scaled_and_shifted(conv, weight, bias, factor, offset)
        scaled, moved = (each.astype(weight.dtype) for each in made)
    if not (np.isfinite(scaled).all() and np.isfinite(moved).all()):
        return False
    conv.replace_input_with(1, new_constant(graph, f"{conv.name}/weight", scaled))
    conv.resize_inputs(3)
    conv.replace_input_with(2, new_constant(graph, f"{conv.name}/bias", moved))
    return True


def _as_affine(graph: ir.Graph, node: ir.Node, source: ir.Value, factor: np.ndarray, offset: np.ndarray) -> None:
    rank = len(source.shape or ())
    shape = (-1, *(1,) * (rank - 2))
    kind = source.dtype.numpy() if source.dtype is not None else np.dtype(np.float32)
    scale = new_constant(graph, f"{node.name}/scale", factor.reshape(shape).astype(kind))
    shift = new_constant(graph, f"{node.name}/shift", offset.reshape(shape).astype(kind))
    scaled = ir.node("Mul", [source, scale], name=f"{node.name}/scaled")
    set_source(scaled, node)
    scaled.outputs[0].name = f"{node.outputs[0].name}/scaled"
    typed(scaled.outputs[0], source.shape, source.dtype)
    graph.insert_before(node, scaled)
    node.op_type = "Add"
    node.attributes.clear()
    node.resize_inputs(2)
    node.replace_input_with(0, scaled.outputs[0])
    node.replace_input_with(1, shift)


def fuse_bias(part: Part) -> None:
    """A constant added to each channel behind Conv, or to each column behind MatMul, becomes the bias.

    The constant may stand behind a Dequantize: an integer bias stays one.
    """
    for node in list(part.graph):
        if node.op_type != "Add" or node.domain != "":
            continue
        for place in (0, 1):
            value, offset = node.inputs[place], node.inputs[1 - place]
            producer = None if value is None else value.producer()
            if producer is None or value is None or offset is None or only_user(value) is not node:
                continue
            if is_weight(offset) and can_drop(node, value) and _takes_bias(part.graph, producer, offset):
                bypass(node, value)
                break


def _takes_bias(graph: ir.Graph, node: ir.Node, offset: ir.Value) -> bool:
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    shape = () if weight is None or weight.shape is None else tuple(weight.shape)
    sizes = tuple(offset.shape or ())
    if activation_of(node) != NONE or node.domain != "" or not is_weight(weight):
        return False
    if node.op_type == "MatMul" and len(shape) == 2:
        result = node.outputs[0]
        wanted = [(1,) * extra + (shape[1],) for extra in range(max(len(result.shape or ()), 1))]
        bias = _as_vector(graph, node, offset) if sizes in wanted else None
        if bias is None or len(result.shape or ()) < 2:
            return False
        node.op_type, node.domain = "Dense", OWN
    elif node.op_type == "Conv" and (len(node.inputs) < 3 or node.inputs[2] is None):
        channels = (shape[0],) + (1,) * (len(shape) - 2)
        bias = _as_vector(graph, node, offset) if sizes in (channels, (1, *channels)) else None
        if bias is None:
            return False
    else:
        return False
    node.resize_inputs(3)
    node.replace_input_with(2, bias)
    return True


def _as_vector(graph: ir.Graph, node: ir.Node, offset: ir.Value) -> ir.Value | None:
    """``offset`` with one axis; None where that takes more than a look at a constant."""
    if len(offset.shape or ()) == 1:
        return offset
    array = array_of(offset)
    return None if array is None else new_constant(graph, f"{node.name}/bias", array.reshape(-1))


def fuse_activations(part: Part) -> None:
    """Relu, and Clip to [0, 6] or [-1, 1], behind an operator whose kernel clamps for free."""
    for node in list(part.graph):
        activation = _activation(node)
        value = node.inputs[0] if node.inputs else None
        producer = None if value is None else value.producer()
        if activation == NONE or producer is None or value is None or only_user(value) is not node:
            continue
        fusable = (producer.domain, producer.op_type) in _FUSABLE and activation_of(producer) == NONE
        if fusable and value.dtype == ir.DataType.FLOAT and can_drop(node, value):
            set_activation(producer, activation)
            bypass(node, value)


def _activation(node: ir.Node) -> int:
    if node.domain != "":
        return NONE
    if node.op_type == "Relu":
        return RELU
    if node.op_type != "Clip":
        return NONE
    limits: list[float | None] = []
    for place in (1, 2):
        value = node.inputs[place] if place < len(node.inputs) else None
        limit = array_of(value)
        if value is not None and limit is None:
            return NONE
        limits.append(None if limit is None else float(limit))
    return _CLAMPS.get((limits[0], limits[1]), NONE)

"""Factors and offsets of channels join the weights of a neighbouring layer.

before:  x → LayerNormalization(g, b) → MatMul(w) → Add(c) → Mul(s) → y
after:   x → LayerNormalization(1, 0) → MatMul(diag(g) w diag(s)) → Add((b w + c) s) → y
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, bypass, only_user
from convertkit.targets.forms.edits import can_drop, new_constant
from convertkit.targets.tflite.annotations import NHWC, OWN, activation_of, set_activation
from convertkit.targets.tflite.builder.core import NONE
from convertkit.targets.tflite.passes.part import Part

_LARGEST_COPY_BYTES = 32 << 20


def fold_factors_behind(part: Part) -> None:
    """A constant factor for each output channel behind Conv or a dense layer goes into weights and bias."""
    for node in list(part.graph):
        if node.op_type != "Mul" or node.domain != "":
            continue
        for place in (0, 1):
            value, factor = node.inputs[place], array_of(node.inputs[1 - place])
            layer = None if value is None else value.producer()
            if value is None or layer is None or factor is None or only_user(value) is not node:
                continue
            if activation_of(layer) == NONE and can_drop(node, value) and _scaled(part.graph, layer, factor):
                set_activation(layer, activation_of(node))  # a Relu behind the product had joined it
                bypass(node, value)
                break


def _scaled(graph: ir.Graph, layer: ir.Node, factor: np.ndarray) -> bool:
    weight = array_of(layer.inputs[1]) if len(layer.inputs) > 1 else None
    given = layer.inputs[2] if len(layer.inputs) > 2 else None
    bias = array_of(given)
    if weight is None or not _is_small_float(weight) or (given is not None and bias is None):
        return False
    columns = _columns(layer, weight, factor)
    if columns is None:
        return False
    along, shape = columns
    if not (_stay_finite(weight, along) and (bias is None or _stay_finite(bias, along))):
        return False
    layer.replace_input_with(1, new_constant(graph, f"{layer.name}/scaled", weight * along.reshape(shape)))
    if bias is not None:
        layer.replace_input_with(2, new_constant(graph, f"{layer.name}/scaled_bias", bias * along))
    return True


def _stay_finite(weight: np.ndarray, factor: np.ndarray) -> bool:
    """Whether no product of the two can be infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.abs(weight).max(initial=0) * np.abs(factor).max(initial=0)))


def _columns(layer: ir.Node, weight: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """One factor for each output channel, and the shape in which it multiplies the weight."""
    kind = (layer.domain, layer.op_type)
    shape: tuple[int, ...]
    if kind in ((OWN, "Dense"), ("", "MatMul")) and weight.ndim == 2:
        count, shape = weight.shape[1], (1, -1)
        fits = factor.shape[-1:] == (count,) and factor.size == count
    elif kind == (NHWC, "Conv"):
        count, shape = weight.shape[0], (-1, *(1,) * (weight.ndim - 1))
        fits = factor.shape[-1:] == (count,) and factor.size == count
    else:
        return None
    if factor.ndim > len(layer.outputs[0].shape or ()):
        return None
    return (factor.reshape(-1), shape) if fits else None


def fold_norms_ahead(part: Part) -> None:
    """Scale and bias of a LayerNormalization that only feeds dense layers go into those."""
    for node in list(part.graph):
        if node.op_type != "LayerNormalization" or node.domain != "" or node.outputs[0].is_graph_output():
            continue
        axis = node.attributes.get("axis")
        rank = len(node.outputs[0].shape or ())
        if axis is not None and axis.value not in (-1, rank - 1):
            continue
        scale = array_of(node.inputs[1])
        given = node.inputs[2] if len(node.inputs) > 2 else None
        bias = array_of(given)
        users = [use.node for use in node.outputs[0].uses()]
        fits = scale is not None and scale.dtype == np.float32 and (given is None or bias is not None)
        if fits and scale is not None and users and all(_takes(user, node.outputs[0], scale) for user in users):
            for user in users:
                _premultiplied(part.graph, user, scale, bias)
            node.replace_input_with(1, new_constant(part.graph, f"{node.name}/ones", np.ones_like(scale)))
            if given is not None:
                node.replace_input_with(2, None)


def _takes(node: ir.Node, value: ir.Value, scale: np.ndarray) -> bool:
    """Whether ``node`` is a dense layer of ``value`` whose weights stay finite times ``scale``."""
    if (node.domain, node.op_type) not in ((OWN, "Dense"), ("", "MatMul")) or node.inputs[0] is not value:
        return False
    weight = array_of(node.inputs[1])
    given = node.inputs[2] if len(node.inputs) > 2 else None
    if given is not None and array_of(given) is None:
        return False
    fits = weight is not None and weight.ndim == 2 and _is_small_float(weight)
    return fits and weight is not None and _stay_finite(weight, scale)


def _is_small_float(weight: np.ndarray) -> bool:
    """Whether a changed copy is worth its memory: larger weights stay views of the mapped file."""
    return weight.dtype == np.float32 and weight.nbytes <= _LARGEST_COPY_BYTES


def _premultiplied(graph: ir.Graph, node: ir.Node, scale: np.ndarray, bias: np.ndarray | None) -> None:
    weight = array_of(node.inputs[1])
    assert weight is not None
    node.replace_input_with(1, new_constant(graph, f"{node.name}/normed", weight * scale[:, None]))
    if bias is None or not bias.any():
        return
    offset = bias.astype(np.float64) @ weight.astype(np.float64)
    own = array_of(node.inputs[2]) if len(node.inputs) > 2 else None
    total = (offset if own is None else offset + own).astype(np.float32)
    node.op_type, node.domain = "Dense", OWN
    node.resize_inputs(3)
    node.replace_input_with(2, new_constant(graph, f"{node.name}/normed_bias", total))

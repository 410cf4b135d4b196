"""The names that a profile's rules have for an operator: its own, and that of a variant with another kernel."""

from __future__ import annotations

import math

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, only_user
from convertkit.onnx.interpolation import copies_elements

_OWN_KERNELS = (".3d", ".dynamic", ".depthwise_large")
_FAST_TAPS = 25
"""Depthwise kernels up to 5 × 5 are what mobile runtimes have fast code for."""
_STEPS = 4
_PASSES_MAPS = frozenset({
    "Add", "Sub", "Mul", "Relu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "LeakyRelu", "PRelu", "MaxPool",
    "AveragePool", "BatchNormalization",
})  # fmt: skip
"""Operators behind which the map of a convolution is a map, followed for so many steps."""
_KEEPS_SCORES = frozenset({"Add", "Div", "Mul", "Sub", "Where"})
"""Scales and masks between a product of queries and keys and its Softmax, followed for so many steps."""
_SHUFFLES = frozenset({(0, 2, 1, 3, 4), (0, 1, 2, 4, 3)})
"""Orders of axes, of images as ONNX has them and channels-last."""


def node_kinds(node: ir.Node) -> tuple[str, ...]:
    """Names of an operator in a profile, the most special first."""
    if node.domain not in ("", "ai.onnx"):
        return (f"{node.domain}.{node.op_type}",)
    variant = _variant(node)
    if variant in _OWN_KERNELS:
        own = (node.op_type + variant,)
        return (f"{node.op_type}.scores", *own) if node.op_type == "MatMul" and _makes_scores(node) else own
    return (node.op_type + variant, node.op_type) if variant else (node.op_type,)


def _variant(node: ir.Node) -> str:
    inputs = (*node.inputs, None, None)
    if node.op_type == "MatMul":
        right = _stored(inputs[1])
        return "" if right is not None and right.ndim == 2 else ".dynamic"
    if node.op_type == "Mul":
        return ".gated" if _is_gated(node) else ""
    if node.op_type in ("Div", "Pow"):
        operand = array_of(inputs[1])
        return ".constant" if operand is not None and operand.size == 1 else ""
    if node.op_type in ("Add", "Sub", "ReduceMean"):
        return ".maps" if _is_of_maps(node) else ""
    if node.op_type == "Resize":
        return _of_resize(node)
    if node.op_type == "Transpose":
        return ".shuffle" if _is_shuffle(node) else ""
    if node.op_type not in ("Conv", "ConvTranspose"):
        return ""
    weight = _stored(inputs[1])
    return ".dynamic" if weight is None else _of_convolution(node, weight.shape)


def _stored(value: ir.Value | None) -> Array | None:
    """The array of a constant; its integers where a model that came quantized holds those."""
    maker = None if value is None else value.producer()
    return array_of(maker.inputs[0] if maker is not None and maker.op_type == "DequantizeLinear" else value)


def _makes_scores(node: ir.Node) -> bool:
    """Whether a product goes to a Softmax and nowhere else, at most scaled and masked: queries and keys."""
    for _ in range(_STEPS):
        reader = only_user(node.outputs[0])
        if reader is None or reader.op_type == "Softmax":
            return reader is not None
        if reader.op_type not in _KEEPS_SCORES:
            return False
        node = reader
    return False


def _of_resize(node: ir.Node) -> str:
    if copies_elements(node):
        return ".nearest"
    return "" if node.attributes.get_string("mode", "nearest") == "nearest" else ".interpolated"


def _of_convolution(node: ir.Node, shape: tuple[int, ...]) -> str:
    """By the shape of its weight."""
    if len(shape) > 4:
        return ".3d"
    groups = node.attributes.get_int("group", 1)
    if groups > 1:
        large = math.prod(shape[2:]) > _FAST_TAPS
        return ".grouped" if shape[1] != 1 else ".depthwise_large" if large else ".depthwise"
    if node.op_type == "ConvTranspose":
        return ".positive" if _is_positive(node.inputs[0]) else ""
    return ".pointwise" if all(size == 1 for size in shape[2:]) else ""


def _is_positive(value: ir.Value | None) -> bool:
    """Whether a value has no negative elements for any input, so that unsigned integers for it begin at 0."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Clip":
        return node is not None and node.op_type in ("Relu", "Sigmoid")
    low = array_of((*node.inputs, None)[1])
    return low is not None and float(low) >= 0


def _is_of_maps(node: ir.Node) -> bool:
    """Whether a convolution computes an operand, and not a product of matrices."""
    nodes = [node]
    for _ in range(_STEPS):
        made = [value.producer() for each in nodes for value in each.inputs if value is not None]
        if any(each is not None and each.op_type in ("Conv", "ConvTranspose") for each in made):
            return True
        nodes = [each for each in made if each is not None and each.op_type in _PASSES_MAPS]
    return False


def _is_shuffle(node: ir.Node) -> bool:
    """Whether groups of channels are put in turns: within each pixel, where channels come last in memory."""
    return tuple(node.attributes.get_ints("perm", ())) in _SHUFFLES


def _is_gated(node: ir.Node) -> bool:
    """Whether a Mul multiplies a value with its own sigmoid, which some runtimes make one float kernel of."""
    gates = [value.producer() for value in node.inputs if value is not None]
    return any(gate is not None and gate.op_type == "Sigmoid" and gate.inputs[0] in node.inputs for gate in gates)

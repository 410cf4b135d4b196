"""Integer weights of float operators: kernels that quantize activations on the fly take them as they are.

before:  w:i8 → Dequantize → MatMul(x: float) → y: float
after:   MatMul(x: float, w:i8) → y: float

FULLY_CONNECTED, which is as fast as with integer activations, and CONV_2D and TRANSPOSE_CONV where they are faster
than in float although they quantize the image (``convolution_tiles``).  Other operators keep the Dequantize, which
runtimes compute once, when they load the model: a depthwise convolution with such weights leaves XNNPACK and is several
times slower than in float.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.profile import KEEP_FLOAT
from convertkit.targets.tflite.convolution_tiles import convolution_tiles
from convertkit.targets.tflite.marks import NHWC, OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.edits import constant, drop_if_unused, insert_before, new_constant
from convertkit.targets.tflite.passes.part import Part
from convertkit.tiles import ConvShape, TransposedShape

_DENSE = {("", "Gemm"), ("", "MatMul"), (OWN, "Dense")}


def fold_hybrid(part: Part) -> None:
    """Feed integer weights straight to matrix products with float activations, in place."""
    for node in list(part.graph):
        if node.domain == "" and node.op_type in _RECURRENT:
            _fold_recurrent(node)
            continue
        _as_dense(part, node)
        dense = (node.domain, node.op_type) in _DENSE
        if not (dense or _is_whole_conv(node)) or KEEP_FLOAT in node.metadata_props:
            continue
        out_axis = _out_axis(node)
        first, weight = node.inputs[0], node.inputs[1]
        widened = None if weight is None else weight.producer()
        if first is None or widened is None or widened.domain != OWN or _is_quantized(first):
            continue
        stored = widened.inputs[0]
        params = None if stored is None else quantization_of(stored)
        if (
            stored is None
            or constant(stored) is None
            or params is None
            or any(params.zero_point)
            or len(stored.shape or ()) != (2 if dense else 4)
        ):
            continue
        if params.axis in (None, out_axis) and _is_plain(node) if dense else params.axis == out_axis:
            node.replace_input_with(1, stored)
            drop_if_unused(widened)


def _as_dense(part: Part, node: ir.Node) -> None:
    """A convolution of one element with int4 weights is a dense layer: CONV_2D has no fast kernel for them."""
    weight = node.inputs[1] if (node.domain, node.op_type) == (NHWC, "Conv") else None
    widened = None if weight is None else weight.producer()
    stored = None if widened is None or widened.domain != OWN else widened.inputs[0]
    params, array = (None, None) if stored is None else (quantization_of(stored), constant(stored))
    if widened is None or array is None or params is None or array.dtype.name != "int4" or params.axis not in (None, 0):
        return
    moves = {name: node.attributes.get(name) for name in ("group", "strides", "pads", "dilations")}
    still = all(given is None or set(np.atleast_1d(given.value)) <= _STILL[name] for name, given in moves.items())
    if not still or array.size != array.shape[0] * array.shape[1]:
        return
    columns = new_constant(part.graph, f"{node.name}/columns", np.ascontiguousarray(array.reshape(array.shape[:2]).T))
    set_quantization(columns, params if params.axis is None else params.moved(1))
    real = ir.node("Dequantize", [columns], domain=OWN, name=f"{node.name}/real")
    made = insert_before(node, real, like=widened.outputs[0])
    made.name, made.shape = f"{columns.name}/real", columns.shape
    node.op_type, node.domain = "Dense", OWN
    node.attributes.clear()
    node.replace_input_with(1, made)
    drop_if_unused(widened)


def _is_quantized(value: ir.Value) -> bool:
    """Whether the graph says to what integers the activations are rounded: the kernel would choose others."""
    producer = value.producer()
    while producer is not None and producer.op_type in _MOVES and producer.inputs[0] is not None:
        producer = producer.inputs[0].producer()
    dequantized = producer is not None and producer.op_type in ("Dequantize", "DequantizeLinear")
    return dequantized or quantization_of(value) is not None


def _fold_recurrent(node: ir.Node) -> None:
    """Weights with a scale for each row of a gate, zero points 0; their products are dense ones, made later."""
    for index in (1, 2):
        value = node.inputs[index]
        widened = None if value is None else value.producer()
        stored = None if widened is None or widened.domain != OWN else widened.inputs[0]
        params = None if stored is None else quantization_of(stored)
        if stored is None or widened is None or constant(stored) is None or params is None:
            continue
        if params.axis in (None, 1) and not any(params.zero_point) and stored.dtype == ir.DataType.INT8:
            node.replace_input_with(index, stored)
            drop_if_unused(widened)


_STILL = {"group": {1}, "strides": {1}, "pads": {0}, "dilations": {1}}
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_FEWEST_CHANNELS = 16
_CONVOLUTIONS = {(NHWC, "Conv"), (NHWC, "ConvTranspose")}
_IMAGE_RANK = 4
_TYPICAL = 32
"""Stands for a free height or width."""


def _is_whole_conv(node: ir.Node) -> bool:
    """A convolution without groups, of several elements, whose integer kernel is the faster one.

    With one element float stays: quantizing the image takes much of what the integer product saves (measured:
    MobileNetV2), and it costs 4 dB there.
    """
    weight = node.inputs[1] if (node.domain, node.op_type) in _CONVOLUTIONS else None
    if weight is None or weight.shape is None or not weight.shape.is_static():
        return False
    sizes = tuple(int(size) for size in weight.shape.numpy())
    if node.attributes.get_int("group", 1) != 1 or math.prod(sizes[2:]) == 1:
        return False
    if len(sizes) != _IMAGE_RANK or set(node.attributes.get_ints("dilations", (1,))) != {1} or _is_four_bits(weight):
        return node.op_type == "Conv" and sizes[1] >= _FEWEST_CHANNELS
    image, result = (_sizes(value) for value in (node.inputs[0], node.outputs[0]))
    strides = node.attributes.get_ints("strides", (1, 1))
    shape: ConvShape | TransposedShape
    if node.op_type == "ConvTranspose":
        taps = math.prod(sizes[2:]) / math.prod(strides)
        shape = TransposedShape(math.prod(result[:-1]), taps, sizes[0], sizes[1])
    else:
        window = sizes[2], sizes[3]
        shape = ConvShape(math.prod(result[:-1]), result[-2], window, int(strides[1]), sizes[1], sizes[0])
    return convolution_tiles().pays_between_floats(shape, math.prod(image))


def _sizes(image: ir.Value | None) -> tuple[int, ...]:
    """Of a channels-last image; a free batch counts as 1."""
    assert image is not None
    assert image.shape is not None
    usual = (1, *[_TYPICAL] * (len(image.shape) - 1))
    return tuple(size if isinstance(size, int) else typical for size, typical in zip(image.shape, usual, strict=True))


def _is_four_bits(weight: ir.Value) -> bool:
    """Whether a weight behind Dequantize is int4, whose Dequantize runtimes compute at each call."""
    widened = weight.producer()
    stored = None if widened is None else constant(widened.inputs[0])
    return stored is not None and stored.dtype.name == "int4"


def _out_axis(node: ir.Node) -> int:
    """The axis of the weight along which results lie."""
    if (node.domain, node.op_type) == (NHWC, "Conv"):
        return 0
    transposed = node.attributes.get("transB")
    return 0 if transposed is not None and transposed.value else 1


def _is_plain(node: ir.Node) -> bool:
    """Gemm without factors, with a bias that the kernel takes."""
    plain = all(name not in node.attributes or node.attributes[name].value == 1.0 for name in ("alpha", "beta"))
    transposed = node.attributes.get("transA")
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return plain and not (transposed is not None and transposed.value) and (bias is None or constant(bias) is not None)

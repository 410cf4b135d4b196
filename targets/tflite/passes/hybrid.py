"""Integer weights of float operators: kernels that quantize activations on the fly take them as they are.

before:  w:i8 → Dequantize → MatMul(x: float) → y: float
after:   MatMul(x: float, w:i8) → y: float

FULLY_CONNECTED, CONV_2D and TRANSPOSE_CONV where they are faster than in float although they quantize what they read
(``costs.tables``); a large FULLY_CONNECTED is as fast as with integer activations.  Other operators keep the
Dequantize, which runtimes compute once, when they load the model: a depthwise convolution with such weights leaves
XNNPACK and is several times slower than in float.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.kernel_costs import KernelCosts
from convertkit.onnx.edit import array_of
from convertkit.profile import KEEP_FLOAT
from convertkit.targets.forms.edits import drop_if_unused, insert_before, new_constant
from convertkit.targets.tflite.annotations import NHWC, OWN, quantization_of, set_quantization
from convertkit.targets.tflite.passes.hybrid_gains import CONVOLUTIONS, gain_ns
from convertkit.targets.tflite.passes.part import Part

_DENSE = {("", "Gemm"), ("", "MatMul"), (OWN, "Dense")}


def fold_hybrid(part: Part, kernel_costs: KernelCosts) -> None:
    """Feed integer weights straight to matrix products with float activations, in place."""
    for node in list(part.graph):
        if node.domain == "" and node.op_type in _RECURRENT:
            _fold_recurrent(node)
        else:
            _as_dense(part, node)
    stored = {node: weight for node in part.graph if (weight := _integer_weight(node)) is not None}
    gains = {node: gain_ns(node, weight, _out_axis(node), kernel_costs) for node, weight in stored.items()}
    if sum(gains.values()) <= kernel_costs.start_ns:
        return
    for node, weight in stored.items():
        widened = node.inputs[1].producer() if node.inputs[1] is not None else None
        if gains[node] > 0 and widened is not None:
            node.replace_input_with(1, weight)
            drop_if_unused(widened)


def _integer_weight(node: ir.Node) -> ir.Value | None:
    """The integers behind the weight of a product that its kernel would take as they are, with float activations."""
    dense = (node.domain, node.op_type) in _DENSE
    if not (dense or (node.domain, node.op_type) in CONVOLUTIONS) or KEEP_FLOAT in node.metadata_props:
        return None
    first, weight = node.inputs[0], node.inputs[1]
    widened = None if weight is None else weight.producer()
    if first is None or widened is None or widened.domain != OWN or _is_quantized(first):
        return None
    stored = widened.inputs[0]
    params = None if stored is None else quantization_of(stored)
    if stored is None or array_of(stored) is None or params is None or any(params.zero_point):
        return None
    out_axis = _out_axis(node)
    if dense:
        fits = len(stored.shape or ()) == _MATRIX_RANK and params.axis in (None, out_axis) and _is_plain(node)
    else:
        fits = len(stored.shape or ()) == _IMAGE_RANK and params.axis == out_axis
    return stored if fits else None


def _as_dense(part: Part, node: ir.Node) -> None:
    """A convolution of one element with int4 weights is a dense layer: CONV_2D has no fast kernel for them."""
    weight = node.inputs[1] if (node.domain, node.op_type) == (NHWC, "Conv") else None
    widened = None if weight is None else weight.producer()
    stored = None if widened is None or widened.domain != OWN else widened.inputs[0]
    params, array = (None, None) if stored is None else (quantization_of(stored), array_of(stored))
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
        if stored is None or widened is None or array_of(stored) is None or params is None:
            continue
        if params.axis in (None, 1) and not any(params.zero_point) and stored.dtype == ir.DataType.INT8:
            node.replace_input_with(index, stored)
            drop_if_unused(widened)


_STILL = {"group": {1}, "strides": {1}, "pads": {0}, "dilations": {1}}
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_MATRIX_RANK, _IMAGE_RANK = 2, 4


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
    return plain and not (transposed is not None and transposed.value) and (bias is None or array_of(bias) is not None)

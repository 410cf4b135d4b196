"""What products save that take integer weights and quantize their activations in the kernel, by measured costs."""

from __future__ import annotations

import math

import onnx_ir as ir

from convertkit.kernel_costs import ConvShape, DenseShape, KernelCosts, Shape, TransposedShape
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.costs.tables import int4_costs

CONVOLUTIONS = {(NHWC, "Conv"), (NHWC, "ConvTranspose")}
_IMAGE_RANK = 4
_TYPICAL = 32
"""Stands for a dynamic height or width."""


def gain_ns(node: ir.Node, stored: ir.Value, out_axis: int, kernel_costs: KernelCosts) -> float:
    """Nanoseconds that ``node`` saves with ``stored`` for its weight; infinite where it always does, else 0 or less."""
    assert stored.shape is not None
    weight = tuple(int(size) for size in stored.shape.numpy())
    four_bits = stored.dtype == ir.DataType.INT4  # behind Dequantize, they would be made real at each call
    if (node.domain, node.op_type) in CONVOLUTIONS:
        return _of_convolution(node, weight, kernel_costs, four_bits=four_bits)
    wide, deep = weight[out_axis], weight[1 - out_axis]
    rows = math.prod(_sizes(node.outputs[0])) // max(wide, 1)
    return math.inf if four_bits else kernel_costs.gain_on_the_fly(DenseShape(rows, deep, wide))


def _of_convolution(node: ir.Node, weight: tuple[int, ...], kernel_costs: KernelCosts, *, four_bits: bool) -> float:
    """With one element float stays: quantizing the image takes much of what the integer product saves, and 4 dB.

    Measured on MobileNetV2.
    """
    if node.attributes.get_int("group", 1) != 1 or math.prod(weight[2:]) == 1:
        return 0.0
    if four_bits or set(node.attributes.get_ints("dilations", (1,))) != {1}:
        return math.inf if node.op_type == "Conv" and weight[1] >= int4_costs().least_channels else 0.0
    result, strides = _sizes(node.outputs[0]), node.attributes.get_ints("strides", (1,))
    if len(result) != _IMAGE_RANK:
        return 0.0
    if node.op_type == "ConvTranspose":
        if _is_free(node.outputs[0]):  # its size is computed at run time: not XNNPACK's, four times as slow
            return 0.0
        taps = math.prod(weight[2:]) / math.prod(strides)
        shape: Shape = TransposedShape(math.prod(result[:-1]), taps, *weight[:2])
        return kernel_costs.gain_between_floats(shape, math.prod(_sizes(node.inputs[0])))
    shape = ConvShape(
        math.prod(result[:-1]), result[-2], (weight[2], weight[3]), int(strides[-1]), weight[1], weight[0]
    )
    return kernel_costs.gain_between_floats(shape, math.prod(_sizes(node.inputs[0])))


def _is_free(value: ir.Value) -> bool:
    return value.shape is None or not value.shape.is_static()


def _sizes(value: ir.Value | None) -> tuple[int, ...]:
    """Of a tensor; a dynamic batch counts as 1."""
    if value is None or value.shape is None:
        return ()
    usual = (1, *[_TYPICAL] * len(value.shape))[: len(value.shape)]
    return tuple(size if isinstance(size, int) else typical for size, typical in zip(value.shape, usual, strict=True))

"""What multiplies and adds to each channel behind a convolution, folded into it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import (
    array_of,
    initializer,
    is_float32,
    only_user,
    producer,
    replaced,
    sizes,
)


def recognise_convolution_affine(node: ir.Node) -> None:
    """A constant per channel behind a convolution with constant weights: bias, or batch normalisation.

    before:  Add | Sub | Mul | Div (Conv(x, W, b), c)
    after:   Conv(x, W', b')

    Weights are multiplied in double precision and rounded once; nothing is done where that overflows.
    """
    if node.domain != "" or node.op_type not in ("Add", "Sub", "Mul", "Div") or not is_float32(node.outputs[0]):
        return
    places = (0, 1) if node.op_type in ("Add", "Mul") else (0,)
    for place in places:
        convolution = producer(node.inputs[place], "Conv")
        if convolution is None or only_user(convolution.outputs[0]) is not node:
            continue
        weights, shape = array_of(convolution.inputs[1]), sizes(convolution.outputs[0])
        bias = array_of(convolution.inputs[2]) if len(convolution.inputs) > 2 else None
        constant = array_of(node.inputs[1 - place])
        if weights is None or shape is None or constant is None or sizes(node.outputs[0]) != shape:
            continue
        if len(convolution.inputs) > 2 and bias is None:
            continue
        channels = _per_channel(constant, weights.shape[0], len(shape))
        if channels is not None:
            _fold(node, convolution, weights, bias, channels)
            return


def _per_channel(constant: Array, channels: int, rank: int) -> Array | None:
    """One float64 for each channel, where the constant varies along nothing else."""
    whole = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    if any(size != 1 for axis, size in enumerate(whole.shape) if axis != 1) or whole.shape[1] not in (1, channels):
        return None
    return np.array(np.broadcast_to(whole.reshape(-1), channels), np.float64)


def _fold(node: ir.Node, convolution: ir.Node, weights: Array, bias: Array | None, channels: Array) -> None:
    x, stem = convolution.inputs[0], node.outputs[0].name
    offset = np.zeros(len(channels)) if bias is None else bias.astype(np.float64)
    scaled = weights
    with np.errstate(all="ignore"):
        if node.op_type in ("Add", "Sub"):
            offset = offset + (channels if node.op_type == "Add" else -channels)
        else:
            factor = channels if node.op_type == "Mul" else 1 / channels
            scaled = (weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))).astype(np.float32)
            offset = offset * factor
        row = offset.astype(np.float32)
    if x is None or not (np.isfinite(scaled).all() and np.isfinite(row).all()):
        return
    kernel = convolution.inputs[1] if scaled is weights else initializer(node, scaled, f"{stem}/weights")
    assert kernel is not None
    has_bias = bias is not None or bool(row.any())
    inputs = [x, kernel, initializer(node, row, f"{stem}/bias")] if has_bias else [x, kernel]
    made = replaced(node, "Conv", inputs)
    made.attributes.update(convolution.attributes)

"""BatchNormalization by stored statistics as a factor and an offset for each channel, and both in a convolution.

Who folds decides what may be folded and in which type it is written; here is what is computed, in float64.
Source: ONNX operators, BatchNormalization-15: ``(x - mean) / sqrt(variance + epsilon) * scale + shift``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array


def factor_and_offset(node: ir.Node, parameters: Sequence[Array]) -> tuple[Array, Array]:
    """What ``node`` multiplies each channel by and adds to it: two float64 arrays (channels).

    ``parameters`` are its inputs behind the first: scale, shift, mean and variance, each (channels).
    """
    scale, shift, mean, variance = (each.astype(np.float64) for each in parameters)
    factor: Array = scale / np.sqrt(variance + node.attributes.get_float("epsilon", 1e-5))
    return factor, shift - mean * factor


def output_channels(conv: ir.Node, weight: Array) -> int:
    """Channels that a Conv or ConvTranspose with ``weight`` gives."""
    if conv.op_type == "Conv":
        return int(weight.shape[0])
    return int(weight.shape[1]) * conv.attributes.get_int("group", 1)


def scaled_and_shifted(
    conv: ir.Node, weight: Array, bias: Array | None, factor: Array, offset: Array
) -> tuple[Array, Array]:
    """Weight and bias with which a Conv or ConvTranspose computes ``conv(x) * factor + offset``, in float64.

    ``factor`` and ``offset`` are float64 with one number for each channel that ``conv`` gives.
    """
    spatial = (1,) * (weight.ndim - 2)
    if conv.op_type == "Conv":
        scaled = weight * factor.reshape(-1, 1, *spatial)
    else:
        groups = conv.attributes.get_int("group", 1)
        per_group = weight.reshape(groups, -1, *weight.shape[1:])
        scaled = (per_group * factor.reshape(groups, 1, -1, *spatial)).reshape(weight.shape)
    old = np.zeros_like(factor) if bias is None else bias.astype(np.float64)
    return scaled, old * factor + offset

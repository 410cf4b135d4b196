"""Normalisations over the last axes, written so that XNNPACK runs every step."""

from __future__ import annotations

import numpy as np

from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import Tensor

norms = Registry()


@norms.lowers("LayerNormalization", since=17)
def layer_normalization(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, centred squares, RSQRT; the outputs are Y, Mean and InvStdDev."""
    axes = range(axis % x.rank, x.rank)
    mean = b.mean(x, axes, keep_dims=True)
    centred = b.sub(x, mean)
    variance = b.mean(b.mul(centred, centred), axes, keep_dims=True)
    inverse = b.rsqrt(b.add(variance, b.constant(np.array(epsilon, np.float32))))
    y = b.mul(centred, inverse)
    if scale.constant is None or not (scale.constant == 1).all():
        y = b.mul(y, scale)
    return (y if bias is None else b.add(y, bias)), mean, inverse


@norms.lowers("RMSNormalization", since=23)
def rms_normalization(
    b: Builder, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axes = range(axis % x.rank, x.rank)
    power = b.mean(b.mul(x, x), axes, keep_dims=True)
    inverse = b.rsqrt(b.add(power, b.constant(np.array(epsilon, np.float32))))
    return b.mul(b.mul(x, inverse), scale)

"""Normalisations; channels are the outermost axis of a blob."""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.ncnn.builder import Builder, raw
from convertkit.targets.ncnn.handlers.arithmetic import binary
from convertkit.targets.ncnn.handlers.convolutions import one_image
from convertkit.targets.ncnn.tensor import Tensor, constant

norms = Registry()


@norms.lowers("BatchNormalization", since=(14, 15))
def batch_normalization(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Tensor:
    """The statistics are stored ones; of several samples the layer takes the samples for channels."""
    if training_mode:
        raise Unsupported("training_mode: an artifact does not train")
    if x.rank < 2 or x.shape[0] != 1:
        return _scaled(b, x, [each.known.astype(np.float64) for each in (scale, bias, mean, variance)], epsilon)
    weights = [raw(each.known) for each in (scale, mean, variance, bias)]
    given = b.plain(x)
    return b.layer("BatchNorm", [given], x.shape, given.sizes, {0: x.shape[1], 1: epsilon}, weights)


def _scaled(b: Builder, x: Tensor, statistics: list[Array], epsilon: float) -> Tensor:
    """A product and a sum for each channel."""
    scale, bias, mean, variance = statistics
    factor = scale / np.sqrt(variance + epsilon)
    sides = (-1, *[1] * (x.rank - 2)) if x.rank > 1 else (1,)
    stored = [constant(each.astype(np.float32).reshape(sides)) for each in (factor, bias - mean * factor)]
    return binary(b, "Add", binary(b, "Mul", x, stored[0]), stored[1])


@norms.lowers("InstanceNormalization", since=(6, 22))
def instance_normalization(b: Builder, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Over all spatial axes, which may be taken for one."""
    one_image(x, x.rank - 2)
    given = b.view(x, (x.shape[1], 1, math.prod(x.shape[2:])))
    weights = [raw(scale.known), raw(bias.known)]
    return b.layer("InstanceNorm", [given], x.shape, given.sizes, {0: x.shape[1], 1: epsilon, 2: 1}, weights)


@norms.lowers("GroupNormalization", since=21)
def group_normalization(
    b: Builder, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Tensor:
    """Over the spatial axes and the channels of a group."""
    one_image(x, x.rank - 2)
    given = b.view(x, (x.shape[1], 1, math.prod(x.shape[2:])))
    weights = [raw(scale.known), raw(bias.known)]
    parameters = {0: num_groups, 1: x.shape[1], 2: epsilon, 3: 1}
    return b.layer("GroupNorm", [given], x.shape, given.sizes, parameters, weights)


@norms.lowers("LayerNormalization", since=17)
def layer_normalization(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Tensor:
    """Rows of all elements behind ``axis``."""
    width = math.prod(x.shape[axis % x.rank :])
    given = b.view(x, (math.prod(x.shape) // width, width))
    gamma = np.broadcast_to(scale.known, x.shape[axis % x.rank :])
    beta = np.zeros_like(gamma) if bias is None else np.broadcast_to(bias.known, x.shape[axis % x.rank :])
    weights = [raw(gamma), raw(beta)]
    return b.layer("LayerNorm", [given], x.shape, given.sizes, {0: width, 1: epsilon, 2: 1}, weights)


@norms.lowers("LRN", since=13)
def lrn(b: Builder, x: Tensor, *, alpha: float = 0.0001, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """Across channels, as many before as behind."""
    if size % 2 == 0:
        raise Unsupported(f"size {size}: ncnn takes as many channels before as behind, so an odd number")
    one_image(x, x.rank - 2)
    given = b.view(x, (x.shape[1], 1, math.prod(x.shape[2:])))
    return b.layer("LRN", [given], x.shape, given.sizes, {0: 0, 1: size, 2: alpha, 3: beta, 4: bias})

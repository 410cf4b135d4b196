"""ONNX normalizations as MIL."""

from __future__ import annotations

import math

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import known
from convertkit.targets.coreml.tensor import Tensor, constant

norms = Registry()


@norms.lowers("BatchNormalization", since=15)
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
    """A product and a sum for each channel where the numbers are known, which rounds less than MIL's four steps."""
    if training_mode:
        raise Unsupported("training_mode, where the statistics are those of the batch")
    view = (-1, *[1] * (x.rank - 2))
    if all(each.array is not None for each in (scale, bias, mean, variance)):
        spread = [known(each, "parameters").astype("float64") for each in (scale, bias, mean, variance)]
        factor = spread[0] / (spread[3] + epsilon) ** 0.5
        offset = spread[1] - spread[2] * factor
        scaled = b.op("mul", x=x, y=constant(factor.astype(x.dtype).reshape(view)))
        return b.op("add", x=scaled, y=constant(offset.astype(x.dtype).reshape(view)))
    centred = b.op("sub", x=x, y=b.reshape(mean, view))
    root = b.op("sqrt", x=b.op("add", x=b.reshape(variance, view), y=b.full(epsilon, x)))
    scaled = b.op("mul", x=b.op("real_div", x=centred, y=root), y=b.reshape(scale, view))
    return b.op("add", x=scaled, y=b.reshape(bias, view))


@norms.lowers("InstanceNormalization", since=(6, 22))
def instance_normalization(b: Builder, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """``layer_norm`` over space, which has any number of axes."""
    view = (-1, *[1] * (x.rank - 2))
    unit = b.op("layer_norm", x=x, axes=tuple(range(2, x.rank)), epsilon=b.real(epsilon, x))
    return b.op("add", x=b.op("mul", x=unit, y=b.reshape(scale, view)), y=b.reshape(bias, view))


@norms.lowers("GroupNormalization", since=21)
def group_normalization(
    b: Builder,
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    *,
    epsilon: float = 1e-5,
    num_groups: int,
    stash_type: int = 1,
) -> Tensor:
    """``layer_norm`` over each group's channels and space, which are flattened for it."""
    n, channels, space = x.size(0), x.size(1), x.sizes[2:]
    grouped = b.reshape(x, (n, num_groups, channels // num_groups * math.prod(space)))
    unit = b.reshape(b.op("layer_norm", x=grouped, axes=(-1,), epsilon=b.real(epsilon, x)), x.sizes)
    view = (-1, *[1] * (x.rank - 2))
    return b.op("add", x=b.op("mul", x=unit, y=b.reshape(scale, view)), y=b.reshape(bias, view))


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
) -> tuple[Tensor, Tensor, Tensor]:
    """With mean and inverse deviation, which are dropped where nobody reads them."""
    axes = tuple(range(axis % x.rank, x.rank))
    mean = b.op("reduce_mean", x=x, axes=axes, keep_dims=True)
    centred = b.op("sub", x=x, y=mean)
    variance = b.op("reduce_mean", x=b.op("mul", x=centred, y=centred), axes=axes, keep_dims=True)
    inverse = b.op("rsqrt", x=variance, epsilon=b.real(epsilon, x))
    return _scaled_layer(b, x, scale, bias, axes, epsilon), mean, inverse


def _scaled_layer(
    b: Builder, x: Tensor, scale: Tensor, bias: Tensor | None, axes: tuple[int, ...], epsilon: float
) -> Tensor:
    inner = [x.shape[each] for each in axes]
    if all(each is None or (each.array is not None and list(each.shape) == inner) for each in (scale, bias)):
        return b.op("layer_norm", x=x, axes=axes, gamma=scale, beta=bias, epsilon=b.real(epsilon, x))
    scaled = b.op("mul", x=b.op("layer_norm", x=x, axes=axes, epsilon=b.real(epsilon, x)), y=scale)
    return scaled if bias is None else b.op("add", x=scaled, y=bias)


@norms.lowers("RMSNormalization", since=23)
def rms_normalization(
    b: Builder, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    axes = tuple(range(axis % x.rank, x.rank))
    mean = b.op("reduce_mean", x=b.op("mul", x=x, y=x), axes=axes, keep_dims=True)
    root = b.op("sqrt", x=b.op("add", x=mean, y=b.full(epsilon, x)))
    return b.op("mul", x=b.op("real_div", x=x, y=root), y=scale)


@norms.lowers("LpNormalization", since=(1, 22))
def lp_normalization(b: Builder, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Where the norm is 0, so is the result."""
    kind = "reduce_l1_norm" if p == 1 else "reduce_l2_norm"
    norm = b.op(kind, x=x, axes=(axis,), keep_dims=True)
    is_zero = b.op("equal", x=norm, y=b.full(0, x))
    return b.op("real_div", x=x, y=b.select(is_zero, b.full(1, x), norm))

"""Convolutions, pooling, norms, activations and softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.mxnet.attributes import Attributes
from convertkit.converters.mxnet.evaluate.elements import UNARY, erf
from convertkit.errors import Unsupported


def spatial(a: Attributes) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Kernel, stride and padding (the same before and after) of each axis."""
    kernel = a.ints("kernel")
    rank = len(kernel)
    return kernel, a.ints("stride", (1,) * rank), a.ints("pad", (0,) * rank)


def plain_layout(a: Attributes) -> None:
    """Channels first is all that is understood."""
    a.refuse("layout", "None", "NCW", "NCHW", "NCDHW")


def _at(*parts: Any) -> tuple[Any, ...]:
    """An index."""
    return parts


def _convolution(a: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    kernel, stride, pad = spatial(a)
    dilate, groups = a.ints("dilate", (1,) * len(kernel)), a.whole("num_group", 1)
    a.whole("num_filter")
    a.flag("no_bias")
    plain_layout(a)
    x = np.pad(x, ((0, 0), (0, 0), *((each, each) for each in pad)))
    sizes = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], kernel, stride, dilate)]
    made = np.zeros((len(x), len(weight), *sizes))
    per_in, per_out = x.shape[1] // groups, len(weight) // groups
    for offset in product(*map(range, kernel)):
        ends = zip(offset, sizes, stride, dilate)
        taken = x[_at(..., *(slice(o * d, o * d + s * (n - 1) + 1, s) for o, n, s, d in ends))]
        for group in range(groups):
            part = taken[:, group * per_in : (group + 1) * per_in]
            rows = slice(group * per_out, (group + 1) * per_out)
            made[:, rows] += np.einsum("nc...,oc->no...", part, weight[_at(rows, slice(None), *offset)])
    return made if bias is None else made + bias.reshape(-1, *(1,) * len(kernel))


def _deconvolution(a: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    kernel, stride, pad = spatial(a)
    rank = len(kernel)
    dilate, adj, groups = a.ints("dilate", (1,) * rank), a.ints("adj", (0,) * rank), a.whole("num_group", 1)
    a.whole("num_filter")
    a.flag("no_bias", True)
    plain_layout(a)
    a.refuse("target_shape", "None", "()", "[]")
    full = [(n - 1) * s + d * (k - 1) + 1 + e for n, s, d, k, e in zip(x.shape[2:], stride, dilate, kernel, adj)]
    per_in, per_out = x.shape[1] // groups, weight.shape[1]
    made = np.zeros((len(x), per_out * groups, *full))
    for offset in product(*map(range, kernel)):
        ends = zip(offset, x.shape[2:], stride, dilate)
        place = _at(..., *(slice(o * d, o * d + s * (n - 1) + 1, s) for o, n, s, d in ends))
        for group in range(groups):
            part = x[:, group * per_in : (group + 1) * per_in]
            taps = weight[_at(slice(group * per_in, (group + 1) * per_in), slice(None), *offset)]
            made[:, group * per_out : (group + 1) * per_out][place] += np.einsum("nc...,co->no...", part, taps)
    made = made[_at(..., *(slice(p, n - p) for p, n in zip(pad, full)))]
    return np.asarray(made if bias is None else made + bias.reshape(-1, *(1,) * rank))


def _pooling(a: Attributes, x: Array) -> Array:
    kind, full = a.word("pool_type", "max"), a.word("pooling_convention", "valid") == "full"
    inside = a.flag("count_include_pad", True)
    kernel, stride, pad = spatial(a)
    a.flag("global_pool")
    plain_layout(a)
    a.refuse("p_value", "None", "2")
    hows: Mapping[str, Callable[..., Any]] = {"max": np.max, "avg": np.mean, "sum": np.sum}
    if kind not in hows:
        raise Unsupported(f"pool_type={kind}", subject=a.title)
    if a.flag("global_pool"):
        return np.asarray(hows[kind](x, axis=tuple(range(2, x.ndim)), keepdims=True))
    sizes = [1 + (ceil if full else floor)((n + 2 * p - k) / s) for n, k, s, p in zip(x.shape[2:], kernel, stride, pad)]
    made = np.empty((*x.shape[:2], *sizes))
    for place in product(*map(range, sizes)):
        begins = [at * s - p for at, s, p in zip(place, stride, pad)]
        ends = [min(b + k, n + p) for b, k, n, p in zip(begins, kernel, x.shape[2:], pad)]
        parts = x[_at(..., *(slice(max(b, 0), min(e, n)) for b, e, n in zip(begins, ends, x.shape[2:])))]
        axes = tuple(range(2, x.ndim))
        if kind == "max":
            made[_at(..., *place)] = parts.max(axes, initial=-np.inf)
            continue
        count = np.prod([e - b for b, e in zip(begins, ends)]) if inside else np.prod(parts.shape[2:])
        made[_at(..., *place)] = parts.sum(axes) / (count if kind == "avg" else 1)
    return np.asarray(made)


def _batch_norm(a: Attributes, x: Array, gamma: Array, beta: Array, mean: Array, var: Array) -> Array:
    axis = a.whole("axis", 1) % x.ndim
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    a.flag("use_global_stats")
    a.refuse("output_mean_var", "False", "0", "false")
    scale = np.ones_like(gamma) if a.flag("fix_gamma", True) else gamma
    scale = scale / np.sqrt(var + a.real("eps", 1e-3))
    return (x - mean.reshape(shape)) * scale.reshape(shape) + beta.reshape(shape)


def _layer_norm(a: Attributes, x: Array, gamma: Array, beta: Array) -> Array:
    axis = a.whole("axis", -1) % x.ndim
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    a.refuse("output_mean_var", "False", "0", "false")
    return _normal(x, (axis,), a.real("eps", 1e-5)) * gamma.reshape(shape) + beta.reshape(shape)


def _instance_norm(a: Attributes, x: Array, gamma: Array, beta: Array) -> Array:
    shape = (-1, *(1,) * (x.ndim - 2))
    made = _normal(x, tuple(range(2, x.ndim)), a.real("eps", 1e-3))
    return made * gamma.reshape(shape) + beta.reshape(shape)


def _normal(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon))


def _l2_normalization(a: Attributes, x: Array) -> Array:
    rank = x.ndim
    modes = {"instance": tuple(range(1, rank)), "channel": (1,), "spatial": tuple(range(2, rank))}
    a.refuse("mode", *modes)
    axes = modes[a.word("mode", "instance")]
    return np.asarray(x / np.sqrt((x**2).sum(axes, keepdims=True) + a.real("eps", 1e-10)))


def _lrn(a: Attributes, x: Array) -> Array:
    size = a.whole("nsize")
    padded = np.pad(x**2, ((0, 0), (size // 2, size // 2), *((0, 0),) * (x.ndim - 2)))
    sums = sum(padded[:, place : place + x.shape[1]] for place in range(size))
    base = a.real("knorm", 2.0) + a.real("alpha", 1e-4) / size * np.asarray(sums)
    return np.asarray(x / base ** a.real("beta", 0.75))


def _activation(a: Attributes, x: Array) -> Array:
    kind = a.word("act_type", "")
    if kind not in ("softrelu", *UNARY):
        raise Unsupported(f"act_type={kind}", subject=a.title)
    return np.logaddexp(0, x) if kind == "softrelu" else UNARY[kind](x)


def _leaky_relu(a: Attributes, x: Array, gamma: Array | None = None) -> Array:
    kind, slope = a.word("act_type", "leaky"), a.real("slope", 0.25)
    lower, upper = a.real("lower_bound", 0.125), a.real("upper_bound", 0.334)
    if kind == "prelu":
        assert gamma is not None, "the graph has it"
        return np.where(x > 0, x, x * (gamma if gamma.size == 1 else gamma.reshape(-1, *(1,) * (x.ndim - 2))))
    if kind == "gelu":
        return np.asarray(x * (1 + erf(x / np.sqrt(2))) / 2)
    if kind in ("elu", "selu"):
        alpha, scale = (1.6732632423543772, 1.0507009873554805) if kind == "selu" else (slope, 1.0)
        return np.asarray(scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))
    return np.where(x > 0, x, x * ((lower + upper) / 2 if kind == "rrelu" else slope))


def _softmax_over(x: Array, axis: int) -> Array:
    raised = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(raised / raised.sum(axis, keepdims=True))


def _softmax(a: Attributes, x: Array) -> Array:
    a.refuse("use_length", "False", "0", "false")
    a.refuse("dtype", "None")
    return _softmax_over(x / a.real("temperature", 1.0), a.whole("axis", -1))


def _log_softmax(a: Attributes, x: Array) -> Array:
    return np.asarray(np.log(_softmax(a, x)))


def _softmax_output(a: Attributes, x: Array, *labels: Array) -> Array:
    if a.flag("multi_output"):
        return _softmax_over(x, 1)
    if a.flag("preserve_shape"):
        return _softmax_over(x, -1)
    return _softmax_over(x.reshape(len(x), -1), -1).reshape(x.shape)


def _softmax_activation(a: Attributes, x: Array) -> Array:
    if a.word("mode", "instance") == "channel":
        return _softmax_over(x, 1)
    return _softmax_over(x.reshape(len(x), -1), -1).reshape(x.shape)


def _up_sampling(a: Attributes, x: Array) -> Array:
    scale = a.whole("scale")
    a.refuse("sample_type", "nearest")
    return x.repeat(scale, 2).repeat(scale, 3)


LAYERS: Mapping[str, Callable[..., Array]] = {
    "Convolution": _convolution,
    "Deconvolution": _deconvolution,
    "Pooling": _pooling,
    "BatchNorm": _batch_norm,
    "LayerNorm": _layer_norm,
    "InstanceNorm": _instance_norm,
    "L2Normalization": _l2_normalization,
    "LRN": _lrn,
    "Activation": _activation,
    "LeakyReLU": _leaky_relu,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "SoftmaxOutput": _softmax_output,
    "Softmax": _softmax_output,
    "SoftmaxActivation": _softmax_activation,
    "UpSampling": _up_sampling,
}

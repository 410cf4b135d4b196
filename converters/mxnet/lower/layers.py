"""Convolutions, pooling, norms, activations and softmax."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.converters.mxnet.evaluate.layers import spatial
from convertkit.converters.mxnet.lower.elements import ELEMENTS, Lowering
from convertkit.converters.mxnet.lower.site import Site


def _convolution(s: Site) -> ir.Value:
    kernel, stride, pad = spatial(s.attributes)
    dilate = s.attributes.ints("dilate", (1,) * len(kernel))
    groups = s.attributes.whole("num_group", 1)
    window = {"kernel_shape": list(kernel), "strides": list(stride), "dilations": list(dilate)}
    return s.op("Conv", *s.values, pads=[*pad, *pad], group=groups, **window)


def _deconvolution(s: Site) -> ir.Value:
    kernel, stride, pad = spatial(s.attributes)
    a, ones = s.attributes, (1,) * len(kernel)
    window = {"kernel_shape": list(kernel), "strides": list(stride), "dilations": list(a.ints("dilate", ones))}
    adj = list(a.ints("adj", (0,) * len(kernel)))
    groups = a.whole("num_group", 1)
    return s.op("ConvTranspose", *s.values, pads=[*pad, *pad], output_padding=adj, group=groups, **window)


def _pooling(s: Site) -> ir.Value:
    a, x = s.attributes, s.values[0]
    kind, convention = a.word("pool_type", "max"), a.word("pooling_convention", "valid")
    if kind not in ("max", "avg", "sum") or convention not in ("valid", "full"):
        raise s.refused(f"pool_type={kind}, pooling_convention={convention}")
    if a.flag("global_pool"):
        axes = s.tape.ints(*range(2, s.rank))
        return s.op({"max": "ReduceMax", "avg": "ReduceMean", "sum": "ReduceSum"}[kind], x, axes, keepdims=1)
    kernel, stride, pad = spatial(a)
    window = {"kernel_shape": list(kernel), "strides": list(stride), "pads": [*pad, *pad]}
    ceil = int(convention == "full")
    if kind == "max":
        return s.op("MaxPool", x, ceil_mode=ceil, **window)
    if kind == "sum" and ceil:
        raise s.refused("sums of windows that reach over the end")
    inside = int(kind == "sum" or a.flag("count_include_pad", True))
    mean = s.op("AveragePool", x, ceil_mode=ceil, count_include_pad=inside, **window)
    return mean if kind == "avg" else s.op("Mul", mean, s.tape.number(float(np.prod(kernel))))


def _batch_norm(s: Site) -> ir.Value:
    """``fix_gamma``, which is on by default, takes the stored gamma for 1."""
    a = s.attributes
    x, gamma, beta, mean, var = s.values
    axis = a.whole("axis", 1) % s.rank
    if a.flag("fix_gamma", True):
        gamma = s.tape.weight(np.ones(s.shapes[1], np.float32), f"{s.tape.place}/ones")
    order = [place for place in range(s.rank) if place != axis]
    order.insert(1, axis)
    turned = axis != 1
    x = s.op("Transpose", x, perm=order) if turned else x
    made = s.op("BatchNormalization", x, gamma, beta, mean, var, epsilon=a.real("eps", 1e-3))
    return s.op("Transpose", made, perm=[order.index(place) for place in range(s.rank)]) if turned else made


def _layer_norm(s: Site) -> ir.Value:
    if s.attributes.whole("axis", -1) % s.rank != s.rank - 1:
        raise s.refused("an axis that is not the last")
    return s.op("LayerNormalization", *s.values, axis=-1, epsilon=s.attributes.real("eps", 1e-5))


def _instance_norm(s: Site) -> ir.Value:
    return s.op("InstanceNormalization", *s.values, epsilon=s.attributes.real("eps", 1e-3))


def _l2_normalization(s: Site) -> ir.Value:
    modes = {"instance": range(1, s.rank), "channel": range(1, 2), "spatial": range(2, s.rank)}
    mode = s.attributes.word("mode", "instance")
    if mode not in modes:
        raise s.refused(f"mode={mode}")
    power = s.op("ReduceSumSquare", s.values[0], s.tape.ints(*modes[mode]), keepdims=1)
    level = s.op("Add", power, s.tape.number(s.attributes.real("eps", 1e-10)))
    return s.op("Div", s.values[0], s.op("Sqrt", level))


def _lrn(s: Site) -> ir.Value:
    a = s.attributes
    numbers = {"alpha": a.real("alpha", 1e-4), "beta": a.real("beta", 0.75), "bias": a.real("knorm", 2.0)}
    return s.op("LRN", s.values[0], size=a.whole("nsize"), **numbers)


def _activation(s: Site) -> ir.Value:
    kind = s.attributes.word("act_type", "")
    if kind == "softrelu":
        return s.op("Softplus", s.values[0])
    if kind not in ("relu", "sigmoid", "tanh", "softsign"):
        raise s.refused(f"act_type={kind}")
    return ELEMENTS[kind](s)


def _leaky_relu(s: Site) -> ir.Value:
    a, x = s.attributes, s.values[0]
    kind, slope = a.word("act_type", "leaky"), a.real("slope", 0.25)
    if kind == "prelu":
        spread = s.tape.ints(*([1] if s.shapes[1] == (1,) else [-1, *[1] * (s.rank - 2)]))
        return s.op("PRelu", x, s.op("Reshape", s.values[1], spread))
    if kind == "gelu":
        return s.op("Gelu", x)
    if kind == "selu":
        return s.op("Selu", x)
    if kind == "elu":
        return s.op("Elu", x, alpha=slope)
    if kind == "rrelu":
        slope = (a.real("lower_bound", 0.125) + a.real("upper_bound", 0.334)) / 2
    elif kind != "leaky":
        raise s.refused(f"act_type={kind}")
    return s.op("LeakyRelu", x, alpha=slope)


def _softmax(s: Site) -> ir.Value:
    return _over(s, "Softmax")


def _log_softmax(s: Site) -> ir.Value:
    return _over(s, "LogSoftmax")


def _over(s: Site, kind: str) -> ir.Value:
    warmth = s.attributes.real("temperature", 1.0)
    x = s.values[0] if warmth == 1.0 else s.op("Div", s.values[0], s.tape.number(warmth))
    return s.op(kind, x, axis=s.attributes.whole("axis", -1))


def _softmax_output(s: Site) -> ir.Value:
    """The loss layer of older files; its label is not an input of what ships."""
    if s.attributes.flag("multi_output"):
        return s.op("Softmax", s.values[0], axis=1)
    return s.op("Softmax", s.values[0], axis=-1) if s.attributes.flag("preserve_shape") else _of_rows(s)


def _softmax_activation(s: Site) -> ir.Value:
    if s.attributes.word("mode", "instance") == "channel":
        return s.op("Softmax", s.values[0], axis=1)
    return _of_rows(s)


def _of_rows(s: Site) -> ir.Value:
    """Over everything but the batch."""
    x = s.values[0]
    if s.rank == 2:
        return s.op("Softmax", x, axis=1)
    made = s.op("Softmax", s.op("Flatten", x, axis=1), axis=1)
    return s.op("Reshape", made, s.op("Shape", x))


def _up_sampling(s: Site) -> ir.Value:
    if s.rank != 4 or len(s.values) != 1:
        raise s.refused("several inputs, or another rank than 4")
    scale = float(s.attributes.whole("scale"))
    scales = s.tape.weight(np.array([1, 1, scale, scale], np.float32), f"{s.tape.place}/scales")
    nothing = s.tape.weight(np.zeros(0, np.float32), f"{s.tape.place}/roi")
    ways = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return s.op("Resize", s.values[0], nothing, scales, **ways)


LAYERS: Mapping[str, Lowering] = {
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

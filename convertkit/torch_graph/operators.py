"""ONNX operators as differentiable functions of PyTorch.

Integers that say a shape, an axis or an index are tensors or sequences; they never depend on a sample.
Semantics: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from convertkit.torch_graph.recurrent import RECURRENT

DTYPES: Mapping[int, torch.dtype] = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64,
}  # fmt: skip
"""By ONNX's number of a type."""


def _ints(value: Tensor | Sequence[int]) -> list[int]:
    return [int(each) for each in (value.reshape(-1).tolist() if isinstance(value, Tensor) else value)]


def padded(x: Tensor, pads: Sequence[int], value: float = 0.0) -> Tensor:
    """``pads`` as ONNX has them for the last axes: all beginnings, then all ends."""
    rank = len(pads) // 2
    if not any(pads):
        return x
    turned = [pads[axis + side * rank] for axis in reversed(range(rank)) for side in (0, 1)]
    return functional.pad(x, turned, value=value)


def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, kernel_shape: Sequence[int] = (), strides: Sequence[int] = (),
    pads: Sequence[int] = (), dilations: Sequence[int] = (), group: int = 1,
) -> Tensor:  # fmt: skip
    rank = w.ndim - 2
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    ones = [1] * rank
    return function(padded(x, pads), w, b, tuple(strides) or ones, 0, tuple(dilations) or ones, group)


def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, kernel_shape: Sequence[int] = (), strides: Sequence[int] = (),
    pads: Sequence[int] = (), dilations: Sequence[int] = (), group: int = 1, output_padding: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    rank = w.ndim - 2
    function = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    ones, zeros = [1] * rank, [0] * rank
    made = function(x, w, b, tuple(strides) or ones, 0, tuple(output_padding) or zeros, group, tuple(dilations) or ones)
    return padded(made, [-each for each in pads])


def gemm(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0,
    transB: int = 0,
) -> Tensor:  # fmt: skip
    made = alpha * ((a.mT if transA else a) @ (b.mT if transB else b))
    return made if c is None else made + beta * c


def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, training_mode: int = 0,
) -> Tensor:  # fmt: skip
    shape = (1, -1, *(1,) * (x.ndim - 2))
    factor = scale / torch.sqrt(variance + epsilon)
    return x * factor.reshape(shape) + (bias - mean * factor).reshape(shape)


def layer_normalization(
    x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    made = functional.layer_norm(x, x.shape[axis:], None, None, epsilon) * scale
    return made if bias is None else made + bias


def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    axes, shape = tuple(range(2, x.ndim)), (1, -1, *(1,) * (x.ndim - 2))
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon) * scale.reshape(shape) + bias.reshape(shape)


def max_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] = (), pads: Sequence[int] = (),
    dilations: Sequence[int] = (), ceil_mode: int = 0, storage_order: int = 0,
) -> Tensor:  # fmt: skip
    rank = len(kernel_shape)
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
    ones = [1] * rank
    x = padded(x, pads, float("-inf"))
    return function(x, tuple(kernel_shape), tuple(strides) or ones, 0, tuple(dilations) or ones, bool(ceil_mode))


def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] = (), pads: Sequence[int] = (),
    count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    rank = len(kernel_shape)
    function = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    steps = tuple(strides) or [1] * rank
    made = function(padded(x, pads), tuple(kernel_shape), steps)
    if not any(pads) or count_include_pad:
        return made
    inside = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    return made / function(padded(inside, pads), tuple(kernel_shape), steps)


def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    wanted = _ints(shape)
    return x.reshape([x.shape[i] if size == 0 and not allowzero else size for i, size in enumerate(wanted)])


def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    rows = 1
    for size in x.shape[: axis % (x.ndim + 1)]:
        rows *= size
    return x.reshape(rows, -1)


def squeeze(x: Tensor, axes: Tensor | None = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(_ints(axes)))


def unsqueeze(x: Tensor, axes: Tensor) -> Tensor:
    places = _ints(axes)
    rank = x.ndim + len(places)
    for axis in sorted(each % rank for each in places):
        x = x.unsqueeze(axis)
    return x


def slice_(x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None) -> Tensor:
    firsts, lasts = _ints(starts), _ints(ends)
    places = list(range(len(firsts))) if axes is None else _ints(axes)
    strides = [1] * len(firsts) if steps is None else _ints(steps)
    for first, last, axis, stride in zip(firsts, lasts, places, strides, strict=True):
        size = x.shape[axis]
        before_all = stride < 0 and last < -size
        chosen = range(size)[slice(first, None if before_all else last, stride)]
        x = x.index_select(axis, torch.tensor(list(chosen), dtype=torch.int64))
    return x


def split(x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, num_outputs: int = 0) -> tuple[Tensor, ...]:
    if sizes is None:
        return tuple(x.split(-(-x.shape[axis] // num_outputs), axis))
    return tuple(x.split(_ints(sizes), axis))


def pad(
    x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None, *, mode: str = "constant"
) -> Tensor:
    widths = _ints(pads)
    if axes is not None:
        whole = [0] * (2 * x.ndim)
        for index, axis in enumerate(_ints(axes)):
            whole[axis % x.ndim], whole[axis % x.ndim + x.ndim] = widths[index], widths[index + len(widths) // 2]
        widths = whole
    if mode == "constant":
        return padded(x, widths, 0.0 if value is None else float(value))
    for axis in range(x.ndim):
        before, after, size = widths[axis], widths[axis + x.ndim], x.shape[axis]
        places = torch.arange(-before, size + after)
        if mode == "edge":
            places = places.clamp(0, size - 1)
        else:
            places = (places.abs() if mode == "reflect" else places) % max(2 * size - 2, 1)
            places = torch.where(places >= size, 2 * size - 2 - places, places) if mode == "reflect" else places % size
        x = x.index_select(axis, places)
    return x


def reduce(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A reduction over the axes of an input, or over all of them."""

    def reduced(x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        over = () if axes is None else tuple(_ints(axes))
        if not over and noop_with_empty_axes:
            return x
        return function(x, over or tuple(range(x.ndim)), bool(keepdims))

    return reduced


def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis %= x.ndim
    places = torch.where(indices < 0, indices + x.shape[axis], indices).to(torch.int64)
    if indices.ndim == 0 and x.ndim == 1:
        return x[places]
    if axis:
        picked = x.index_select(axis, places.reshape(-1))
        return picked.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    rows = x.flatten(1) if x.ndim > 1 else x.unsqueeze(1)
    return functional.embedding(places, rows).reshape(*places.shape, *x.shape[1:])


def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    return x if low is None and high is None else torch.clamp(x, low, high)


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return functional.gelu(x, approximate=approximate)


def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    return x.permute(tuple(reversed(range(x.ndim))) if perm is None else tuple(perm))


def cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    return x.to(DTYPES[int(to)])


def shape_of(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(tuple(x.shape)[start:end], dtype=torch.int64)


def expand(x: Tensor, shape: Tensor) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(_ints(shape))))


def rounded(x: Tensor) -> Tensor:
    """To the nearest even integer, with the gradient of a straight line."""
    return x + (torch.round(x) - x).detach()


def _along(x: Tensor, vector: Tensor, axis: int) -> Tensor:
    return vector if vector.numel() == 1 else vector.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def quantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, saturate: int = 1, block_size: int = 0
) -> Tensor:
    """Integers as float numbers, so that a gradient passes; outside of the range there is none."""
    limits = torch.iinfo(torch.uint8 if zero is None else zero.dtype)
    shift = 0.0 if zero is None else _along(x, zero.to(x.dtype), axis)
    return torch.clamp(rounded(x / _along(x, scale, axis)) + shift, limits.min, limits.max)


def dequantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0
) -> Tensor:
    x = x.to(scale.dtype)
    shift = 0.0 if zero is None else _along(x, zero.to(scale.dtype), axis)
    return (x - shift) * _along(x, scale, axis)


def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.softmax(x, axis)


def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    return torch.log_softmax(x, axis)


def concat(*values: Tensor, axis: int) -> Tensor:
    return torch.cat(values, axis)


def where(condition: Tensor, one: Tensor, other: Tensor) -> Tensor:
    return torch.where(condition, one, other)


def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return functional.leaky_relu(x, alpha)


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return functional.elu(x, alpha)


def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


def prelu(x: Tensor, slope: Tensor) -> Tensor:
    return torch.where(x < 0, slope * x, x)


def global_average(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def global_max(x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.ndim)), keepdim=True)


TABLE: Mapping[str, Callable[..., Any]] = {
    "Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b, "Pow": lambda a, b: a**b,
    "Div": lambda a, b: a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc"),
    "Max": lambda a, b: torch.maximum(a, b), "Min": lambda a, b: torch.minimum(a, b),
    "Neg": lambda x: -x, "Abs": lambda x: x.abs(), "Sqrt": lambda x: x.sqrt(), "Exp": lambda x: x.exp(),
    "Log": lambda x: x.log(), "Erf": lambda x: x.erf(), "Tanh": lambda x: x.tanh(), "Sigmoid": lambda x: x.sigmoid(),
    "Reciprocal": lambda x: 1 / x, "Identity": lambda x: x, "Relu": lambda x: torch.relu(x),
    "Softplus": lambda x: functional.softplus(x), "Mish": lambda x: functional.mish(x),
    "HardSwish": lambda x: functional.hardswish(x), "Sin": lambda x: x.sin(), "Cos": lambda x: x.cos(),
    "Equal": lambda a, b: a == b, "Less": lambda a, b: a < b, "Greater": lambda a, b: a > b,
    "LeakyRelu": leaky_relu, "Elu": elu, "HardSigmoid": hard_sigmoid, "PRelu": prelu, "Gelu": gelu, "Clip": clip,
    "Conv": conv, "ConvTranspose": conv_transpose, "Gemm": gemm, "MatMul": lambda a, b: a @ b,
    "BatchNormalization": batch_normalization, "LayerNormalization": layer_normalization,
    "InstanceNormalization": instance_normalization, "Softmax": softmax, "LogSoftmax": log_softmax,
    "MaxPool": max_pool, "AveragePool": average_pool, "GlobalAveragePool": global_average,
    "GlobalMaxPool": global_max, "Reshape": reshape, "Flatten": flatten, "Squeeze": squeeze, "Unsqueeze": unsqueeze,
    "Transpose": transpose, "Concat": concat, "Slice": slice_, "Split": split, "Pad": pad, "Gather": gather,
    "Shape": shape_of, "Expand": expand, "Cast": cast, "Where": where,
    "ReduceMean": reduce(lambda x, axes, keep: x.mean(axes, keepdim=keep)),
    "ReduceSum": reduce(lambda x, axes, keep: x.sum(axes, keepdim=keep)),
    "ReduceMax": reduce(lambda x, axes, keep: x.amax(axes, keepdim=keep)),
    "ReduceMin": reduce(lambda x, axes, keep: x.amin(axes, keepdim=keep)),
    "QuantizeLinear": quantize_linear, "DequantizeLinear": dequantize_linear,
    **RECURRENT,
}  # fmt: skip

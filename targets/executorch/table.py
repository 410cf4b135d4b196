"""ONNX operators as the functions of PyTorch that ExecuTorch's partitioner for XNNPACK knows.

What :mod:`convertkit.torch_graph.operators` has is taken from there; here are the forms that are delegated, of sizes
that are known.  Arguments come as numbers and tuples, not as tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from convertkit.targets.executorch.compat import quantized_operators
from convertkit.targets.executorch.rarer import RARER, place_of
from convertkit.torch_graph.operators import TABLE as SHARED
from convertkit.torch_graph.operators import padded

_Q = quantized_operators()
_INTEGERS = {"int8": torch.int8, "uint8": torch.uint8, "int16": torch.int16}


def quantize_linear(
    x: Tensor, scale: Any, zero: Any = None, *, axis: int = 1, saturate: int = 1, block_size: int = 0
) -> Tensor:
    kind = _INTEGERS[str(np.asarray(np.uint8(0) if zero is None else zero).dtype)]
    limits = torch.iinfo(kind)
    return _Q.quantize_per_tensor(x, float(scale), 0 if zero is None else int(zero), limits.min, limits.max, kind)


def dequantize_linear(x: Tensor, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0) -> Tensor:
    limits = torch.iinfo(x.dtype)
    if isinstance(scale, Tensor):
        return _Q.dequantize_per_channel(x, scale, zero, axis % x.ndim, limits.min, limits.max, x.dtype)
    point = 0 if zero is None else int(zero)
    return _Q.dequantize_per_tensor(x, float(scale), point, limits.min, limits.max, x.dtype)


def _even(pads: Sequence[int]) -> list[int] | None:
    """Padding that is the same before and after each axis; None where it is not."""
    half = len(pads) // 2
    return list(pads[:half]) if tuple(pads[:half]) == tuple(pads[half:]) else None


def conv(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, kernel_shape: Sequence[int] = (), strides: Sequence[int] = (),
    pads: Sequence[int] = (), dilations: Sequence[int] = (), group: int = 1,
) -> Tensor:  # fmt: skip
    rank = w.ndim - 2
    function = (functional.conv1d, functional.conv2d, functional.conv3d)[rank - 1]
    ones, even = [1] * rank, _even(tuple(pads) or (0,) * 2 * rank)
    x = x if even is not None else padded(x, pads)
    return function(x, w, b, tuple(strides) or ones, even or 0, tuple(dilations) or ones, group)


def conv_transpose(
    x: Tensor, w: Tensor, b: Tensor | None = None, *, kernel_shape: Sequence[int] = (), strides: Sequence[int] = (),
    pads: Sequence[int] = (), dilations: Sequence[int] = (), group: int = 1, output_padding: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    rank = w.ndim - 2
    function = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[rank - 1]
    ones, zeros = [1] * rank, [0] * rank
    even = _even(tuple(pads) or (0,) * 2 * rank)
    more = tuple(output_padding) or zeros
    made = function(x, w, b, tuple(strides) or ones, even or 0, more, group, tuple(dilations) or ones)
    return made if even is not None else padded(made, [-each for each in pads])


def max_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] = (), pads: Sequence[int] = (),
    dilations: Sequence[int] = (), ceil_mode: int = 0, storage_order: int = 0,
) -> Tensor:  # fmt: skip
    rank = len(kernel_shape)
    function = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[rank - 1]
    ones, even = [1] * rank, _even(tuple(pads) or (0,) * 2 * rank)
    if even is None or any(2 * pad > size for pad, size in zip(even, kernel_shape, strict=True)):
        x, even = padded(x, pads, float("-inf")), None
    steps, spread = tuple(strides) or ones, tuple(dilations) or ones
    return function(x, tuple(kernel_shape), steps, even or 0, spread, bool(ceil_mode))


def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] = (), pads: Sequence[int] = (),
    count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    rank = len(kernel_shape)
    even = _even(tuple(pads) or (0,) * 2 * rank)
    if even is None or any(2 * pad > size for pad, size in zip(even, kernel_shape, strict=True)):
        shared: Tensor = SHARED["AveragePool"](
            x, kernel_shape=kernel_shape, strides=strides, pads=pads, count_include_pad=count_include_pad
        )
        return shared
    function = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    steps, size = tuple(strides) or (1,) * rank, tuple(kernel_shape)
    return function(x, size, steps, tuple(even), count_include_pad=bool(count_include_pad))


def squeeze(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    gone = {i for i, size in enumerate(x.shape) if size == 1} if axes is None else {each % x.ndim for each in axes}
    return x.reshape([size for i, size in enumerate(x.shape) if i not in gone])


def unsqueeze(x: Tensor, axes: Sequence[int]) -> Tensor:
    sizes, rank = list(x.shape), x.ndim + len(axes)
    for axis in sorted(each % rank for each in axes):
        sizes.insert(axis, 1)
    return x.reshape(sizes)


def _cut(x: Tensor, axis: int, first: int, last: int) -> Tensor:
    return torch.ops.aten.slice.Tensor(x, axis, first, last)


def slice_(
    x: Tensor, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    for place, (first, last) in enumerate(zip(starts, ends, strict=True)):
        axis = (place if axes is None else axes[place]) % x.ndim
        stride, size = 1 if steps is None else steps[place], x.shape[axis]
        chosen = range(size)[slice(first, None if stride < 0 and last < -size else last, stride)]
        if stride == 1 and len(chosen):
            x = x if len(chosen) == size else _cut(x, axis, chosen.start, chosen.stop)
        else:
            x = x.index_select(axis, torch.tensor(list(chosen), dtype=torch.int64))
    return x


def split(x: Tensor, sizes: Sequence[int] | None = None, *, axis: int = 0, num_outputs: int = 0) -> tuple[Tensor, ...]:
    axis %= x.ndim
    whole = x.shape[axis]
    if sizes is None:
        each = -(-whole // num_outputs)
        sizes = [min(each, whole - begin) for begin in range(0, whole, each)]
    ends = np.cumsum(sizes).tolist()
    return tuple(_cut(x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True))


def clip(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    if low is None and high is None:
        return x
    if x.is_floating_point() and low is not None and high is not None and low < high:
        return functional.hardtanh(x, float(low), float(high))
    limits = [None if each is None else each.item() for each in (low, high)]
    return torch.clamp(x, *limits)


def bilinear(x: Tensor, *, size: Sequence[int], align_corners: int) -> Tensor:
    return functional.interpolate(x, tuple(size), mode="bilinear", align_corners=bool(align_corners))


def mod(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """The sign of the dividend with ``fmod``, else that of the divisor."""
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def gather_elements(x: Tensor, places: Tensor, *, axis: int = 0) -> Tensor:
    counted = torch.where(places < 0, places + x.shape[axis], places)
    return torch.gather(x, axis, counted.to(torch.int64))


def mean(*values: Tensor) -> Tensor:
    return total(*values) / len(values)


def total(*values: Tensor) -> Tensor:
    made = values[0]
    for each in values[1:]:
        made = made + each
    return made


TABLE: Mapping[str, Callable[..., Any]] = {
    **SHARED,
    **RARER,
    "Linear": lambda x, w, b=None: functional.linear(x, w, b), "Bilinear": bilinear,
    "QuantizeLinear": quantize_linear, "DequantizeLinear": dequantize_linear,
    "Conv": conv, "ConvTranspose": conv_transpose, "MaxPool": max_pool, "AveragePool": average_pool,
    "Squeeze": squeeze, "Unsqueeze": unsqueeze, "Slice": slice_, "Split": split, "Clip": clip,
    "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
    "Floor": lambda x: x.floor(), "Ceil": lambda x: x.ceil(), "Round": lambda x: x.round(), "Sign": lambda x: x.sign(),
    "Not": lambda x: x.logical_not(), "And": lambda a, b: a.logical_and(b), "Or": lambda a, b: a.logical_or(b),
    "LessOrEqual": lambda a, b: a <= b, "GreaterOrEqual": lambda a, b: a >= b,
    "Tile": lambda x, repeats: x.repeat(tuple(repeats)),
    "Acos": lambda x: x.acos(), "Asin": lambda x: x.asin(), "Atan": lambda x: x.atan(), "Tan": lambda x: x.tan(),
    "Acosh": lambda x: x.acosh(), "Asinh": lambda x: x.asinh(), "Atanh": lambda x: x.atanh(),
    "Cosh": lambda x: x.cosh(), "Sinh": lambda x: x.sinh(), "Xor": lambda a, b: a.logical_xor(b),
    "BitwiseNot": lambda x: x.bitwise_not(), "BitwiseAnd": lambda a, b: a.bitwise_and(b),
    "BitwiseOr": lambda a, b: a.bitwise_or(b), "BitwiseXor": lambda a, b: a.bitwise_xor(b),
    "Celu": lambda x, *, alpha=1.0: functional.celu(x, alpha), "Mod": mod, "Mean": mean, "Sum": total,
    "GatherElements": gather_elements,
    "ArgMin": place_of(torch.argmin), "ArgMax": place_of(torch.argmax),
}  # fmt: skip

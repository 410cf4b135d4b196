"""Convolutions in double: patches times a matrix, or a sum over the window where channels do not mix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.handlers.windows import Axis, axes_of, padded, taken, views

_PATCHES = 1 << 22
"""Elements of patches at a time (32 MiB): a whole image's take as many times its memory as a window has elements."""


def _conv(call: Call) -> Results:
    return [call.rounded(convolution(call, call.array(0), call.array(1), call.optional(2)))]


def convolution(call: Call, x: Array, weight: Array, bias: Array | None) -> Array:
    """The node's convolution of ``x`` (N, C, …) with ``weight`` (M, C / group, …), before it is rounded."""
    axes, group = axes_of(call, x.shape[2:], weight.shape[2:]), call.whole("group", 1)
    terms = call.noise.terms(math.prod(weight.shape[1:]), x, weight)
    x, weight = call.noise.operands(x, weight, call.dtype, terms)
    x = padded(x, axes, 0.0)
    total = _depthwise(x, weight, axes) if group == x.shape[1] > 1 else _grouped(x, weight, axes, group)
    if bias is None:
        return call.step(total, terms)
    return call.step(total, terms) + bias.reshape(-1, *(1,) * len(axes))


def _depthwise(x: Array, weight: Array, axes: Sequence[Axis]) -> Array:
    """Each channel for itself, ``M / C`` filters of each."""
    multiple = weight.shape[0] // x.shape[1]
    x = x if multiple == 1 else np.repeat(x, multiple, axis=1)
    total = np.zeros((x.shape[0], weight.shape[0], *(axis.count for axis in axes)))
    for offset in np.ndindex(*weight.shape[2:]):
        total += taken(x, axes, offset) * weight[(slice(None), 0, *offset)].reshape(-1, *(1,) * len(axes))
    return total


def _grouped(x: Array, weight: Array, axes: Sequence[Axis], group: int) -> Array:
    """``weight`` as a matrix for each group times patches (channels × window, positions)."""
    batch, counts = x.shape[0], [axis.count for axis in axes]
    matrices = weight.reshape(group, weight.shape[0] // group, -1)
    if all(axis.kernel == axis.stride == 1 for axis in axes):
        product = np.matmul(matrices, x.reshape(batch, group, x.shape[1] // group, -1))
        return np.asarray(product.reshape(batch, weight.shape[0], *counts))
    windows, rank = views(x, axes), len(axes)
    order = (0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank))
    total = np.empty((batch, weight.shape[0], *counts))
    for rows in _rows(counts, batch * matrices.shape[2] * group):
        patches = windows[:, :, rows].transpose(order)
        product = np.matmul(matrices, patches.reshape(batch, group, matrices.shape[2], -1))
        total[:, :, rows] = product.reshape(batch, weight.shape[0], -1, *counts[1:])
    return total


def _rows(counts: Sequence[int], width: int) -> Iterator[slice]:
    """Parts of the first spatial axis whose patches, of ``width`` elements for each position, fit."""
    step = max(1, _PATCHES // max(1, width * math.prod(counts[1:])))
    return (slice(start, start + step) for start in range(0, counts[0], step))


def _conv_transpose(call: Call) -> Results:
    x, weight, bias = call.array(0), call.array(1), call.optional(2)
    group, rank = call.whole("group", 1), x.ndim - 2
    strides, dilations = call.wholes("strides") or (1,) * rank, call.wholes("dilations") or (1,) * rank
    extra = call.wholes("output_padding") or (0,) * rank
    full = [
        (size - 1) * stride + (kernel - 1) * dilation + 1 + more
        for size, stride, kernel, dilation, more in zip(x.shape[2:], strides, weight.shape[2:], dilations, extra)
    ]
    terms = call.noise.terms(x.shape[1] // group * math.prod(weight.shape[2:]) / math.prod(strides), x, weight)
    x, weight = call.noise.operands(x, weight, call.dtype, terms)
    spread = _scattered(x, weight, full, group, strides, dilations)
    total = call.step(_cropped(call, spread, x.shape[2:], strides), terms)
    return [call.rounded(total if bias is None else total + bias.reshape(-1, *(1,) * rank))]


def _scattered(
    x: Array, weight: Array, full: Sequence[int], group: int, strides: Sequence[int], dilations: Sequence[int]
) -> Array:
    """Every element of ``x`` laid out with the window: (N, M, full …)."""
    batch, spatial, kernel = x.shape[0], x.shape[2:], weight.shape[2:]
    inner, filters = x.shape[1] // group, weight.shape[1]
    flat = x.reshape(batch, group, inner, -1)
    total = np.zeros((batch, group * filters, *full))
    for offset in np.ndindex(*kernel):
        matrices = weight[(slice(None), slice(None), *offset)].reshape(group, inner, filters).transpose(0, 2, 1)
        part = np.matmul(matrices, flat).reshape(batch, group * filters, *spatial)
        starts = [place * dilation for place, dilation in zip(offset, dilations)]
        steps = [
            slice(start, start + (size - 1) * stride + 1, stride)
            for start, size, stride in zip(starts, spatial, strides)
        ]
        total[(slice(None), slice(None), *steps)] += part
    return total


def _cropped(call: Call, full: Array, sizes: Sequence[int], strides: Sequence[int]) -> Array:
    """Without the padding; what ``output_shape`` asks for beyond the windows is zero.

    Source: ONNX operators, ConvTranspose, ``output_shape`` and ``auto_pad``.
    """
    rank, mode = len(sizes), call.text("auto_pad", "NOTSET")
    wanted = call.wholes("output_shape")
    wanted = None if wanted is None else wanted[-rank:]
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * stride for size, stride in zip(sizes, strides))
    if wanted is None:
        pads = call.wholes("pads") or (0,) * (2 * rank)
        pads = (0,) * (2 * rank) if mode == "VALID" else pads
        ends = [slice(pads[i], full.shape[2 + i] - pads[rank + i]) for i in range(rank)]
        return full[(slice(None), slice(None), *ends)]
    for axis, size in enumerate(wanted, 2):
        total = max(0, full.shape[axis] - size)
        start = total // 2 if mode == "SAME_UPPER" else total - total // 2
        full = np.take(full, range(start, min(start + size, full.shape[axis])), axis)
        missing = size - full.shape[axis]
        full = np.pad(full, [(0, missing if each == axis else 0) for each in range(full.ndim)])
    return full


HANDLERS: Mapping[str, Handler] = {"Conv": _conv, "ConvTranspose": _conv_transpose}

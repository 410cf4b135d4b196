"""Convolutions and products of matrices.

Source: coremltools, mil/ops/defs, conv.py and linear.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.moves import numbers
from convertkit.targets.coreml.evaluator.table import Table
from convertkit.targets.coreml.evaluator.windows import Window, pairs

convolution = Table()


def _ones(value: Array | None, rank: int) -> tuple[int, ...]:
    return (1,) * rank if value is None else numbers(value)


@convolution.computes("conv")
def _conv(
    *,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    strides: Array | None = None,
    pad_type: Array | None = None,
    pad: Array | None = None,
    dilations: Array | None = None,
    groups: Array | None = None,
) -> Array:
    """``weight`` is (outputs, inputs of a group, *kernel)."""
    rank, sizes = x.ndim - 2, weight.shape[2:]
    steps, gaps = _ones(strides, rank), _ones(dilations, rank)
    kind = "valid" if pad_type is None else str(pad_type)
    given = (0,) * 2 * rank if pad is None else numbers(pad)
    border = pairs(kind, given, list(zip(x.shape[2:], sizes, steps, gaps, strict=True)))
    result = convolved(x, weight, Window(sizes, steps, gaps, border), 1 if groups is None else int(groups))
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def convolved(x: Array, weight: Array, window: Window, groups: int) -> Array:
    """The sums, by one product of matrices for each group, or element by element where a group is one channel."""
    counts = window.counts(x.shape[2:])
    image = window.padded(x, 0)
    outputs, inputs = weight.shape[:2]
    batch = x.shape[0]
    if inputs == 1 and groups > 1:
        return _depthwise(image, weight, window, counts, groups)
    columns = np.empty((batch, x.shape[1], int(np.prod(window.sizes)), *counts), x.dtype)
    for place, (_, part) in enumerate(window.slices(image, counts)):
        columns[:, :, place] = part
    grouped = columns.reshape(batch, groups, inputs * columns.shape[2], -1)
    matrix = weight.reshape(groups, outputs // groups, -1)
    return np.asarray(np.matmul(matrix, grouped)).reshape(batch, outputs, *counts)


def _at(weight: Array, place: tuple[int, ...]) -> Array:
    """What the weights have at one place of the kernel, whose axes are the last ones."""
    for at in reversed(place):
        weight = weight[..., at]
    return weight


def _depthwise(image: Array, weight: Array, window: Window, counts: Sequence[int], groups: int) -> Array:
    outputs, batch = weight.shape[0], image.shape[0]
    rows = weight.reshape(groups, outputs // groups, *weight.shape[2:])
    result = np.zeros((batch, groups, outputs // groups, *counts), image.dtype)
    for place, part in window.slices(image, counts):
        factor = _at(rows, place)
        result += part[:, :, None] * factor.reshape(1, *factor.shape, *[1] * len(counts))
    return result.reshape(batch, outputs, *counts)


@convolution.computes("conv_transpose")
def _conv_transpose(
    *,
    x: Array,
    weight: Array,
    bias: Array | None = None,
    pad: Array | None = None,
    output_shape: Array | None = None,
    pad_type: Array | None = None,
    strides: Array | None = None,
    dilations: Array | None = None,
    groups: Array | None = None,
) -> Array:
    """``weight`` is (inputs, outputs of a group, *kernel); what is padded is cut off the result."""
    rank, sizes = x.ndim - 2, weight.shape[2:]
    steps, gaps = _ones(strides, rank), _ones(dilations, rank)
    count = 1 if groups is None else int(groups)
    cut = (0,) * 2 * rank if pad is None else numbers(pad)
    assert pad_type is None or str(pad_type) in ("valid", "custom")
    spread = _spread(x, weight, Window(sizes, steps, gaps, ((0, 0),) * rank), count)
    space = [slice(cut[2 * axis], spread.shape[2 + axis] - cut[2 * axis + 1]) for axis in range(rank)]
    if output_shape is not None:
        wanted = numbers(output_shape)[-rank:]
        space = [slice(cut[2 * axis], cut[2 * axis] + size) for axis, size in enumerate(wanted)]
        short = [max(0, each.stop - size) for each, size in zip(space, spread.shape[2:], strict=True)]
        spread = np.pad(spread, [(0, 0), (0, 0), *[(0, each) for each in short]])
    result = spread[(slice(None), slice(None), *space)]
    return result if bias is None else result + bias.reshape(-1, *[1] * rank)


def _spread(x: Array, weight: Array, window: Window, groups: int) -> Array:
    """Every element of ``x`` times the kernel, added up where kernels overlap."""
    batch, inputs = x.shape[:2]
    outputs = weight.shape[1]
    space = [
        (size - 1) * stride + window.reach(axis)
        for axis, (size, stride) in enumerate(zip(x.shape[2:], window.strides, strict=True))
    ]
    result = np.zeros((batch, groups * outputs, *space), x.dtype)
    matrix = weight.reshape(groups, inputs // groups, outputs, *weight.shape[2:])
    grouped = x.reshape(batch, groups, inputs // groups, -1)
    for place, part in window.slices(result, x.shape[2:]):
        rows = np.swapaxes(_at(matrix, place), 1, 2)
        np.add(part, np.matmul(rows, grouped).reshape(part.shape), out=part)
    return result


@convolution.computes("linear")
def _linear(*, x: Array, weight: Array, bias: Array | None = None) -> Array:
    result: Array = x @ weight.T
    return result if bias is None else result + bias


@convolution.computes("matmul")
def _matmul(*, x: Array, y: Array, transpose_x: Array | None = None, transpose_y: Array | None = None) -> Array:
    left = np.swapaxes(x, -1, -2) if transpose_x is not None and bool(transpose_x) else x
    right = np.swapaxes(y, -1, -2) if transpose_y is not None and bool(transpose_y) else y
    return np.asarray(np.matmul(left, right))


@convolution.computes("einsum")
def _einsum(*, values: Sequence[Array], equation: Array) -> Array:
    return np.asarray(np.einsum(str(equation), *values))

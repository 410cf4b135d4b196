"""Pooling.

Source: coremltools, mil/ops/defs, pool.py.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.moves import numbers
from convertkit.targets.coreml.evaluator.table import Table
from convertkit.targets.coreml.evaluator.windows import Window, pairs

pooling = Table()


def _window(x: Array, kernel_sizes: Array, strides: Array | None, pad_type: Array, pad: Array | None) -> Window:
    sizes = numbers(kernel_sizes)
    steps = (1,) * len(sizes) if strides is None else numbers(strides)
    given = (0,) * 2 * len(sizes) if pad is None else numbers(pad)
    ones = (1,) * len(sizes)
    border = pairs(str(pad_type), given, list(zip(x.shape[2:], sizes, steps, ones, strict=True)))
    return Window(sizes, steps, ones, border)


def _plain(ceil_mode: Array | None) -> None:
    assert ceil_mode is None or not bool(ceil_mode)


@pooling.computes("max_pool")
def _max_pool(
    *,
    x: Array,
    kernel_sizes: Array,
    pad_type: Array,
    strides: Array | None = None,
    pad: Array | None = None,
    ceil_mode: Array | None = None,
) -> Array:
    _plain(ceil_mode)
    window = _window(x, kernel_sizes, strides, pad_type, pad)
    counts = window.counts(x.shape[2:])
    result = np.full((*x.shape[:2], *counts), -np.inf, x.dtype)
    for _, part in window.slices(window.padded(x, -np.inf), counts):
        np.maximum(result, part, out=result)
    return result


@pooling.computes("avg_pool")
def _avg_pool(
    *,
    x: Array,
    kernel_sizes: Array,
    pad_type: Array,
    strides: Array | None = None,
    pad: Array | None = None,
    exclude_padding_from_average: Array | None = None,
    ceil_mode: Array | None = None,
) -> Array:
    _plain(ceil_mode)
    window = _window(x, kernel_sizes, strides, pad_type, pad)
    counts = window.counts(x.shape[2:])
    total = _sums(x, window, counts)
    if exclude_padding_from_average is not None and bool(exclude_padding_from_average):
        return np.asarray(total / _sums(np.ones((1, 1, *x.shape[2:]), x.dtype), window, counts))
    return np.asarray(total / np.asarray(np.prod(window.sizes), x.dtype))


def _sums(x: Array, window: Window, counts: tuple[int, ...]) -> Array:
    result = np.zeros((*x.shape[:2], *counts), x.dtype)
    for _, part in window.slices(window.padded(x, 0), counts):
        result += part
    return result


@pooling.computes("l2_pool")
def _l2_pool(
    *,
    x: Array,
    kernel_sizes: Array,
    pad_type: Array,
    strides: Array | None = None,
    pad: Array | None = None,
    ceil_mode: Array | None = None,
) -> Array:
    _plain(ceil_mode)
    window = _window(x, kernel_sizes, strides, pad_type, pad)
    return np.asarray(np.sqrt(_sums(x * x, window, window.counts(x.shape[2:]))))

"""Weights whose products with bytes fit into 16 bits, two by two.

On x86 with AVX2 or AVX-512 and without VNNI, ONNX Runtime multiplies unsigned activations by signed weights with an
instruction that adds two neighbouring products in 16 bits and cuts what does not fit (``vpmaddubsw``).  Neighbours are
the weights 0 and 1, 2 and 3, … along the sum, channels last.  With activations up to 255, two weights of a sign may be
``MOST`` together.  Unsigned weights are widened to 16 bits first: nothing is cut, but VNNI is not used.
OpenVINO does so, too, with channels 0 and 1, 2 and 3, … of each element of a window; where a convolution has one
channel, which of its elements meet depends on the processor.
Source: measured with ONNX Runtime 1.31 (``tests/onnx/test_byte_sums.py``) and OpenVINO 2026.4
(``tests/targets/openvino/test_byte_sums.py``); MLAS, ``QgemmU8S8KernelAvx2.asm``.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.profile import Neighbours

MOST = 128
"""255 × 128 < 2¹⁵ ≤ 255 × 129."""


def greatest_sums(rows: Array, taps: int, neighbours: Neighbours = "along the sum") -> Array:
    """For each row, the largest magnitude that two neighbours of one sign have together.

    ``rows`` are (…, channels × taps), in the order of a weight in ONNX; a matrix product has one tap.
    """
    if _any_two(rows, taps, neighbours):
        return np.asarray(2 * np.abs(rows).max(axis=-1, initial=0))
    pairs = _pairs(rows, taps, neighbours)
    positive = np.maximum(pairs, 0).sum(axis=-1).max(axis=-1, initial=0)
    negative = np.maximum(-pairs, 0).sum(axis=-1).max(axis=-1, initial=0)
    return np.asarray(np.maximum(positive, negative))


def limited(integers: Array, taps: int, neighbours: Neighbours = "along the sum") -> Array:
    """``integers`` (…, channels × taps), the larger of two neighbours that exceed ``MOST`` moved towards zero."""
    if _any_two(integers, taps, neighbours):
        return np.clip(integers, -MOST // 2, MOST // 2)
    pairs = _pairs(integers, taps, neighbours)
    same_sign = np.sign(pairs[..., 0]) * np.sign(pairs[..., 1]) > 0
    excess = np.where(same_sign, np.maximum(np.abs(pairs).sum(axis=-1) - MOST, 0), 0)
    if not excess.any():
        return integers
    larger = np.abs(pairs).argmax(axis=-1)[..., None]
    moved = pairs.copy()
    taken = np.take_along_axis(pairs, larger, -1)
    np.put_along_axis(moved, larger, taken - np.sign(taken) * excess[..., None].astype(pairs.dtype), -1)
    return _from_pairs(moved, integers.shape, taps, neighbours)


def _any_two(rows: Array, taps: int, neighbours: Neighbours) -> bool:
    """Whether any two weights of a row may meet: those of one channel."""
    return neighbours == "in a tap" and 1 < taps == rows.shape[-1]


def _pairs(rows: Array, taps: int, neighbours: Neighbours) -> Array:
    """(…, pairs, 2), channels last, an odd end filled with zero."""
    by_tap = np.swapaxes(rows.reshape(*rows.shape[:-1], -1, taps), -1, -2)
    if neighbours == "along the sum":
        by_tap = by_tap.reshape(rows.shape)
    odd = by_tap.shape[-1] % 2
    filled = np.pad(by_tap, [(0, 0)] * (by_tap.ndim - 1) + [(0, odd)]) if odd else by_tap
    return filled.reshape(*rows.shape[:-1], -1, 2)


def _from_pairs(pairs: Array, shape: tuple[int, ...], taps: int, neighbours: Neighbours) -> Array:
    if neighbours == "along the sum":
        by_tap = pairs.reshape(*shape[:-1], -1)[..., : shape[-1]].reshape(*shape[:-1], taps, -1)
    else:
        by_tap = pairs.reshape(*shape[:-1], taps, -1)[..., : shape[-1] // taps]
    return np.ascontiguousarray(np.swapaxes(by_tap, -1, -2).reshape(shape))

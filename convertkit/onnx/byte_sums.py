"""Weights whose products with bytes fit into 16 bits, two by two.

On x86 with AVX2 or AVX-512 and without VNNI, ONNX Runtime multiplies unsigned activations by signed weights with an
instruction that adds two neighbouring products in 16 bits and cuts what does not fit (``vpmaddubsw``).  Neighbours are
the weights 0 and 1, 2 and 3, … along the sum, channels last.  With activations up to 255, two weights of a sign may be
``MOST`` together.  Unsigned weights are widened to 16 bits first: nothing is cut, but VNNI is not used.
Source: measured with ONNX Runtime 1.31 (``tests/onnx/test_byte_sums.py``); MLAS, ``QgemmU8S8KernelAvx2.asm``.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array

MOST = 128
"""255 × 128 < 2¹⁵ ≤ 255 × 129."""


def greatest_sums(rows: Array, taps: int) -> Array:
    """For each row, the largest magnitude that two neighbours of one sign have together.

    ``rows`` are (…, channels × taps), in the order of a weight in ONNX; a matrix product has one tap.
    """
    pairs = _pairs(rows, taps)
    positive = np.maximum(pairs, 0).sum(axis=-1).max(axis=-1, initial=0)
    negative = np.maximum(-pairs, 0).sum(axis=-1).max(axis=-1, initial=0)
    return np.asarray(np.maximum(positive, negative))


def limited(integers: Array, taps: int) -> Array:
    """``integers`` (…, channels × taps), the larger of two neighbours that exceed ``MOST`` moved towards zero."""
    pairs = _pairs(integers, taps)
    same_sign = np.sign(pairs[..., 0]) * np.sign(pairs[..., 1]) > 0
    excess = np.where(same_sign, np.maximum(np.abs(pairs).sum(axis=-1) - MOST, 0), 0)
    if not excess.any():
        return integers
    larger = np.abs(pairs).argmax(axis=-1)[..., None]
    moved = pairs.copy()
    taken = np.take_along_axis(pairs, larger, -1)
    np.put_along_axis(moved, larger, taken - np.sign(taken) * excess[..., None].astype(pairs.dtype), -1)
    return _from_pairs(moved, integers.shape, taps)


def _pairs(rows: Array, taps: int) -> Array:
    """(…, pairs, 2), channels last, an odd end filled with zero."""
    by_tap = np.swapaxes(rows.reshape(*rows.shape[:-1], -1, taps), -1, -2).reshape(rows.shape)
    odd = rows.shape[-1] % 2
    filled = np.pad(by_tap, [(0, 0)] * (rows.ndim - 1) + [(0, odd)]) if odd else by_tap
    return filled.reshape(*rows.shape[:-1], -1, 2)


def _from_pairs(pairs: Array, shape: tuple[int, ...], taps: int) -> Array:
    flat = pairs.reshape(*shape[:-1], -1)[..., : shape[-1]]
    return np.ascontiguousarray(np.swapaxes(flat.reshape(*shape[:-1], taps, -1), -1, -2).reshape(shape))

"""Monte Carlo arithmetic: what a model computes when each of its roundings goes another way.

Every result is rounded at random: the exact value is multiplied by ``1 + e``, ``e`` uniform within the unit roundoff
``u`` of the value's element type, and brought to that type's grid.  A value that lies on the grid already is what every
runtime computes, and stays: so moving data, comparing, and arithmetic that is exact (differences of neighbours, small
integers, powers of two) adds no noise, and overflow and underflow happen where the model's type has them.
Source: D. S. Parker, *Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic*, 1997 ("random
rounding" of inexact results, "precision bounding" of operands).

A kernel sums K terms in an order of its own, with a rounding for each.  Each term is therefore perturbed, too, which
shows cancellation, and both terms and sum by ``sqrt(K) * u``: roundings of random sign grow like the root of their
number where worst-case bounds grow like the number.
Source: N. J. Higham and T. Mary, *A new approach to probabilistic rounding error analysis*, SIAM J. Sci. Comput. 41
(2019): with high probability the backward error of a sum of K terms is below a small multiple of ``sqrt(K) * u``.
Terms that are zero add no rounding: K counts the others.
"""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.twin.values import UNIT

_SEED = 0x7B1_4
_GRID: Mapping[ir.DataType, np.dtype] = {
    ir.DataType.FLOAT16: np.dtype(np.float16),
    ir.DataType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    ir.DataType.FLOAT: np.dtype(np.float32),
    ir.DataType.DOUBLE: np.dtype(np.float32),  # for want of more bits: what fits into float32 counts as exact
}
_LEAST_NORMAL = float(np.finfo(np.float32).tiny)
_GLANCE = 64
"""Elements that are looked at before all of them."""
_MIXING = (
    (np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)),
    (np.uint64(27), np.uint64(0x94D049BB133111EB)),
    (np.uint64(31), np.uint64(1)),
)
"""Shifts and factors that spread the bits of a number.
Source: G. L. Steele, D. Lea, C. H. Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014."""


class Noise:
    """The roundings of one run; run 0 has none.  The same numbers in every process.

    ``near_ties`` is how far from a tie, in steps, a value may lie that an engine's integer kernels round the other way.
    Kernels may flush subnormal float32 results to zero; runs of odd number do.  In a ``steady`` run an operation rounds
    equal values alike, as one kernel does: what is equal stays equal.
    """

    def __init__(self, run: int, *, steady: bool = False, near_ties: float = 0.0) -> None:
        self._rng = np.random.Generator(np.random.SFC64([_SEED, run])) if run else None
        self._flushes = run % 2 == 1
        self.is_steady, self._near_ties = steady, near_ties

    @property
    def is_silent(self) -> bool:
        """Whether nothing is perturbed."""
        return self._rng is None

    def result(self, array: Array, dtype: ir.DataType, terms: float = 1.0) -> Array:
        """``array`` (float64) as some runtime would round it, a sum of ``terms`` products."""
        if self._rng is None or array.size == 0:
            return array
        grid = array.astype(_GRID[dtype]).astype(np.float64)
        exact = (grid == array) | np.isnan(array)
        if exact.all():
            return array
        noisy = self._shaken(array, UNIT[dtype] * max(terms, 1.0) ** 0.5)
        if dtype != ir.DataType.DOUBLE:
            noisy = noisy.astype(_GRID[dtype]).astype(np.float64)
        if self._flushes and dtype == ir.DataType.FLOAT:
            noisy = np.where(np.abs(noisy) < _LEAST_NORMAL, 0.0, noisy)
        return np.asarray(np.where(exact, array, noisy))

    def operand(self, array: Array, dtype: ir.DataType, terms: float) -> Array:
        """``array`` (float64), whose elements are terms of sums of ``terms`` of them, with those sums' roundings.

        Integers stay: their sums are exact.
        """
        if self._rng is None or array.size == 0 or are_whole(array):
            return array
        return self._shaken(array, UNIT[dtype] * max(terms, 1.0) ** 0.5)

    def terms(self, most: float, *factors: Array) -> float:
        """How many of ``most`` terms of a sum are not zero, from the share of zeros in its factors."""
        if self._rng is None:
            return most
        for factor in factors:
            most *= _density(factor)
        return max(most, 1.0)

    def operands(self, first: Array, second: Array, dtype: ir.DataType, terms: float) -> tuple[Array, Array]:
        """Two factors of sums of ``terms`` products, one of them perturbed for both: the smaller that is not whole."""
        if self._rng is None:
            return first, second
        whole = are_whole(first), are_whole(second)
        if whole[1] or (first.size <= second.size and not whole[0]):
            return self.operand(first, dtype, terms), second
        return first, self.operand(second, dtype, terms)

    def quotient(self, total: Array, dtype: ir.DataType, count: float) -> Array:
        """``total / count``, which kernels compute as a product with a rounded reciprocal, too."""
        means = total / count if count else np.full_like(total, np.nan)
        is_exact = count > 0 and np.frexp(count)[0] == 0.5  # a power of two
        return means if is_exact else self.within(means, dtype, np.abs(means))

    def within(self, array: Array, dtype: ir.DataType, size: Array) -> Array:
        """``array`` (float64), each element moved by up to ``size`` unit roundoffs, an absolute number."""
        if self._rng is None:
            return array
        shakes = self._shakes(self._rng, array)
        return np.asarray(array + size * ((2.0 * UNIT[dtype]) * (shakes - 0.5)))

    def before_integers(self, steps: Array) -> Array:
        """``steps`` (float64) moved by up to ``near_ties`` before they are rounded: equal ones alike."""
        if self._rng is None or not self._near_ties:
            return steps
        return np.asarray(steps + (2.0 * self._near_ties) * (_mixed(self._rng, steps) - 0.5))

    def _shaken(self, array: Array, size: float) -> Array:
        assert self._rng is not None, "run 0 has no noise"
        return np.asarray(array + array * ((2.0 * size) * (self._shakes(self._rng, array) - 0.5)))

    def _shakes(self, rng: np.random.Generator, array: Array) -> Array:
        """A number of [0, 1) for each element; in a steady run a function of its float32 value."""
        if not self.is_steady:
            return rng.random(array.shape, dtype=np.float32)
        return _mixed(rng, array)


def _mixed(rng: np.random.Generator, array: Array) -> Array:
    """A number of [0, 1) for each element, a function of its float32 value."""
    mixed = array.astype(np.float32).view(np.uint32).astype(np.uint64) ^ rng.integers(1 << 63, dtype=np.uint64)
    for shift, factor in _MIXING:
        mixed = (mixed ^ (mixed >> shift)) * factor
    return (mixed >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)


def are_whole(array: Array) -> bool:
    """Whether all elements are integers."""
    flat = array.reshape(-1)
    first = flat[:_GLANCE]
    return bool((np.rint(first) == first).all() and (np.rint(flat) == flat).all())


def _density(array: Array) -> float:
    return max(1, int(np.count_nonzero(array))) / max(1, array.size)

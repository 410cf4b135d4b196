"""Inputs on which models break: silence, constants, extremes, tiny values, ties, padding.

Noise alone verifies little: a logarithm, a division or a root that lost its epsilon is right on noise and NaN on a
silent input.  Every edge input is made from a base feed (noise, or a sample of the user's data), so shapes, dtypes and
ranges are those that the model takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.stage import Feed

NOTHING_KEPT = "masks of zeros"
"""The edge input whose masks keep nothing: models that guard against it are to be seen doing so."""
_LOUD = 8.0
_SPARSE_EVERY = 17
UNTOLD = 4
"""Integers of which nobody told the range stay below this."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of one input: its range, lowest and highest value included, and its usual largest size."""

    low: float
    high: float
    scale: float
    is_mask: bool


def edge_feeds(
    inputs: Sequence[TensorSpec], base: Sequence[Feed], *, brief: bool = False
) -> Iterator[tuple[str, Feed]]:
    """Edge inputs and their names, of the shapes of ``base[0]``; no two are equal.

    ``base`` are feeds that the model takes; where no range is declared, theirs is the usual range.  ``brief`` yields
    the few that find most, for models that take long to run.  Inputs of other kinds (text, complex numbers, sorted
    integers) stay as they are in ``base[0]``.
    """
    bounds = {spec.name: _bounds(spec, base) for spec in inputs}
    seen = [base[0]]
    for name, feed in _edges(base[0], bounds, brief=brief):
        if not any(_equal(feed, other) for other in seen):
            seen.append(feed)
            yield name, feed


def _edges(base: Feed, bounds: Mapping[str, Bounds | None], *, brief: bool) -> Iterator[tuple[str, Feed]]:
    for name, edge in _EDGES.items():
        if not brief or name in _BRIEF:
            yield name, {key: _edged(edge, value, bounds.get(key)) for key, value in base.items()}
    masks = {key for key, known in bounds.items() if known is not None and known.is_mask}
    yield NOTHING_KEPT, {key: np.zeros_like(value) if key in masks else value for key, value in base.items()}


def _bounds(spec: TensorSpec, base: Sequence[Feed]) -> Bounds | None:
    values = [feed[spec.name] for feed in base if spec.name in feed]
    if spec.rising or not values or values[0].dtype.kind not in "fiub" or values[0].size == 0:
        return None
    dtype = values[0].dtype
    if dtype.kind == "b":
        return Bounds(0, 1, 1, is_mask=True)
    least, largest = (float(how(each)) for how, each in ((min, map(np.min, values)), (max, map(np.max, values))))
    if spec.value_range is not None:
        low, high = spec.value_range
        high = high - 1 if dtype.kind in "iu" else float(np.nextafter(dtype.type(high), dtype.type(low)))
        return Bounds(low, high, max(abs(low), abs(high)), is_mask=dtype.kind in "iu" and (low, high) == (0, 1))
    if dtype.kind in "iu":
        return Bounds(min(least, 0), largest, largest, is_mask=(least, largest) == (0, 1))
    return Bounds(-np.inf, np.inf, max(abs(least), abs(largest)) or 1.0, is_mask=False)


def _edged(edge: Callable[[Array, Bounds], Array], value: Array, bounds: Bounds | None) -> Array:
    if bounds is None:
        return value
    made = np.array(np.clip(edge(value, bounds), bounds.low, bounds.high), np.float64)
    if value.dtype.kind != "f":
        made = np.rint(made)
    return np.asarray(with_a_key(made) if bounds.is_mask else made, value.dtype)


def with_a_key(mask: Array) -> Array:
    """A mask whose rows along the last axis all keep something: one that hides everything leaves nothing to compute."""
    kept = np.array(mask)
    if kept.ndim:
        kept[~kept.any(-1), 0] = 1
    return kept


def _equal(a: Feed, b: Feed) -> bool:
    return all(value.tobytes() == b[name].tobytes() for name, value in a.items())


def _full(value: Array, number: float) -> Array:
    return np.full(value.shape, number)


def _usual(bounds: Bounds, sign: int) -> float:
    end = bounds.high if sign > 0 else bounds.low
    return end if np.isfinite(end) else sign * bounds.scale


def _half_silent(value: Array, _: Bounds) -> Array:
    made = np.array(value, np.float64)
    if made.ndim:
        made[..., : made.shape[-1] // 2] = 0
    return made


def _sparse(value: Array, _: Bounds) -> Array:
    kept = np.arange(value.size).reshape(value.shape) % _SPARSE_EVERY == 0
    return np.where(kept, value, 0)


def _ties(value: Array, bounds: Bounds) -> Array:
    """Multiples of one half: equal values, and sums that lie between two integers."""
    return value if value.dtype.kind in "iu" else np.rint(value / bounds.scale * 6) / 2


def _signed_zeros(value: Array, _: Bounds) -> Array:
    return np.where(np.arange(value.size).reshape(value.shape) % 2, -0.0, 0.0)


def _padded(value: Array, _: Bounds) -> Array:
    """Nothing in the middle third of the last axis, as of padding between two texts."""
    made = np.array(value, np.float64)
    if made.ndim:
        third = made.shape[-1] // 3
        made[..., third : made.shape[-1] - third] = 0
    return made


def _scaled(factor: float) -> Callable[[Array, Bounds], Array]:
    def edge(value: Array, _: Bounds) -> Array:
        return value.astype(np.float64) * (1 if value.dtype.kind in "iu" else factor)

    return edge


_EDGES: Mapping[str, Callable[[Array, Bounds], Array]] = {
    "zeros": lambda value, _: _full(value, 0),
    "1e-6 of the scale": _scaled(1e-6),
    "half silent": _half_silent,
    "constant": lambda value, bounds: _full(value, 0.3 * _usual(bounds, 1)),
    "ones": lambda value, _: _full(value, 1),
    "1e-3 of the scale": _scaled(1e-3),
    "1e-10 of the scale": _scaled(1e-10),
    "signed zeros": _signed_zeros,
    "ties": _ties,
    "sparse": _sparse,
    "negative": lambda value, _: -np.abs(value.astype(np.float64)),
    "padded": _padded,
    "highest": lambda value, bounds: _full(value, _usual(bounds, 1)),
    "lowest": lambda value, bounds: _full(value, _usual(bounds, -1)),
    "loud": _scaled(_LOUD),
}
"""By name, in the order in which they run: what may drive a model with state out of its range comes last."""

_BRIEF = frozenset({"zeros", "1e-6 of the scale", "half silent", "constant"})

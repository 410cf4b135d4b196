"""Numbers that say how far one output differs from its reference, streamed over any number of feeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from convertkit.artifact import Array
from convertkit.parity.faint import faint_slices
from convertkit.parity.values import FeedDiff, Histogram, TensorDiff, ratio

_BINS = 41
_ALL_BUT_ZERO = 1e-6
_NOTHING = 1e-30
"""Below this float32 loses digits; outputs of a deep network of random weights are as small as 1e-12."""
AT_EDGE = 1e-3
"""Values that are no further from an end of the range, of which this is a part, are at that end."""
_ENOUGH_ELEMENTS = 8
_FINITE_SHARE = 0.5
_LISTED = 5
_AT_LIMIT = 8
"""So many equal elements at an end of the range are not an accident of rounding."""


class DiffAccumulator:
    """Collects the differences of one output, feed by feed; memory stays that of one feed.

    ``lossy`` says that infinity or NaN of the reference need not come out of the other artifact, which may compute in
    integers; the other way round it is a mismatch always.  ``clamped`` says that its limits are exact, ``choices``
    that its integers name one of many and are the same or others, not near or far: half of them others is 3 dB.
    ``slices`` is the part of its own largest value by which a slice may differ, None where slices do not count.
    """

    def __init__(
        self,
        name: str,
        lsb: float | None = None,
        *,
        lossy: bool = False,
        clamped: bool = False,
        choices: bool = False,
        slices: float | None = None,
    ) -> None:
        self._name = name
        self._lsb = lsb
        self._lossy = lossy
        self._clamped = clamped
        self._choices = choices
        self._slices = slices
        self._shape: tuple[int, ...] = ()
        self._dtype = ""
        self._feeds = 0
        self._finite = self._within_lsb = 0
        self._max_abs = self._max_rel = self._sum_abs = self._largest = 0.0
        self._dot = self._ref_square = self._got_square = self._diff_square = 0.0
        self._worst_index: tuple[int, ...] = ()
        self._worst_feed = 0
        self._mismatch = ""
        self._diffs: list[Array] = []

    def add(self, reference: Array, got: Array) -> FeedDiff:
        """Take one feed's reference output and the output under test."""
        feed, self._feeds = self._feeds, self._feeds + 1
        self._shape, self._dtype = reference.shape, reference.dtype.name
        if reference.shape != got.shape:
            return self._mismatched(f"shape {got.shape}, expected {reference.shape}")
        if reference.dtype.kind in "OUST" or got.dtype.kind in "OUST":
            self._finite += reference.size
            return FeedDiff() if np.array_equal(reference, got) else self._mismatched("strings differ")
        if self._choices:
            reference, got = np.ones(reference.shape), (reference == got).astype(np.float64)
        ref, out = _real(reference).ravel(), _real(got).ravel()
        finite = np.isfinite(ref)
        self._finite += int(finite.sum())
        if not np.isfinite(out[finite]).all():
            return self._mismatched("is NaN or infinite where the reference is finite")
        same_odd = np.isnan(ref[~finite]) & np.isnan(out[~finite]) | (ref[~finite] == out[~finite])
        if not self._lossy and not same_odd.all():
            return self._mismatched("is not NaN or infinite where the reference is")
        diff = self._add_finite(ref[finite], out[finite], finite, feed)
        if self._slices is None or reference.dtype.kind != "f":
            return diff
        return replace(diff, faint=faint_slices(reference, got, self._slices))

    def _mismatched(self, text: str) -> FeedDiff:
        self._mismatch = text
        return FeedDiff(mismatch=text)

    def _add_finite(self, ref: Array, out: Array, where: Array, feed: int) -> FeedDiff:
        if ref.size == 0:
            return FeedDiff()
        diff = out - ref
        size = np.abs(diff)
        worst = int(size.argmax())
        if size[worst] > self._max_abs or not self._worst_index:
            flat = int(np.flatnonzero(where)[worst])
            self._worst_index = tuple(int(i) for i in np.unravel_index(flat, self._shape))
            self._worst_feed = feed
        self._max_abs = max(self._max_abs, float(size[worst]))
        self._sum_abs += float(size.sum())
        magnitude = np.abs(ref)
        largest = float(magnitude.max())
        self._largest = max(self._largest, largest)
        large = magnitude > max(_ALL_BUT_ZERO, 1e-6 * largest)
        if large.any():
            self._max_rel = max(self._max_rel, float((size[large] / magnitude[large]).max()))
        self._dot += float(ref @ out)
        self._ref_square += float(ref @ ref)
        self._got_square += float(out @ out)
        self._diff_square += float(diff @ diff)
        if self._lsb:
            self._within_lsb += int((size <= 1.001 * self._lsb).sum())
        self._diffs.append(_sample(diff))
        noise, signal = float(diff @ diff) / ref.size, float(ref @ ref) / ref.size
        off_limit = self._clamped and _is_off_limit(ref, out)
        changed = float(np.mean(size > 0.5 * self._lsb)) if self._lsb else 0.0
        return FeedDiff(float(size[worst]), largest, noise, signal, "", off_limit, self._lsb, changed)

    def finish(self, power: str = "ok") -> TensorDiff:
        """The numbers over everything added; ``power`` is what :class:`Power` says of it."""
        count = max(self._finite, 1)
        norm = math.sqrt(self._ref_square * self._got_square)
        return TensorDiff(
            name=self._name,
            shape=self._shape,
            dtype=self._dtype,
            max_abs=self._max_abs,
            max_rel=self._max_rel,
            relative=ratio(self._max_abs, self._largest),
            mean_abs=self._sum_abs / count,
            cosine=self._dot / norm if norm else float(self._ref_square == self._got_square),
            snr_db=snr_db(self._ref_square, self._diff_square),
            lsb=self._max_abs / self._lsb if self._lsb else None,
            lsb_share=self._within_lsb / count if self._lsb else None,
            worst_index=self._worst_index,
            worst_feed=self._worst_feed,
            mismatch=self._mismatch,
            power=power,
            histogram=_histogram(self._diffs),
        )


class Power:
    """Whether the values of one output tell anything: what is always the same agrees with many wrong models.

    ``discrete`` says that the floats of an output stand for choices, which are at the ends of their range.
    """

    def __init__(self, *, discrete: bool = False) -> None:
        self._choices = discrete
        self._feeds = self._elements = self._finite = self._at_edge = 0
        self._odd: list[str] = []
        self._low, self._high = math.inf, -math.inf
        self._first: Array | None = None
        self._varies = False
        self._moved: list[float] = []
        self._discrete = True

    def add(self, reference: Array, feed: str) -> None:
        """Take the reference output of one feed, which reports call ``feed``."""
        self._feeds += 1
        self._elements += reference.size
        self._note_variation(reference)
        if reference.dtype.kind in "OUST":
            self._finite += reference.size
            self._low, self._high = 0.0, 1.0
            return
        self._discrete &= reference.dtype.kind not in "fc" and reference.dtype.name != "bfloat16"
        every = _real(reference).ravel()
        values = every[np.isfinite(every)]
        self._finite += values.size
        if values.size < every.size:
            self._odd.append(feed)
        if values.size:
            self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
            edge = AT_EDGE * (self._high - self._low)
            self._at_edge += int(((values <= self._low + edge) | (values >= self._high - edge)).sum())

    def _note_variation(self, reference: Array) -> None:
        if self._first is None:
            self._first = reference.copy()
            return
        same = reference.shape == self._first.shape and np.array_equal(
            reference, self._first, equal_nan=reference.dtype.kind in "fc"
        )
        self._varies |= not same
        if reference.shape == self._first.shape and reference.dtype.kind not in "OUST":
            self._moved.append(0.0 if same else _farthest(self._first, reference))

    def _told_odd(self) -> str:
        if len(self._odd) < self._feeds:
            return listed(self._odd)
        return "every input" if self._feeds > 1 else listed(self._odd)

    def verdict(self, *, agree: bool = False) -> str:
        """``ok``, or why a comparison of these values says nothing.

        ``agree``: both sides are the same to the tolerance of values that small, which what roundings leave of a
        difference would not be; so only what is next to nothing says nothing.
        """
        if self._elements == 0:
            return "empty"
        if self._finite < _FINITE_SHARE * self._elements:
            return f"not finite on {self._told_odd()}"
        if max(abs(self._low), abs(self._high)) < (_NOTHING if agree else _ALL_BUT_ZERO):
            return "all but zero"
        if self._feeds > 1 and not self._varies:
            return "constant: the same for every input"
        if self._low == self._high:
            return "constant"
        if not (self._discrete or self._choices) and self._finite >= _ENOUGH_ELEMENTS and self._at_edge == self._finite:
            return self._at_the_ends()
        return "ok"

    def _at_the_ends(self) -> str:
        if self._moved and max(self._moved) <= AT_EDGE * (self._high - self._low):
            return "constant but for rounding: no element changes by 0.1 % of the range from input to input"
        return "saturated: every element is at an end of the range"


def _farthest(one: Array, other: Array) -> float:
    """By how much an element differs between arrays of one shape; infinite where values are not finite."""
    with np.errstate(invalid="ignore"):
        moved = float(np.abs(_real(one) - _real(other)).max(initial=0.0))
    return moved if math.isfinite(moved) else math.inf


def listed(feeds: Sequence[str]) -> str:
    """Some inputs as reports call them: ``input 3``, ``inputs 1, 2 and "zeros"``."""
    shown = [*feeds[:_LISTED], f"{len(feeds) - _LISTED} more"] if len(feeds) > _LISTED else list(feeds)
    if len(shown) == 1:
        return f"input {shown[0]}"
    return f"inputs {', '.join(shown[:-1])} and {shown[-1]}"


def _is_off_limit(ref: Array, out: Array) -> bool:
    for limit in (ref.max(), ref.min()):
        held = ref == limit
        if np.count_nonzero(held) >= _AT_LIMIT and (out[held] != limit).any():
            return True
    return False


def _real(array: Array) -> Array:
    """Float64 numbers to compare: complex as pairs, everything else by value."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], -1).astype(np.float64)
    return array.astype(np.float64)


def snr_db(signal: float, noise: float) -> float:
    """The ratio of two powers in dB; infinite where there is no noise."""
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


_SAMPLE = 4096


def _sample(diff: Array) -> Array:
    """At most ``_SAMPLE`` differences in a fixed pattern: enough for a plot, bounded for memory."""
    return diff[:: max(1, diff.size // _SAMPLE)].copy()


def _histogram(diffs: list[Array]) -> Histogram:
    values = np.concatenate(diffs) if diffs else np.zeros(0)
    if values.size == 0:
        return Histogram((), ())
    limit = float(np.abs(values).max()) or 1.0
    counts, edges = np.histogram(values, _BINS, (-limit, limit))
    return Histogram(tuple(map(float, edges)), tuple(map(int, counts)))

"""How much of the source's answers an artifact keeps, on samples that no choice was made for.

Of a calibration set no sample is quite that: choices are made and weights tuned on those held out, ranges measured on
the others.  So both are judged on, and the figure is that of the worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, Array, Artifact
from convertkit.data.evaluation import LABEL
from convertkit.data.held_out import held_out_positions, spread
from convertkit.findings.values import Quality
from convertkit.parity.replay import record
from convertkit.stage import Feed, FeedSource, Outputs, Runner

MOST_SAMPLES = 50
_MEASURED = ("int8", "int16x8")
"""Precisions whose activations have ranges that were measured."""
_WITHOUT_RANGES = ("float32", "weights-only")
"""What such a precision may become instead, which no range cuts off."""
_LESS_DB = 1.0
"""What ends of ranges have to cost to be told."""
_QUIETEST = 0.01
"""A sample's own signal counts as at least this share of the mean one."""


def unseen(calibration: FeedSource | None, evaluation: FeedSource | None) -> tuple[str, Iterator[Feed]] | None:
    """Samples to judge on and their origin: labelled ones, else what calibration holds out; None without data."""
    if evaluation is not None:
        return "evaluation", _at(evaluation, spread(len(evaluation), MOST_SAMPLES))
    if calibration is None:
        return None
    held_out = held_out_positions(len(calibration))
    origin = "held-out" if held_out else "calibration"
    positions: Sequence[int] = held_out or range(len(calibration))
    return origin, _at(calibration, [positions[index] for index in spread(len(positions), MOST_SAMPLES)])


def judged(calibration: FeedSource | None, evaluation: FeedSource | None) -> tuple[tuple[str, Iterator[Feed]], ...]:
    """What an artifact is judged on: :func:`unseen`, and of calibration data as many of the samples not held out."""
    first = unseen(calibration, evaluation)
    if first is None:
        return ()
    if first[0] != "held-out" or calibration is None:
        return (first,)
    held_out = held_out_positions(len(calibration))
    others = sorted(set(range(len(calibration))) - set(held_out))
    wanted = spread(len(others), min(len(held_out), MOST_SAMPLES))
    return first, ("calibration", _at(calibration, [others[index] for index in wanted]))


def _at(source: FeedSource, positions: Iterable[int]) -> Iterator[Feed]:
    wanted = frozenset(positions)
    last = max(wanted, default=-1)
    for index, feed in enumerate(source):
        if index in wanted:
            yield {name: value for name, value in feed.items() if name != LABEL}
        if index >= last:
            return


def measure(
    parts: Iterable[tuple[str, Iterable[Feed]]],
    source: tuple[Artifact, Runner],
    delivered: tuple[Artifact, Runner],
) -> Quality:
    """The quality on the part of the samples, each with its origin, on which it is lowest.

    Outputs are compared and forgotten one by one, except where state is carried.
    """
    with ExitStack() as stack:
        for _, runner in (source, delivered):
            stack.enter_context(runner)
        each = [_on(origin, feeds, source, delivered) for origin, feeds in parts]
    return min(each, key=lambda quality: quality.snr_db)


def _on(
    origin: str, feeds: Iterable[Feed], source: tuple[Artifact, Runner], delivered: tuple[Artifact, Runner]
) -> Quality:
    levels: dict[str, _Level] = {}
    count = 0
    for expected, got in _answers(feeds, source, delivered):
        count += 1
        for name, value in expected.items():
            if not name.startswith(NEXT_STATE_PREFIX):
                levels.setdefault(name, _Level()).add(np.asarray(value), np.asarray(got[name]))
    name, worst = min(levels.items(), key=lambda item: item[1].total_db)
    agreed = [level.agreement for level in levels.values() if level.agreement is not None]
    each = np.array(worst.each_db)
    return Quality(
        count, origin, name, worst.total_db, _quantile(each, 0.5), _quantile(each, 0.05), min(agreed, default=None)
    )


def beyond_ranges(quality: Quality | None, diagnoses: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """What samples beyond those of calibration may lose, where the quantizer has seen that; by its ``diagnoses``.

    The ranges that are delivered cover all samples of --calib.  Those that choices were made with do not cover the
    samples held out, so the quantizer's own figure on these has what other samples may lose at the ends of ranges.
    """
    told = [each for each in diagnoses if each.get("requested") in _MEASURED and "recovered" not in each]
    told = [each for each in told if each.get("effective") not in _WITHOUT_RANGES]
    kept = told[-1].get("held_out") if told else None
    if quality is None or quality.origin == "evaluation" or not isinstance(kept, Mapping) or kept["seen"]:
        return ()
    before = float(kept["snr_db"])
    if not before < quality.snr_db - _LESS_DB:
        return ()
    return (
        f"the quality is that of samples on which the ranges were measured; the held-out ones kept {before:.1f} dB "
        "before the ranges took them in. Values beyond a range are cut off: more samples in --calib widen the ranges",
    )


def _answers(
    feeds: Iterable[Feed], source: tuple[Artifact, Runner], delivered: tuple[Artifact, Runner]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    if any(spec.is_state for spec in source[0].inputs):
        kept = tuple(feeds)
        pair: list[tuple[Outputs, ...]] = [record("", *each, kept).outputs for each in (source, delivered)]
        yield from zip(*pair, strict=True)
        return
    for feed in feeds:
        yield source[1].run(feed), delivered[1].run(feed)


@dataclass(slots=True)
class _Level:
    """Signal and noise of one output, and how often its largest score stays where it is."""

    signal: float = 0.0
    noise: float = 0.0
    each: list[tuple[float, float]] = field(default_factory=list)
    alike: list[float] = field(default_factory=list)

    def add(self, expected: Array, got: Array) -> None:
        if expected.shape != got.shape or expected.dtype.kind not in "fiub" or expected.size == 0:
            return
        if expected.dtype.kind in "iub":
            self.alike.append(float(np.mean(expected == got)))
        elif expected.ndim == 2 and expected.shape[-1] > 1:
            self.alike.append(float(np.mean(expected.argmax(-1) == got.argmax(-1))))
        finite = np.isfinite(expected)
        wanted, found = expected[finite].astype(np.float64), got[finite].astype(np.float64)
        signal, noise = float(np.square(wanted).sum()), float(np.square(found - wanted).sum())
        self.signal, self.noise = self.signal + signal, self.noise + noise
        self.each.append((signal, noise))

    @property
    def each_db(self) -> list[float]:
        """Of every sample, against its own signal: but silence is not lost to a little noise."""
        least = _QUIETEST * self.signal / max(len(self.each), 1)
        return [_decibels(max(signal, least), noise) for signal, noise in self.each]

    @property
    def total_db(self) -> float:
        return _decibels(self.signal, self.noise)

    @property
    def agreement(self) -> float | None:
        return float(np.mean(self.alike)) if self.alike else None


def _decibels(signal: float, noise: float) -> float:
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal and math.isfinite(noise) else -math.inf


def _quantile(values: Array, share: float) -> float:
    """The sample at that place, no mean of two: some may be infinite."""
    ordered = np.sort(values)
    return float(ordered[int(share * (len(ordered) - 1))]) if len(ordered) else math.inf

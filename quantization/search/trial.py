"""Trying a plan: what the quantized model computes on samples that calibration has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import NEXT_STATE_PREFIX, Array
from convertkit.good_enough import keeps_samples
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.costs import unit_work
from convertkit.quantization.search.levels import class_axis, decibels, expected_drop
from convertkit.quantization.search.plan import Plan, Ranges, apply
from convertkit.quantization.search.quality import Output, Quality, levels
from convertkit.quantization.search.reference import Reference, weight_bytes
from convertkit.stage import Feed

_SILENT = 1e-9
"""A slice with less than this share of the loudest slice's power is noise itself."""
_BUDGET = 2.5e10
"""Multiply-adds that all trials of one search may cost."""
_PER_UNIT = 1e7
"""What copying, writing and loading one unit costs, in multiply-adds."""
_DECISIVE = 4
"""Trials that may be made on more feeds."""
_SIGNIFICANT = 2.0
_LEAST_GAIN_DB = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What a plan loses: SNR in dB, and the expected drop of top-1 accuracy in points.

    ``shares`` is noise over signal for each feed, in two rows per output: of the output as a whole, and
    of its slices (:func:`noise_shares`); of an output behind a softmax or sigmoid it is taken before it, where errors
    are not squashed.  ``worst_db`` is the SNR of the worst output over all feeds, ``each_db`` that of each feed against
    its own signal.

    The drop is expected in this sense: where the quantized model prefers another class, the float
    model's own probabilities say what that costs.  It needs no labels and does not punish flips
    between classes that the float model holds for equally likely.
    """

    shares: Array
    worst_db: float
    drop: float
    each_db: Array

    @property
    def snr_db(self) -> float:
        """Level of the typical feed and of all noise together, half each: loud feeds count, but not alone."""
        return float(_level(self.shares.mean(axis=1), decibels(self.shares).mean(axis=1)))

    @property
    def is_good(self) -> bool:
        """Whether noise is low over all feeds and feed by feed."""
        low, middle = (float(np.quantile(self.each_db, share)) for share in (0.05, 0.5))
        return keeps_samples(self.worst_db, middle, low)

    def beats(self, other: Score) -> bool:
        """Whether this is better by more than chance: twice the standard error, found by leaving out feed by feed."""
        gains = self._without_each() - other._without_each()
        error = np.sqrt((gains.size - 1) / gains.size * float(np.square(gains - gains.mean()).sum()))
        return bool(self.snr_db - other.snr_db > max(_LEAST_GAIN_DB, _SIGNIFICANT * error))

    def _without_each(self) -> Array:
        return _level(*(_other_means(each) for each in (self.shares, decibels(self.shares))))


def _level(share: Array, typical_db: Array) -> Array:
    return np.asarray((decibels(share) + typical_db).mean(axis=0) / 2)


def _other_means(rows: Array) -> Array:
    """Along each row, the mean of all but one, for each one."""
    return np.asarray((rows.sum(axis=1, keepdims=True) - rows) / max(rows.shape[1] - 1, 1))


class Trials:
    """Measures plans for one prepared float model on held-out feeds.

    ``affordable`` is how many a search should try, and ``affordable_feeds`` on how many feeds the few that decide
    most: fewer for large models.
    """

    def __init__(self, model: ir.Model, ranges: Ranges, feeds: Sequence[Feed], state: Mapping[str, Array]) -> None:
        self._model, self._ranges = model, ranges
        self._tried: dict[int, tuple[Plan, Score]] = {}
        self._reference = Reference(model, feeds, state)
        units = find_units(model.graph, ranges.profile)
        once = sum(unit_work(unit) for unit in units)
        work = once * max(len(feeds), 1) + len(units) * _PER_UNIT
        self.affordable_feeds = int(_BUDGET / _DECISIVE / max(once, 1.0))
        self.affordable = int(np.clip(_BUDGET / max(work, 1.0), 4, 24))

    def score(self, plan: Plan) -> Score:
        """Quantize a copy by ``plan`` and compare it with the float model; the same plan object is tried once."""
        if id(plan) not in self._tried:
            copy = self._model.clone()
            apply(copy, plan, self._ranges)
            # The plan is kept beside its score, so that no other object gets its id.
            self._tried[id(plan)] = plan, compare(self._reference.outputs, self._reference.answers(copy))
        return self._tried[id(plan)][1]

    def finished(self, plan: Plan, finish: Callable[[ir.Model], None]) -> tuple[Quality, int]:
        """What the whole artifact keeps, what ``finish`` writes beside the pairs included, and its weights' bytes."""
        copy = self._model.clone()
        apply(copy, plan, self._ranges)
        finish(copy)
        return self._reference.quality(copy), weight_bytes(copy)


def compare(reference: Sequence[Output], outputs: Sequence[Output]) -> Score:
    """Score of outputs against the float model's."""
    both = tuple(zip(reference, outputs, strict=True))
    noise = [noise_shares(one.before, other.before) for one, other in both]
    whole = [_sliced(one.before, _errors(one.before, other.before), None) for one, other in both]
    worst = min(float(decibels(each.mean(keepdims=True))[0]) for each in noise)
    drops = [expected_drop(one.values, other.values) for one, other in both if _has_classes(one)]
    each = np.min([levels(one.before, other.before)[1] for one, other in both], axis=0)
    return Score(np.stack([*noise, *whole]), worst, max(drops, default=0.0), each)


def _has_classes(output: Output) -> bool:
    first = output.values[0]
    return not output.name.startswith(NEXT_STATE_PREFIX) and first.ndim >= 2 and first.shape[class_axis(first)] > 1


def noise_shares(expected: Sequence[Array], got: Sequence[Array]) -> Array:
    """For each feed, noise power over signal power, averaged over slices of the output.

    Slices are taken along the second axis and along the last one, each against its own signal over
    all feeds, and the worse axis counts: scores beside boxes a thousand times larger weigh the same.
    """
    errors = _errors(expected, got)
    axes = {1, errors[0].ndim - 1} if errors[0].ndim > 1 else set(range(errors[0].ndim))
    ragged = {axis for axis in axes if len({error.shape[axis] for error in errors}) > 1}
    chosen: list[int | None] = [*sorted(axes - ragged)] or [None]
    return np.asarray(np.max([_sliced(expected, errors, axis) for axis in chosen], axis=0))


def _errors(expected: Sequence[Array], got: Sequence[Array]) -> list[Array]:
    # Where both are infinite, as masks are, nothing is lost.
    return [np.square(np.subtract(a, b, where=a != b, out=np.zeros(a.shape), dtype=np.float64))
            for a, b in zip(expected, got, strict=True)]  # fmt: skip


def _sliced(expected: Sequence[Array], errors: Sequence[Array], axis: int | None) -> Array:
    def power(array: Array) -> Array:
        others = tuple(place for place in range(array.ndim) if place != axis)
        return np.asarray(array.mean(axis=others)).reshape(-1)

    signal = np.mean([power(np.square(array, dtype=np.float64)) for array in expected], axis=0)
    used = signal > signal.max(initial=0.0) * _SILENT
    if not used.any():
        return np.array([float(error.mean()) for error in errors])
    # A slice that is lost is lost: beyond its own power, noise does not count.
    shares = [np.minimum(np.nan_to_num(power(error)[used] / signal[used], nan=1.0), 1.0) for error in errors]
    return np.array([float(each.mean()) for each in shares])

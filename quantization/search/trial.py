"""Trying a plan: what the quantized model computes on samples that calibration has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import NEXT_STATE_PREFIX, Array
from convertkit.quantization.calibration.replay import open_session, run_all
from convertkit.quantization.placement.islands import unit_work
from convertkit.quantization.placement.units import find_units
from convertkit.quantization.search.measured import readings
from convertkit.quantization.search.plan import Plan, Ranges, apply
from convertkit.stage import Feed

_BEST_DB = 80.0
"""Beyond this an output counts as exact."""
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
_SEQUENCE_RANK = 3
"""Outputs of at most this rank, ``(N, classes)`` and ``(N, tokens, classes)``, have their classes last."""


@dataclass(frozen=True, slots=True, eq=False)
class Score:
    """What a plan loses: SNR in dB, and the expected drop of top-1 accuracy in points.

    ``shares`` is noise over signal for each feed, in two rows per output: of the output as a whole, and
    of its slices (:func:`noise_shares`); of an output behind a softmax or sigmoid it is taken before it, where errors
    are not squashed.  ``worst_db`` is the SNR of the worst output over all feeds.

    The drop is expected in this sense: where the quantized model prefers another class, the float
    model's own probabilities say what that costs.  It needs no labels and does not punish flips
    between classes that the float model holds for equally likely.
    """

    shares: Array
    worst_db: float
    drop: float

    @property
    def snr_db(self) -> float:
        """Level of the typical feed and of all noise together, half each: loud feeds count, but not alone."""
        return float(_level(self.shares.mean(axis=1), _decibels(self.shares).mean(axis=1)))

    def beats(self, other: Score) -> bool:
        """Whether this is better by more than chance: twice the standard error, found by leaving out feed by feed."""
        gains = self._without_each() - other._without_each()
        error = np.sqrt((gains.size - 1) / gains.size * float(np.square(gains - gains.mean()).sum()))
        return bool(self.snr_db - other.snr_db > max(_LEAST_GAIN_DB, _SIGNIFICANT * error))

    def _without_each(self) -> Array:
        return _level(*(_other_means(each) for each in (self.shares, _decibels(self.shares))))


def _level(share: Array, typical_db: Array) -> Array:
    return np.asarray((_decibels(share) + typical_db).mean(axis=0) / 2)


def _other_means(rows: Array) -> Array:
    """Along each row, the mean of all but one, for each one."""
    return np.asarray((rows.sum(axis=1, keepdims=True) - rows) / max(rows.shape[1] - 1, 1))


@dataclass(frozen=True, slots=True)
class Output:
    """One output for every feed: as it leaves, and as it is before a squashing operator."""

    name: str
    values: Sequence[Array]
    before: Sequence[Array]


class Trials:
    """Measures plans for one prepared float model on held-out feeds.

    ``affordable`` is how many a search should try, and ``affordable_feeds`` on how many feeds the few that decide
    most: fewer for large models.
    """

    def __init__(self, model: ir.Model, ranges: Ranges, feeds: Sequence[Feed], state: Mapping[str, Array]) -> None:
        self._model, self._ranges, self._feeds, self._state = model, ranges, feeds, state
        self._tried: dict[int, tuple[Plan, Score]] = {}
        self._readings = readings(model.graph)
        self._reference = self._run(model.clone())
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
            self._tried[id(plan)] = plan, compare(self._reference, self._run(copy))
        return self._tried[id(plan)][1]

    def _run(self, copy: ir.Model) -> tuple[Output, ...]:
        nodes = {node.name: node for node in copy.graph}
        values = [nodes[each.node].inputs[each.place] if each.node else None for each in self._readings]
        inner = [value for value in values if value is not None and not value.is_graph_output()]
        copy.graph.outputs.extend(dict.fromkeys(inner))
        before = [_name(value) or each.name for value, each in zip(values, self._readings, strict=True)]
        leaving = [each.name if each.leaves else name for name, each in zip(before, self._readings, strict=True)]
        answers = list(run_all(open_session(copy), list(dict.fromkeys((*leaving, *before))), self._feeds, self._state))
        return tuple(
            Output(each.name, [answer[whole] for answer in answers], [answer[name] for answer in answers])
            for each, whole, name in zip(self._readings, leaving, before, strict=True)
        )


def _name(value: ir.Value | None) -> str:
    return "" if value is None else str(value.name)


def compare(reference: Sequence[Output], outputs: Sequence[Output]) -> Score:
    """Score of outputs against the float model's."""
    both = tuple(zip(reference, outputs, strict=True))
    noise = [noise_shares(one.before, other.before) for one, other in both]
    whole = [_sliced(one.before, _errors(one.before, other.before), None) for one, other in both]
    worst = min(float(_decibels(each.mean(keepdims=True))[0]) for each in noise)
    drops = [expected_drop(one.values, other.values) for one, other in both if _has_classes(one)]
    return Score(np.stack([*noise, *whole]), worst, max(drops, default=0.0))


def _has_classes(output: Output) -> bool:
    first = output.values[0]
    return not output.name.startswith(NEXT_STATE_PREFIX) and first.ndim >= 2 and first.shape[_class_axis(first)] > 1


def noise_shares(expected: Sequence[Array], got: Sequence[Array]) -> Array:
    """For each feed, noise power over signal power, averaged over slices of the output.

    Slices are taken along the second axis and along the last one, each against its own signal over
    all feeds, and the worse axis counts: scores beside boxes a thousand times larger weigh the same.
    """
    errors = _errors(expected, got)
    axes = {1, errors[0].ndim - 1} if errors[0].ndim > 1 else {0}
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


def _decibels(shares: Array) -> Array:
    return -10 * np.log10(np.maximum(shares, 10 ** (-_BEST_DB / 10)))


def expected_drop(expected: Sequence[Array], got: Sequence[Array]) -> float:
    """Points of top-1 accuracy that the float model itself expects to be lost.

    Classes lie where :func:`_class_axis` says; every other place (a pixel, a token) counts as a sample.
    """
    losses = []
    for reference, output in zip(expected, got, strict=True):
        axis = _class_axis(reference)
        scores, others = (np.moveaxis(each, axis, -1).reshape(-1, each.shape[axis]) for each in (reference, output))
        belief = _probabilities(scores.astype(np.float64))
        losses.append(belief.max(-1) - belief[np.arange(len(belief)), others.argmax(-1)])
    return 100.0 * float(np.concatenate(losses).mean())


def _class_axis(output: Array) -> int:
    """Of images' classes ``(N, C, H, W)`` the second axis, unless only ``(N, H, W, C)`` makes the images square."""
    square = output.ndim > _SEQUENCE_RANK and output.shape[1] == output.shape[2] != output.shape[-1]
    return output.ndim - 1 if output.ndim <= _SEQUENCE_RANK or square else 1


def _probabilities(scores: Array) -> Array:
    if scores.min() >= 0 and np.allclose(scores.sum(-1), 1.0, atol=1e-3):
        return scores
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))

"""Looking through two models for the values that do not follow from what they are computed of.

Every value of the second is held against what the reference's own nodes make of the second's values before it.  So a
fault shows at the node where it is, whatever it does further on, and roundings do not add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from convertkit.artifact import Array, Artifact
from convertkit.compare.aligning import Aligned
from convertkit.compare.matching import Pair, orders_of
from convertkit.parity.compare import snr_db
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import ParityReport, Recording, TensorDiff
from convertkit.probing import Inner, Probe
from convertkit.progress import Progress
from convertkit.stage import FLOAT32, Feed, Tolerance
from convertkit.twins import Twins

_CHUNK_BYTES = 48 << 20
"""Of values that are held at a time, on each side."""
_MOST = 48


@dataclass(frozen=True, slots=True)
class Sides:
    """The two models: what looks into each, the reference as ONNX, and how the second speaks its interface."""

    reference: Artifact
    probes: tuple[Probe, Probe]
    how: Aligned
    feed: Feed


@dataclass(frozen=True, slots=True)
class Level:
    """One value: how far it is from what its own inputs make of it (``local_db``), and from the reference's own run."""

    name: str
    kind: str
    local_db: float
    snr_db: float


@dataclass(frozen=True, slots=True)
class Departure:
    """A value of the second that does not follow from the values before it.

    ``nodes`` are those of the reference that compute it from ``given``, values that the second has, too.
    """

    pair: Pair
    nodes: tuple[Inner, ...]
    given: tuple[Pair, ...]
    diff: TensorDiff
    failure: str
    expected: Array
    got: Array
    inputs: Mapping[str, Array]
    orders: Mapping[str, tuple[int, ...]]
    """Of the axes of ``inputs`` in the second, by the reference's names."""
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was looked at, and what differs, both in the order of the reference."""

    levels: tuple[Level, ...]
    departures: tuple[Departure, ...]


def chunks(values: Sequence[Inner], feed: Feed) -> Iterator[tuple[Inner, ...]]:
    """As many at a time as fit; a dynamic dimension is taken for as long as the longest of the inputs."""
    longest = max((max(np.shape(value), default=1) for value in feed.values()), default=1)
    batch = max((np.shape(value)[0] for value in feed.values() if np.ndim(value)), default=1)
    held, size = list[Inner](), 0
    for each in values:
        dynamic = longest if 1 in each.shape[1:] and len(each.shape) > 1 else 1
        need = 4 * math.prod(each.shape) * dynamic * (batch if each.shape[:1] == (1,) else 1)
        if held and (size + need > _CHUNK_BYTES or len(held) >= _MOST):
            yield tuple(held)
            held, size = [], 0
        held.append(each)
        size += need
    if held:
        yield tuple(held)


def scan(
    sides: Sides,
    values: Sequence[Inner],
    pairs: Sequence[Pair],
    tolerance: Tolerance,
    folder: Path,
    progress: Progress,
    *,
    every: bool,
) -> Scanned:
    """Look at all pairs in the order of the reference; up to the first difference unless ``every`` is wanted."""
    paired = {pair.reference.name: pair for pair in pairs}
    made = {value.name: value for value in values}
    levels, departures = list[Level](), list[Departure]()
    uncut = set[str]()
    parts = tuple(chunks([value for value in values if value.name in paired], sides.feed))
    for chunk in progress.track(parts, len(parts), "comparing values"):
        chosen = [paired[value.name] for value in chunk]
        found = _Chunk(sides, made, paired, chosen, frozenset(uncut))
        with threadpool_limits(limits=1, user_api="blas"):  # for sums of squares threads cost more than they bring
            some_levels, some = found.looked(tolerance, folder)
        levels += some_levels
        departures += some
        uncut |= found.misfits
        if departures and not every:
            break
    return Scanned(tuple(levels), tuple(departures))


class _Chunk:
    """Some pairs, and the pairs that the reference computes them from."""

    def __init__(
        self,
        sides: Sides,
        made: Mapping[str, Inner],
        paired: Mapping[str, Pair],
        chosen: Sequence[Pair],
        uncut: frozenset[str],
    ) -> None:
        self._sides, self._made, self._paired, self._chosen = sides, made, paired, chosen
        self.misfits = set[str]()
        """Values of another shape than the reference's, from which nothing can be computed."""
        self._uncut = uncut

    def looked(self, tolerance: Tolerance, folder: Path) -> tuple[list[Level], list[Departure]]:
        """Each pair's levels, and those that differ.

        A packager may flatten channels in another order and reorder the weights that read them.  Then what follows is
        right where it is computed without the flattened value, which is not counted as one that differs.
        """
        levels, departures = self._looked(tolerance, folder)
        moved = [each for each in departures if _has_moved(each, tolerance) and self._is_read(each.pair)]
        if not moved:
            return levels, departures
        names = {each.pair.reference.name for each in moved}
        rest = [pair for pair in self._chosen if pair.reference.name not in names]
        without = _Chunk(self._sides, self._made, self._paired, rest, self._uncut | names)
        levels_without, departures_without = without._looked(tolerance, folder)
        if any(node.name in names for each in departures_without for node in each.nodes):
            return levels, departures
        self.misfits = without.misfits | names
        return [*map(_sorted_level, moved), *levels_without], departures_without

    def _is_read(self, pair: Pair) -> bool:
        """Whether other pairs are computed from it."""
        others = (each for each in self._paired.values() if each is not pair)
        return any(pair.reference.name in self._before(each)[0] for each in others)

    def _looked(self, tolerance: Tolerance, folder: Path) -> tuple[list[Level], list[Departure]]:
        wanted = {pair.reference.name: pair for pair in self._chosen}
        around = wanted | {name: self._paired[name] for pair in self._chosen for name in self._before(pair)[0]}
        own = self._sides.probes[0].values(self._sides.feed, tuple(around))
        feed = self._sides.how.given(self._sides.feed)
        theirs = self._sides.probes[1].values(feed, tuple({pair.other.name: None for pair in around.values()}))
        orders = orders_of([(name, own[name], theirs[pair.other.name]) for name, pair in around.items()])
        self.misfits = {name for name, order in orders.items() if order is None}
        got = {
            name: theirs[pair.other.name].transpose(np.argsort(order))
            for name, pair in around.items()
            if (order := orders[name]) is not None
        }
        cuts = tuple(name for name in around if name in got and name not in self._uncut)
        expected, feed, artifact = self._expected(tuple(wanted), cuts, got, folder)
        levels, departures = [], []
        for name, pair in wanted.items():
            value = got.get(name, theirs[pair.other.name])
            overall = _level(own[name], value)
            if (close := _clearly_within(expected[name], value, tolerance)) is not None:
                levels.append(Level(name, pair.other.kind, close, overall))
                continue
            step = None if pair.other.quantization is None else pair.other.quantization.scale
            spec = replace(next(spec for spec in artifact.outputs if spec.name == name), lsb=step)
            narrowed = replace(artifact, outputs=(spec,))
            before, after = (Recording("", narrowed, (feed,), ({name: each},)) for each in (expected[name], value))
            report = compare_recordings(before, after, tolerance)
            if report.failures:
                report = self._with_twin(pair, (before, after), tolerance, got, folder)
            (diff,) = report.diffs
            levels.append(Level(name, pair.other.kind, diff.snr_db, overall))
            if report.failures:
                failure = report.failures[0]
                departures.append(self._departure(pair, diff, failure, expected[name], value, got, orders))
        return levels, departures

    def _with_twin(
        self,
        pair: Pair,
        recordings: tuple[Recording, Recording],
        tolerance: Tolerance,
        got: Mapping[str, Array],
        folder: Path,
    ) -> ParityReport:
        """The comparison with the float64 twin of the few nodes that make one value as the judge."""
        names, _ = self._before(pair)
        part, feed = self._part([pair.reference.name], [name for name in names if name in got], got, folder)
        before, after = (replace(each, feeds=(feed,)) for each in recordings)
        with Twins() as twins:
            return compare_recordings(before, after, tolerance, twins.ask(part))

    def _departure(
        self,
        pair: Pair,
        diff: TensorDiff,
        failure: str,
        expected: Array,
        value: Array,
        got: Mapping[str, Array],
        orders: Mapping[str, tuple[int, ...] | None],
    ) -> Departure:
        names, nodes = self._before(pair)
        given = tuple(self._paired[name] for name in names)
        inputs = {name: got[name] for name in names if name in got}
        known = {name: order for name in inputs if (order := orders[name]) is not None}
        order = orders[pair.reference.name] or ()
        return Departure(pair, nodes, given, diff, failure, expected, value, inputs, known, order)

    def _before(self, pair: Pair) -> tuple[tuple[str, ...], tuple[Inner, ...]]:
        """The pairs from which the reference computes one, and its nodes in between, in the order of the graph."""
        names, nodes = dict[str, None](), dict[str, Inner]()
        waiting = [pair.reference]
        while waiting:
            value = waiting.pop()
            if value.name in nodes:
                continue
            nodes[value.name] = value
            for name in value.inputs:
                if name in self._paired and name not in self._uncut:
                    names[name] = None
                elif name in self._made:
                    waiting.append(self._made[name])
        order = {name: place for place, name in enumerate(self._made)}
        return tuple(sorted(names, key=order.__getitem__)), tuple(sorted(nodes.values(), key=lambda v: order[v.name]))

    def _expected(
        self, wanted: Sequence[str], cuts: Sequence[str], got: Mapping[str, Array], folder: Path
    ) -> tuple[Mapping[str, Array], Feed, Artifact]:
        """What the reference makes of the second's values; the feed and the model that did."""
        from convertkit.onnx.runner import OnnxRunner

        artifact, feed = self._part(wanted, cuts, got, folder)
        with OnnxRunner(artifact) as runner:
            return runner.run(feed), feed, artifact

    def _part(
        self, wanted: Sequence[str], cuts: Sequence[str], got: Mapping[str, Array], folder: Path
    ) -> tuple[Artifact, Feed]:
        """The reference's nodes that make some values of others, and what they are given."""
        import convertkit.onnx  # noqa: F401 - first: it keeps sympy out of onnx_ir's import
        from convertkit.onnx.probe import given_name, with_cuts

        reference = self._sides.reference
        made = with_cuts(reference, cuts, wanted, folder)
        own = {spec.name: spec for spec in reference.inputs}
        artifact = replace(made, inputs=tuple(own.get(spec.name, spec) for spec in made.inputs))
        dtypes = {spec.name: spec.dtype for spec in artifact.inputs}
        given = {given_name(name): got[name] for name in cuts}
        # not ascontiguousarray, which makes a vector of a scalar
        typed = {name: np.asarray(value, dtypes[name], order="C") for name, value in given.items() if name in dtypes}
        return artifact, {name: value for name, value in self._sides.feed.items() if name in own} | typed


def _level(own: Array, got: Array) -> float:
    """Signal over noise in dB of what is finite; NaN where shapes or types tell nothing."""
    if own.shape != got.shape or own.dtype.kind not in "fiub" or got.dtype.kind not in "fiub":
        return math.nan
    wanted, found = (each.astype(np.float32, copy=False).ravel() for each in (own, got))
    finite = np.isfinite(wanted) & np.isfinite(found)
    if not finite.all():
        wanted, found = wanted[finite], found[finite]
    noise = found - wanted
    return snr_db(float(wanted @ wanted), float(noise @ noise))


_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators of ONNX that move no element, but for which a packager may change the order before them."""


def _has_moved(found: Departure, tolerance: Tolerance) -> bool:
    """Whether the same elements stand in another order behind a reshape."""
    if found.pair.reference.kind not in _VIEWS or found.expected.shape != found.got.shape:
        return False
    expected, got = (np.sort(each, axis=None) for each in (found.expected, found.got))
    return _clearly_within(expected, got, tolerance) is not None


def _sorted_level(found: Departure) -> Level:
    level = _level(np.sort(found.expected, axis=None), np.sort(found.got, axis=None))
    return Level(found.pair.reference.name, found.pair.other.kind, level, level)


_HALF = 0.5
"""Of a tolerance, within which float32 is good enough to tell."""
_SPARE_DB = 1.0


def _clearly_within(expected: Array, got: Array, tolerance: Tolerance) -> float | None:
    """The level of a value that needs no closer look, in dB; None where it does.

    Most values are all but equal, and large: they are compared in float32, which the verification does not do.
    """
    if expected.shape != got.shape or expected.dtype.kind != "f" or got.dtype.kind != "f":
        return None
    if not (np.isfinite(expected).all() and np.isfinite(got).all()):
        return None
    level = _level(expected, got)
    if tolerance.relative is not None:
        allowed = _HALF * tolerance.relative * float(np.abs(expected).max(initial=0.0))
        return level if float(np.abs(got - expected).max(initial=0.0)) <= allowed else None
    return level if tolerance.lossy and level >= (tolerance.snr_db or 0.0) + _SPARE_DB else None


def inner_tolerance(whole: Tolerance, budget_db: float) -> Tolerance:
    """What one value may be off by: float32 arithmetic, what integers that are computed again may, or a budget.

    No number of steps counts as little where numbers change on purpose: a scale that is far too large has large steps.
    """
    if whole.lossy:
        reason = f"a budget of {budget_db:g} dB for one operator where numbers change on purpose"
        return Tolerance(reason, snr_db=budget_db, lossy=True)
    return whole if whole.relative is None else FLOAT32

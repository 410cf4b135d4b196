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

from convertkit.artifact import Array, Artifact
from convertkit.compare.aligning import Aligned
from convertkit.compare.matching import Pair, orders_of
from convertkit.parity.compare import snr_db
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Recording, TensorDiff
from convertkit.probing import Inner, Probe
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
    """What was looked at, and what departs, both in the order of the reference."""

    levels: tuple[Level, ...]
    departures: tuple[Departure, ...]


def chunks(values: Sequence[Inner], feed: Feed) -> Iterator[tuple[Inner, ...]]:
    """As many at a time as fit; a dynamic dimension is taken for as long as the longest of the inputs."""
    longest = max((max(np.shape(value), default=1) for value in feed.values()), default=1)
    held, size = list[Inner](), 0
    for each in values:
        dynamic = longest if 1 in each.shape[1:] and len(each.shape) > 1 else 1
        need = 4 * math.prod(each.shape) * dynamic
        if held and (size + need > _CHUNK_BYTES or len(held) >= _MOST):
            yield tuple(held)
            held, size = [], 0
        held.append(each)
        size += need
    if held:
        yield tuple(held)


def scan(
    sides: Sides, values: Sequence[Inner], pairs: Sequence[Pair], tolerance: Tolerance, folder: Path, *, every: bool
) -> Scanned:
    """Look at all pairs in the order of the reference; up to the first departure unless ``every`` is wanted."""
    paired = {pair.reference.name: pair for pair in pairs}
    made = {value.name: value for value in values}
    levels, departures = list[Level](), list[Departure]()
    uncut = set[str]()
    for chunk in chunks([value for value in values if value.name in paired], sides.feed):
        chosen = [paired[value.name] for value in chunk]
        found = _Chunk(sides, made, paired, chosen, frozenset(uncut))
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
        """Each pair's levels, and those that depart."""
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
        with Twins() as twins:
            for name, pair in wanted.items():
                value = got.get(name, theirs[pair.other.name])
                step = None if pair.other.quantization is None else pair.other.quantization.scale
                report = _compared(artifact, name, expected[name], value, feed, tolerance, step, twins)
                (diff,) = report[0]
                levels.append(Level(name, pair.other.kind, diff.snr_db, _level(own[name], value)))
                if report[1]:
                    departures.append(self._departure(pair, diff, report[1], expected[name], value, got, orders))
        return levels, departures

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
        import convertkit.onnx  # noqa: F401 - first: it keeps sympy out of onnx_ir's import
        from convertkit.onnx.probe import given_name, with_cuts
        from convertkit.onnx.runner import OnnxRunner

        reference = self._sides.reference
        made = with_cuts(reference, cuts, wanted, folder)
        own = {spec.name: spec for spec in reference.inputs}
        artifact = replace(made, inputs=tuple(own.get(spec.name, spec) for spec in made.inputs))
        dtypes = {spec.name: spec.dtype for spec in artifact.inputs}
        given = {given_name(name): got[name] for name in cuts}
        typed = {
            name: np.ascontiguousarray(value.astype(dtypes[name])) for name, value in given.items() if name in dtypes
        }
        feed = {name: value for name, value in self._sides.feed.items() if name in own} | typed
        with OnnxRunner(artifact) as runner:
            return runner.run(feed), feed, artifact


def _compared(
    artifact: Artifact,
    name: str,
    expected: Array,
    got: Array,
    feed: Feed,
    tolerance: Tolerance,
    step: float | None,
    twins: Twins,
) -> tuple[tuple[TensorDiff, ...], str]:
    """The numbers of one value, and how it departs by more than is allowed; empty where it does not."""
    spec = replace(next(spec for spec in artifact.outputs if spec.name == name), lsb=step)
    narrowed = replace(artifact, outputs=(spec,))
    sides = [
        Recording(title, narrowed, (feed,), ({name: value},)) for title, value in (("expected", expected), ("", got))
    ]
    report = compare_recordings(sides[0], sides[1], tolerance, twins.ask(artifact))
    return report.diffs, report.failures[0] if report.failures else ""


def _level(own: Array, got: Array) -> float:
    """Signal over noise in dB against the reference's own run."""
    if own.shape != got.shape or own.dtype.kind in "OUS":
        return math.nan
    finite = np.isfinite(own) & np.isfinite(got)
    wanted, found = own[finite].astype(np.float64), got[finite].astype(np.float64)
    return snr_db(float(np.square(wanted).sum()), float(np.square(found - wanted).sum()))


def inner_tolerance(whole: Tolerance, budget_db: float) -> Tolerance:
    """What one value may be off by: float32 arithmetic, what integers that are computed again may, or a budget.

    No number of steps counts as little where numbers change on purpose: a scale that is far too large has large steps.
    """
    if whole.lossy:
        reason = f"a budget of {budget_db:g} dB for one operator where numbers change on purpose"
        return Tolerance(reason, snr_db=budget_db, lossy=True)
    return whole if whole.relative is None else FLOAT32

"""Running the same feeds through artifacts, and comparing what came out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Artifact, TensorSpec
from convertkit.errors import ParityError, SourceError, ToolError, Unsupported
from convertkit.parity.candidates import choose_among_ties
from convertkit.parity.compare import DiffAccumulator, Power
from convertkit.parity.faint import LOOSER, explained_slices
from convertkit.parity.far_integers import is_far, where_roundings_decide
from convertkit.parity.near_ties import own_roundings
from convertkit.parity.ranking import in_place
from convertkit.parity.truth import (
    AskTruth,
    Truth,
    explanation,
    is_nearest_by_luck,
    leaves_a_limit,
    moves_as_many,
)
from convertkit.parity.values import Departure, ParityReport, Recording, TensorDiff
from convertkit.parity.verdict import departs, is_exact, is_rough, judge, within
from convertkit.stage import FLOAT32, Feed, NamedRunner, Runner, Tolerance
from convertkit.state import initial_state, started, state_sizes


@dataclass(frozen=True, slots=True)
class Traits:
    """What the graphs tell of one output: see :class:`TensorSpec`."""

    clamped: bool
    discrete: bool
    fixed: bool
    choices: bool

    @classmethod
    def of(cls, name: str, either: Sequence[TensorSpec], before: Sequence[TensorSpec]) -> Traits:
        """Of the output ``name`` in either artifact; ``fixed`` is what the one before says, whose values those are."""
        mine = [spec for spec in either if spec.name == name]
        fixed = any(spec.fixed for spec in before if spec.name == name)
        choices = any(spec.classes is not None for spec in mine)
        return cls(any(spec.clamped for spec in mine), any(spec.discrete for spec in mine), fixed, choices)


def record(
    title: str,
    artifact: Artifact,
    runner: Runner,
    feeds: Iterable[Feed],
    edges: tuple[str, ...] = (),
    *,
    may_refuse: bool = False,
) -> Recording:
    """Run every feed, the last ones of which are edge inputs of those names.

    State that a feed leaves out goes from call to call, starting at the initial state.  Where a feed's batch is another
    than the state's, a new sequence begins.  Where the artifact ``may_refuse`` edge inputs, as a model does that takes
    no empty mask, those are left out of the recording.
    """
    shapes = {spec.name: spec.source_shape for spec in artifact.inputs}
    start = initial_state(artifact)
    state: Mapping[str, Array] | None = None
    sizes: Mapping[str, int] = {}
    every, names = tuple(feeds), list(edges)
    usual = len(every) - len(edges)
    feeds, outputs, states = [], [], []
    for place, feed in enumerate(every):
        now = state_sizes(shapes, feed)
        if state is None or now != sizes:
            state, sizes = started(start, shapes, now), now
        try:
            answer = runner.run({**state, **feed})
        except (SourceError, ToolError) as error:
            if not may_refuse:
                raise
            if place < usual:
                raise type(error)(f"on input {place + 1} of {usual}: {error}") from error
            names.remove(edges[place - usual])
            continue
        feeds.append(feed)
        states.append({name: value for name, value in state.items() if name not in feed})
        outputs.append(answer)
        state = {
            STATE_PREFIX + name.removeprefix(NEXT_STATE_PREFIX): value
            for name, value in answer.items()
            if name.startswith(NEXT_STATE_PREFIX)
        } or state
    runtime = runner.runtime if isinstance(runner, NamedRunner) else ""
    kept = every if len(feeds) == len(every) else tuple(feeds)
    return Recording(title, artifact, kept, tuple(outputs), tuple(names), tuple(states), runtime)


def compare_recordings(
    before: Recording, after: Recording, tolerance: Tolerance, truth: AskTruth | None = None
) -> ParityReport:
    """Compare two recordings of the same feeds, output by output and feed by feed.

    ``truth`` tells what the model of ``before`` computes in float64; it is asked only for feeds on which the two differ
    by more than a ``tolerance`` of float arithmetic.  The numbers of the report are those of the usual feeds; of the
    edge inputs each counts for itself, against its own scale.

    Raises ``ParityError`` where the outputs' names or order differ: that is part of the contract.
    """
    names = [spec.name for spec in before.artifact.outputs]
    got = [spec.name for spec in after.artifact.outputs]
    if names != got:
        raise ParityError(f"{after.title} has the outputs {got}, {before.title} has {names}: names and order must stay")
    steps = {spec.name: spec.lsb for spec in before.artifact.outputs}
    steps.update({spec.name: spec.lsb for spec in after.artifact.outputs if spec.lsb is not None})
    ranked = frozenset(spec.name for each in (before, after) for spec in each.artifact.outputs if spec.ranked)
    results, moved = _in_place(before, after, ranked, tolerance)
    either = [spec for side in (before, after) for spec in side.artifact.outputs]
    traits = {name: Traits.of(name, either, before.artifact.outputs) for name in names}
    diffs, departures = [], list[Departure]()
    for name in names:
        pairs = [(reference[name], output[name]) for reference, output in zip(before.outputs, results, strict=True)]
        diff, found = _compared(name, pairs, before, steps[name], tolerance, traits[name])
        diffs.append(diff)
        departures += found
    judged = _explained(before, results, ranked, tolerance, departures, truth or _silent)
    picked = frozenset(name for name in ranked if traits[name].choices)
    numbers = len(before.outputs)
    report = judge(before.title, after.title, tuple(diffs), tolerance, numbers, judged, before.edges, picked)
    report = replace(report, nan_on=_nan_on(before))
    if not moved:
        return report
    note = f"{moved} rows of outputs that are ranked stand in another order; their scores tie within the tolerance"
    return replace(report, warnings=(*report.warnings, note))


def _nan_on(recording: Recording) -> tuple[str, ...]:
    """The inputs on which an output is NaN, as reports call them."""
    odd = (any(map(_holds_nan, outputs.values())) for outputs in recording.outputs)
    return tuple(recording.name_of(place) for place, is_odd in enumerate(odd) if is_odd)


def _holds_nan(value: Array) -> bool:
    return value.dtype.kind in "fc" and bool(np.isnan(value).any())


def _compared(
    name: str,
    pairs: Sequence[tuple[Array, Array]],
    before: Recording,
    step: float | None,
    tolerance: Tolerance,
    traits: Traits,
) -> tuple[TensorDiff, list[Departure]]:
    """The numbers of one output over the usual feeds, and where it differs."""
    choices = traits.choices and tolerance.snr_db is not None and all(each.dtype.kind in "iu" for each, _ in pairs)
    slices = None if tolerance.lossy or not tolerance.relative else LOOSER * tolerance.relative
    usual, edges = (
        DiffAccumulator(name, step, lossy=tolerance.lossy, clamped=traits.clamped, choices=choices, slices=of_slices)
        for of_slices in (slices, None)
    )
    powers = Power(discrete=traits.discrete), Power(discrete=traits.discrete)
    signal = 0.0
    departures = []
    rounds = tolerance.snr_db is not None or tolerance.lsb is not None or tolerance.short_integers
    for place, (reference, output) in enumerate(pairs):
        is_usual = place < before.usual
        if rounds and not is_usual and is_far(before.edges[place - before.usual]):
            continue
        diff = (usual if is_usual else edges).add(reference, output)
        signal = max(signal, diff.signal) if is_usual else signal
        for power in powers if is_usual else powers[1:]:
            power.add(reference, before.name_of(place))
        rough = not is_usual and not choices and is_rough(diff, signal, step, tolerance)
        if rough or departs(diff, reference.dtype.name, tolerance):
            departures.append(Departure(name, place, before.name_of(place), diff, rough))
    agree = bool(tolerance.relative) and not tolerance.lossy and all(each.place >= before.usual for each in departures)
    verdict = "ok" if traits.fixed else powers[0].verdict(agree=agree)
    if verdict != "ok" and powers[1].verdict() == "ok" and (not tolerance.lossy or _keeps(edges, tolerance)):
        verdict = "ok"  # the edge inputs, each held against its own scale, tell what the usual ones do not
    return usual.finish(verdict), departures


def _keeps(edges: DiffAccumulator, tolerance: Tolerance) -> bool:
    """Whether a lossy step leaves of the edge inputs together what it has to leave of the usual ones."""
    diff = edges.finish()
    return tolerance.snr_db is not None and not diff.mismatch and diff.snr_db >= tolerance.snr_db


def _silent(feed: Feed) -> None:
    """The truth where no twin is asked."""


def _explained(
    before: Recording,
    results: Sequence[Mapping[str, Array]],
    ranked: Collection[str],
    tolerance: Tolerance,
    departures: Sequence[Departure],
    truth: AskTruth,
) -> list[Departure]:
    """``departures`` with what the model's float64 twin says of them, up to the first that is a fault.

    Those behind it may well be explained, and asking takes long: none of them is reported.  Integers that a step
    computes again are held against looser bounds where there is no twin.
    """
    judged = list[Departure]()
    told: dict[int, Truth | None] = {}
    for each in departures:
        explained = ""
        own = each.rough and tolerance.near_ties > 0
        asks = bool(tolerance.relative) or tolerance.same_integers or own  # what only moves data rounds nothing
        if asks and judged and not judged[-1].explained:
            break
        if asks:
            if each.place not in told:
                told[each.place] = truth(before.fed(each.place))
            if told[each.place] is None and tolerance.same_integers and not (each.rough or each.diff.mismatch):
                continue
            output, picked = np.asarray(results[each.place][each.output]), each.output in ranked
            if own:
                reference = before.outputs[each.place][each.output]
                explained = own_roundings(each, reference, output, tolerance.near_ties, told[each.place])
                judged.append(replace(each, explained=explained))
                continue
            chosen = picked or _is_placed(each.output, told[each.place])
            explained = _told(each, before, output, tolerance, told[each.place], picked=chosen)
            if not explained and (known := told[each.place]) is not None:
                told[each.place] = known.thorough()
                explained = _told(each, before, output, tolerance, told[each.place], picked=chosen)
            if not explained and picked:
                explained = _tied(before.outputs[each.place], results[each.place], ranked, tolerance, told[each.place])
            if not explained and not each.diff.mismatch and is_far(each.feed):
                explained = where_roundings_decide(told[each.place], each.output)
        judged.append(replace(each, explained=explained))
    return judged


def _is_placed(output: str, truth: Truth | None) -> bool:
    return truth is not None and output in truth.placed


def _told(
    departure: Departure, before: Recording, output: Array, tolerance: Tolerance, truth: Truth | None, *, picked: bool
) -> str:
    place, name, diff = departure.place, departure.output, departure.diff
    reference = before.outputs[place][name]
    calls = before.calls(place)
    if within(diff, tolerance) and not is_exact(reference.dtype.name, tolerance):
        if truth is None:
            return "within the tolerance, and there is no twin that tells more"
        told = truth.values[name], truth.spread[name]
        if diff.off_limit and leaves_a_limit(reference, output, *told):
            return ""
        if diff.faint:
            bound = LOOSER * (tolerance.relative or 0.0)
            return explained_slices(diff.faint, reference, output, told, bound, calls, picked=picked)
        return "within the tolerance, and roundings decide whether it stands at its limit"
    if truth is None:
        return ""
    value, spread = truth.values[name], truth.spread[name]
    if diff.off_limit and leaves_a_limit(reference, output, value, spread):
        return ""
    floor = tolerance.relative or FLOAT32.relative or 0.0
    if diff.step is not None and tolerance.same_integers and diff.largest:
        if not moves_as_many(diff.changed, spread, diff.step):
            return ""
        floor = 1.001 * diff.step / diff.largest
        picked = picked or is_nearest_by_luck(reference, value, truth.calmest[name], diff.step)
    whole = explanation(reference, output, value, spread, floor, calls, _usual(before, name), picked=picked)
    if whole and diff.faint:
        told = value, spread
        return explained_slices(diff.faint, reference, output, told, LOOSER * floor, calls, picked=picked)
    return whole


def _usual(recording: Recording, name: str) -> float:
    """The largest finite value of an output of numbers on the feeds that are not edge inputs."""
    values = [outputs[name] for outputs in recording.outputs[: recording.usual]]
    numbers = [each.astype(np.float64) for each in values if each.dtype.kind not in "OUSTc"]
    return max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in numbers), default=0.0)


def _tied(
    reference: Mapping[str, Array],
    got: Mapping[str, Array],
    ranked: Collection[str],
    tolerance: Tolerance,
    truth: Truth | None,
) -> str:
    """How ties among candidates explain that other rows are delivered; empty where they do not."""
    if truth is None or tolerance.relative is None:
        return ""
    try:
        ties = truth.ties()
        if ties is None or not choose_among_ties((reference, got), ranked, ties, tolerance.relative):
            return ""
    except Unsupported:  # an order that cannot be computed excuses nothing
        return ""
    return "it takes other candidates among those whose scores tie, as roundings decide"


def _in_place(
    before: Recording, after: Recording, ranked: Collection[str], tolerance: Tolerance
) -> tuple[Sequence[Mapping[str, Array]], int]:
    """The outputs of ``after`` with tied rows where ``before`` has them, and how many rows that moved."""
    if not ranked or tolerance.lossy or not tolerance.relative:
        return after.outputs, 0
    pairs = zip(before.outputs, after.outputs, strict=True)
    placed = [in_place(reference, output, ranked, tolerance.relative) for reference, output in pairs]
    return [output for output, _ in placed], sum(count for _, count in placed)

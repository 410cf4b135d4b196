"""Running the same feeds through artifacts, and comparing what came out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Artifact
from convertkit.errors import ParityError
from convertkit.parity.compare import DiffAccumulator
from convertkit.parity.ranking import in_place
from convertkit.parity.verdict import ParityReport, judge
from convertkit.stage import Feed, Outputs, Runner, Tolerance
from convertkit.state import initial_state, started, state_sizes


@dataclass(frozen=True, slots=True)
class Recording:
    """What an artifact returned for each of ``feeds``, in order; ``title`` names it in reports."""

    title: str
    artifact: Artifact
    feeds: tuple[Feed, ...]
    outputs: tuple[Outputs, ...]


def record(title: str, artifact: Artifact, runner: Runner, feeds: Iterable[Feed]) -> Recording:
    """Run every feed.  State that a feed leaves out goes from call to call, starting at the initial state.

    Where a feed's batch is another than the state's, a new sequence begins.
    """
    shapes = {spec.name: spec.source_shape for spec in artifact.inputs}
    start = initial_state(artifact)
    state: Mapping[str, Array] | None = None
    sizes: Mapping[str, int] = {}
    outputs = []
    feeds = tuple(feeds)
    for feed in feeds:
        now = state_sizes(shapes, feed)
        if state is None or now != sizes:
            state, sizes = started(start, shapes, now), now
        answer = runner.run({**state, **feed})
        state = {
            STATE_PREFIX + name.removeprefix(NEXT_STATE_PREFIX): value
            for name, value in answer.items()
            if name.startswith(NEXT_STATE_PREFIX)
        } or state
        outputs.append(answer)
    return Recording(title, artifact, feeds, tuple(outputs))


def compare_recordings(before: Recording, after: Recording, tolerance: Tolerance) -> ParityReport:
    """Compare two recordings of the same feeds, output by output.

    Raises ``ParityError`` where the outputs' names or order differ: that is part of the contract.
    """
    names = [spec.name for spec in before.artifact.outputs]
    got = [spec.name for spec in after.artifact.outputs]
    if names != got:
        raise ParityError(f"{after.title} has the outputs {got}, {before.title} has {names}: names and order must stay")
    steps = {spec.name: spec.lsb for spec in before.artifact.outputs}
    steps.update({spec.name: spec.lsb for spec in after.artifact.outputs if spec.lsb is not None})
    results, moved = _in_place(before, after, tolerance)
    diffs = []
    for name in names:
        accumulator = DiffAccumulator(name, steps[name])
        for reference, output in zip(before.outputs, results, strict=True):
            accumulator.add(reference[name], output[name])
        diffs.append(accumulator.finish())
    report = judge(before.title, after.title, tuple(diffs), tolerance, len(before.outputs))
    if not moved:
        return report
    note = f"{moved} rows of outputs that are ranked stand in another order; their scores tie within the tolerance"
    return replace(report, warnings=(*report.warnings, note))


def _in_place(before: Recording, after: Recording, tolerance: Tolerance) -> tuple[Sequence[Mapping[str, Array]], int]:
    """The outputs of ``after`` with tied rows where ``before`` has them, and how many rows that moved."""
    ranked = frozenset(spec.name for each in (before, after) for spec in each.artifact.outputs if spec.ranked)
    if not ranked or tolerance.lossy or not tolerance.relative:
        return after.outputs, 0
    pairs = zip(before.outputs, after.outputs, strict=True)
    placed = [in_place(reference, output, ranked, tolerance.relative) for reference, output in pairs]
    return [output for output, _ in placed], sum(count for _, count in placed)


def batched(feeds: Sequence[Feed], names: Sequence[str], count: int) -> Feed:
    """One feed of ``count`` samples: single-sample feeds concatenated along axis 0, scalars as the first has them."""
    chosen = [feeds[index % len(feeds)] for index in range(count)]
    return {
        name: np.concatenate([feed[name] for feed in chosen]) if np.ndim(chosen[0][name]) else chosen[0][name]
        for name in names
    }

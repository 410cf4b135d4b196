"""Comparing what a step made with the step before it and with the source.

A stage takes no part in this beyond declaring its tolerance, so a third-party stage is verified like our own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from convertkit.errors import NotProven, ParityError
from convertkit.records import Bound, Made, Recorded, StepRecord, Verified
from convertkit.steps import live
from convertkit.steps.judgement import Judgement
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True, eq=False)
class Verify(Task[Verified]):
    """Both comparisons of one step; ``before`` is the step before it, None for the first, which follows the source."""

    made: Task[Made]
    current: Task[Recorded]
    source: Task[Recorded]
    previous: Task[Recorded]
    judgement: Judgement
    before: Task[Verified] | None = None
    keeps = Verified

    @property
    def title(self) -> str:
        return f"verifying {self.made.title}"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        last = () if self.before is None else (self.before,)
        return (self.made, self.current, self.source, self.previous, *last)

    def decides(self) -> Mapping[str, object] | None:
        judged = self.judgement
        return {"gated": judged.gated, "generated": judged.generated, "allow_unverified": judged.allow_unverified}

    def run(self, given: tuple[Any, ...], context: Context) -> Verified:
        """The step as the report has it, whether it passed or not."""
        from convertkit.steps.comparing import verified

        made, current, source, previous, *last = given
        bound: Bound = last[0].bound if last else Bound()
        twin = partial(live.truth, resources=context.resources)
        recordings = source.recording, previous.recording, current.recording
        begun = time.perf_counter()
        found = verified(made, bound, recordings, self.judgement, twin, last[0].onnx if last else None)
        seconds = current.seconds + time.perf_counter() - begun
        return replace(found, step=replace(found.step, parity_seconds=seconds, runtime=current.runtime))


def failure(step: StepRecord) -> ParityError | None:
    """Why a step was not verified; None where it was."""
    if step.passed:
        return None
    for report in (step.versus_previous, step.versus_source):
        if report.failures:
            more = f" (and {len(report.failures) - 1} more)" if len(report.failures) > 1 else ""
            lines = [f"verification failed after {step.stage}: {report.failures[0]}{more}, against {report.before}"]
            return ParityError("\n".join((*lines, *(f"  try   {way}" for way in ways_out(step)))))
    unproven = step.versus_previous.unproven or step.versus_source.unproven
    return NotProven(
        f"not verified after {step.stage}: {unproven}\n"
        "  try   --calib with samples of real data, so that there is something to compare\n"
        "  try   --allow-unverified to deliver it all the same, not verified"
    )


def ways_out(step: StepRecord) -> tuple[object, ...]:
    """What the stage itself advises."""
    found = (step.diagnosis or {}).get("ways_out", ())
    assert isinstance(found, list | tuple)
    return tuple(found)

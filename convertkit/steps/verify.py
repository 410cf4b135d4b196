"""Comparing what a step made with the step before it and with the source.

A stage takes no part in this beyond declaring its tolerance, so a third-party stage is verified like our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from convertkit.artifact import Artifact
from convertkit.errors import NotProven, ParityError
from convertkit.parity import ParityReport, Recording, compare_recordings
from convertkit.parity.ill_conditioned import well_conditioned
from convertkit.parity.truth import AskTruth
from convertkit.records import Bound, Made, Recorded, StepRecord, Verified
from convertkit.stage import Tolerance
from convertkit.steps import live
from convertkit.tasks.task import Context, Task

AskTwin = Callable[[Artifact], AskTruth]
"""The float64 twin of an ONNX artifact, which tells the true values of its outputs."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How steps are judged.

    ``gated`` means that an accuracy gate judges lossy steps, not their SNR.  ``generated`` says that the usual inputs
    are not data of the user's: those on which the model is ill-conditioned do not count for a lossy step's noise.
    ``allow_unproven`` passes equal outputs that tell nothing.
    """

    gated: bool = False
    generated: bool = False
    allow_unproven: bool = False


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
        return {"gated": judged.gated, "generated": judged.generated, "allow_unproven": judged.allow_unproven}

    def run(self, given: tuple[Any, ...], context: Context) -> Verified:
        """The step as the report has it, whether it passed or not."""
        made, current, source, previous, *last = given
        bound: Bound = last[0].bound if last else Bound()
        twin = partial(live.truth, resources=context.resources)
        recordings = source.recording, previous.recording, current.recording
        begun = time.perf_counter()
        found = verified(made, bound, recordings, self.judgement, twin)
        seconds = current.seconds + time.perf_counter() - begun
        return replace(found, step=replace(found.step, parity_seconds=seconds))


def verified(
    made: Made, bound: Bound, recordings: tuple[Recording, Recording, Recording], judgement: Judgement, twin: AskTwin
) -> Verified:
    """A step with its comparisons; ``recordings`` are those of the source, of the step before, and of the step."""
    bound = bound.after(made.tolerance)
    reports = _compared(made.tolerance, bound, recordings, judgement, twin)
    failing = any(report.failures for report in reports)
    if failing and made.tolerance.lossy and judgement.generated:
        reports = _where_well_conditioned(made.tolerance, bound, recordings, judgement, twin) or reports
    step = _step(made, *reports)
    return Verified(step, bound.measured(made.tolerance, step.versus_source))


def _where_well_conditioned(
    tolerance: Tolerance,
    bound: Bound,
    recordings: tuple[Recording, Recording, Recording],
    judgement: Judgement,
    twin: AskTwin,
) -> tuple[ParityReport, ParityReport] | None:
    """A lossy step's comparisons on the inputs on which noise tells anything; None where those are all of them."""
    _, previous, current = recordings
    places = well_conditioned(previous, twin(_onnx_of(previous, current)))
    if not places or len(places) == previous.usual == len(previous.feeds):
        return None
    source, before, after = (each.only(places) for each in recordings)
    return _compared(tolerance, bound, (source, before, after), judgement, twin)


def _compared(
    tolerance: Tolerance,
    bound: Bound,
    recordings: tuple[Recording, Recording, Recording],
    judgement: Judgement,
    twin: AskTwin,
) -> tuple[ParityReport, ParityReport]:
    source, previous, current = recordings
    truth = twin(_onnx_of(previous, current))
    versus_previous = compare_recordings(previous, current, _gate(bound.eased(tolerance), judgement), truth)
    versus_source = compare_recordings(source, current, _gate(bound.tolerance(tolerance), judgement), truth)
    if versus_previous.failures and not versus_source.failures and not tolerance.lossy:
        versus_previous = _where_the_source_agrees(versus_previous, source, current, tolerance)
    waived = judgement.allow_unproven
    return replace(versus_previous, waived=waived), replace(versus_source, waived=waived)


def _gate(tolerance: Tolerance, judgement: Judgement) -> Tolerance:
    if not (judgement.gated and tolerance.lossy):
        return tolerance
    return replace(tolerance, snr_db=float("-inf"), reason=f"{tolerance.reason}; the accuracy gate decides")


def _where_the_source_agrees(
    report: ParityReport, source: Recording, current: Recording, tolerance: Tolerance
) -> ParityReport:
    """``report`` without its failures where the step gives the source's own results again, unlike the step before.

    So for integers that ONNX Runtime rounds in another way than the runtime of both source and target.
    """
    if compare_recordings(source, current, tolerance).failures:
        return report
    note = f"differs from {report.before}, and gives the results of {source.title}: {report.failures[0]}"
    return replace(report, failures=(), warnings=(*report.warnings, note))


def _onnx_of(previous: Recording, current: Recording) -> Artifact:
    """The artifact of a step that tells the truth: ONNX, and the earlier one where both are."""
    return previous.artifact if previous.artifact.format == "onnx" else current.artifact


def _step(made: Made, versus_previous: ParityReport, versus_source: ParityReport) -> StepRecord:
    return StepRecord(
        made.stage,
        made.version,
        made.options,
        made.seconds,
        0.0,
        made.peak_rss_bytes,
        made.artifact,
        made.artifact.size_bytes,
        versus_previous,
        versus_source,
        made.diagnosis,
    )


def failure(step: StepRecord) -> ParityError | None:
    """Why a step was not verified; None where it was."""
    if step.passed:
        return None
    for report in (step.versus_previous, step.versus_source):
        if report.failures:
            more = f" (and {len(report.failures) - 1} more)" if len(report.failures) > 1 else ""
            return ParityError(
                f"verification failed after {step.stage}: {report.failures[0]}{more}, against {report.before}"
            )
    unproven = step.versus_previous.unproven or step.versus_source.unproven
    return NotProven(
        f"not verified after {step.stage}: {unproven}\n"
        "  try   --calib with samples of real data, so that there is something to compare\n"
        "  try   --allow-unproven to deliver it all the same, not verified"
    )

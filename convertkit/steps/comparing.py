"""Both comparisons of a step, and the verdict on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from convertkit.artifact import Artifact
from convertkit.parity.ill_conditioned import well_conditioned
from convertkit.parity.replay import compare_recordings
from convertkit.parity.truth import AskTruth
from convertkit.parity.values import ParityReport, Recording
from convertkit.records import Bound, Made, StepRecord, Verified
from convertkit.stage import Tolerance
from convertkit.steps.judgement import Judgement

AskTwin = Callable[[Artifact], AskTruth]
"""The float64 twin of an ONNX artifact, which tells the true values of its outputs."""


def verified(
    made: Made,
    bound: Bound,
    recordings: tuple[Recording, Recording, Recording],
    judgement: Judgement,
    twin: AskTwin,
    onnx: Artifact | None = None,
) -> Verified:
    """A step with its comparisons; ``recordings`` are those of the source, of the step before, and of the step.

    ``onnx`` is what told the true values of the step before.
    """
    bound = bound.after(made.tolerance)
    onnx = _onnx_of(recordings[1], recordings[2], onnx)
    truth = twin(onnx)
    reports = _compared(made.tolerance, bound, recordings, judgement, truth)
    failing = any(report.failures for report in reports)
    if failing and made.tolerance.lossy and judgement.generated:
        reports = _where_well_conditioned(made.tolerance, bound, recordings, judgement, truth) or reports
    step = _step(made, *reports)
    return Verified(step, bound.measured(made.tolerance, step.versus_source), onnx)


def _where_well_conditioned(
    tolerance: Tolerance,
    bound: Bound,
    recordings: tuple[Recording, Recording, Recording],
    judgement: Judgement,
    truth: AskTruth,
) -> tuple[ParityReport, ParityReport] | None:
    """A lossy step's comparisons on the inputs on which noise tells anything; None where those are all of them."""
    previous = recordings[1]
    places = well_conditioned(previous, truth)
    if not places or len(places) == previous.usual == len(previous.feeds):
        return None
    source, before, after = (each.only(places) for each in recordings)
    return _compared(tolerance, bound, (source, before, after), judgement, truth)


def _compared(
    tolerance: Tolerance,
    bound: Bound,
    recordings: tuple[Recording, Recording, Recording],
    judgement: Judgement,
    truth: AskTruth,
) -> tuple[ParityReport, ParityReport]:
    source, previous, current = recordings
    versus_previous = compare_recordings(previous, current, _gate(bound.eased(tolerance), judgement), truth)
    versus_source = compare_recordings(source, current, _gate(bound.tolerance(tolerance), judgement), truth)
    if versus_previous.failures and not versus_source.failures and not tolerance.lossy:
        versus_previous = _where_the_source_agrees(versus_previous, source, current, tolerance)
    waived = judgement.allow_unverified
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


def _onnx_of(previous: Recording, current: Recording, before: Artifact | None) -> Artifact:
    """The artifact that tells the truth: ONNX, the earlier one where both are, else what told it of the step before."""
    if previous.artifact.format == "onnx":
        return previous.artifact
    return current.artifact if current.artifact.format == "onnx" or before is None else before


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

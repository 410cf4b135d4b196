"""Runs stages one after the other and proves each of them.

Every artifact is executed on the same feeds and compared with the artifact before it and with the
source.  The first departure ends the road.  A stage takes no part in this beyond declaring its
tolerance, so a third-party stage is proven like our own.

While a step is compared, the next one may be made already; it counts for nothing until the step before it has passed.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from convertkit import plugins
from convertkit.ahead import Ahead
from convertkit.artifact import Artifact, files_of, sha256_of
from convertkit.errors import ConvertKitError, NotProven, ParityError, ToolError
from convertkit.parity import ParityReport, Recording, compare_recordings, record
from convertkit.parity.bar import below_the_bar
from convertkit.parity.ill_conditioned import well_conditioned
from convertkit.parity.truth import AskTruth
from convertkit.progress import Progress, Silent
from convertkit.stage import BegunStage, DiagnosedStage, Stage, Tolerance

OnStep = Callable[["StepRecord"], None]
AskTwin = Callable[[Artifact], AskTruth]
"""The float64 twin of an ONNX artifact, which tells the true values of its outputs."""

_LEAST_SNR_DB = 3.0
_AHEAD_BELOW_BYTES = 128 << 20
"""Larger models are made and executed one after the other: together they would need the memory of both."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One finished step: what ran, what it made, how long it took and what the comparison found.

    ``seconds`` is the stage alone, with what a :class:`BegunStage` has spent beforehand; ``parity_seconds`` the
    proof, which may go on beside the next stage.  ``peak_rss_bytes`` is this process's
    peak during the stage (where the system lets it be reset).  ``diagnosis`` is what the stage itself
    reports beyond its artifact, JSON-able.
    """

    stage: str
    version: str
    options: Mapping[str, object]
    seconds: float
    parity_seconds: float
    peak_rss_bytes: int
    artifact: Artifact
    size_bytes: int
    versus_previous: ParityReport
    versus_source: ParityReport
    diagnosis: Mapping[str, object] | None = None

    @property
    def passed(self) -> bool:
        return self.versus_previous.passed and self.versus_source.passed


@dataclass(frozen=True, slots=True)
class Bound:
    """What the steps so far allow in sum against the source."""

    relative: float = 0.0
    lossy: Tolerance | None = None
    noise_db: float | None = None
    """What the lossy step left of the source: the least SNR of its outputs."""

    def after(self, step: Tolerance) -> Bound:
        if step.lossy:
            return replace(self, lossy=step)
        return replace(self, relative=self.relative + (step.relative or 0.0))

    def measured(self, step: Tolerance, versus_source: ParityReport) -> Bound:
        """The bound once a lossy step's noise is known."""
        if not step.lossy or not versus_source.diffs:
            return self
        return replace(self, noise_db=min(diff.snr_db for diff in versus_source.diffs))

    def eased(self, step: Tolerance) -> Tolerance:
        """``step``, where a model amplifies single roundings as much as the quantization's own noise.

        A deep network may turn roundings of at most 1 LSB in every operator into a lot at its end.
        What a lowering adds must stay below what the quantization itself has cost, whatever that is.
        """
        noise = self.noise_db
        if step.lossy or step.snr_db is None or noise is None or noise >= step.snr_db:
            return step
        reason = f"{step.reason}; no more noise than the quantization itself made"
        return replace(step, snr_db=max(noise, _LEAST_SNR_DB), reason=reason)

    def tolerance(self, step: Tolerance) -> Tolerance:
        if self.lossy is not None:
            return self.lossy
        if step.relative is None:
            return step
        return replace(step, relative=self.relative, reason="the sum of what the steps so far may depart")


@dataclass(frozen=True, slots=True)
class Road:
    """How far a pipeline came: the last artifact, all steps, and the failure that ended it, if any."""

    artifact: Artifact
    steps: tuple[StepRecord, ...]
    recording: Recording
    failure: ParityError | None = None
    bound: Bound = Bound()


@dataclass(frozen=True, slots=True)
class Task:
    """A stage and the new folder that it writes into."""

    stage: Stage
    folder: Path


@dataclass(frozen=True, slots=True)
class Made:
    """What a stage made, and what that took."""

    artifact: Artifact
    seconds: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Executed:
    """What a stage made, what that computes for the feeds of the proof, and the seconds it computed."""

    made: Made
    recording: Recording
    seconds: float


@dataclass(frozen=True, slots=True)
class Proof:
    """What a step computed for the feeds of the proof, and both comparisons."""

    current: Recording
    versus_previous: ParityReport
    versus_source: ParityReport


class Pipeline:
    """An ordered list of stages that write below ``workdir``.

    ``gated`` means that an accuracy gate judges lossy steps, not their SNR.  With ``ahead``, a lossless stage runs
    while the step before it is still being proven; in its folder, and with the same result as without.  ``twin`` is
    asked for the true values where a step departs by more than float32 usually does.  ``generated`` says that the usual
    feeds are no data of the user's: those on which the model is ill-conditioned do not count for a lossy step's noise.
    ``allow_unproven`` passes equal outputs that tell nothing.  ``early`` waits for what the first stage makes of an
    artifact with that sha256, where that has begun already.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        workdir: Path,
        *,
        gated: bool = False,
        progress: Progress | None = None,
        ahead: Ahead | None = None,
        twin: AskTwin | None = None,
        generated: bool = False,
        allow_unproven: bool = False,
        early: Mapping[str, Callable[[], Made]] = MappingProxyType({}),
    ) -> None:
        self._tasks = tuple(Task(stage, workdir / f"{index:02d}-{stage.name}") for index, stage in enumerate(stages))
        self._gated = gated
        self._progress = progress or Silent()
        self._ahead = ahead
        self._begun: dict[Path, Callable[[], Executed]] = {}
        self._twin = twin
        self._generated = generated
        self._allow_unproven = allow_unproven
        self._early = early

    def run(
        self,
        start: Artifact,
        recordings: Callable[[], tuple[Recording, Recording]],
        on_step: OnStep | None = None,
        bound: Bound = Bound(),
        then: Pipeline | None = None,
    ) -> Road:
        """Run every stage from ``start`` on.

        ``recordings`` returns what the source, to which all artifacts answer, and ``start`` itself gave
        for the feeds of the proof.  It is called after the first stage has run: a framework that has computed once
        may not be forked any more.  ``bound`` is what the steps before ``start`` allow, ``then`` the
        pipeline that goes on from where this one ends.  Stops at the first step whose parity fails.
        """
        steps = list[StepRecord]()
        artifact = start
        source, previous = None, None
        for index, task in enumerate(self._tasks):
            stage = task.stage
            self._progress.status(stage.name)
            ready = self._begun.pop(task.folder)() if task.folder in self._begun else None
            step_made = made(task, artifact) if ready is None else ready.made
            artifact = step_made.artifact
            begun = time.perf_counter()
            if source is None or previous is None:
                source, previous = recordings()
            self._begin_next(index + 1, then, artifact, source)
            current = _current(ready, stage, artifact, source)
            bound = bound.after(stage.tolerance)
            proof = self._proven(stage, bound, source, previous, current)
            seconds = time.perf_counter() - begun + (0.0 if ready is None else ready.seconds)
            step = _step(stage, step_made, seconds, proof)
            bound = bound.measured(stage.tolerance, step.versus_source)
            steps.append(step)
            if on_step is not None:
                on_step(step)
            if not step.passed:
                return Road(artifact, tuple(steps), proof.current, _failure(step), bound)
            previous = proof.current
        return Road(artifact, tuple(steps), previous or recordings()[1], bound=bound)

    def _begin_next(self, index: int, then: Pipeline | None, artifact: Artifact, source: Recording) -> None:
        if index < len(self._tasks):
            self.begin(artifact, source, index)
        elif then is not None:
            then.begin(artifact, source)

    def begin(self, artifact: Artifact, source: Recording, index: int = 0) -> None:
        """Begin the stage that takes ``artifact`` before that is proven, where it is short and small."""
        if self._ahead is None or not self._tasks or not is_small(artifact):
            return
        task = self._tasks[index]
        if not task.stage.tolerance.lossy:  # calibration may take an hour, after which it is late to tell of a fault
            make: Callable[[], Made] = partial(made, task, artifact)
            if index == 0 and artifact.sha256 in self._early:
                make = self._early[artifact.sha256]
            self._begun[task.folder] = self._ahead.begin(partial(_executed, make, task.stage, source))

    def _proven(self, stage: Stage, bound: Bound, source: Recording, previous: Recording, current: Recording) -> Proof:
        """Both comparisons; those of a lossy step on the feeds on which noise tells anything."""
        proof = self._compared(stage, bound, source, previous, current)
        failing = proof.versus_previous.failures or proof.versus_source.failures
        if not (failing and stage.tolerance.lossy and self._generated and self._twin):
            return proof
        places = well_conditioned(previous, self._twin(_onnx_of(previous, current)))
        if not places or len(places) == previous.usual == len(previous.feeds):
            return proof
        on_those = [each.only(places) for each in (source, previous, current)]
        return replace(self._compared(stage, bound, *on_those), current=current)

    def _compared(
        self, stage: Stage, bound: Bound, source: Recording, previous: Recording, current: Recording
    ) -> Proof:
        truth = None if self._twin is None else self._twin(_onnx_of(previous, current))
        versus_previous = compare_recordings(previous, current, self._gate(bound.eased(stage.tolerance)), truth)
        versus_source = compare_recordings(source, current, self._gate(bound.tolerance(stage.tolerance)), truth)
        if versus_previous.failures and not versus_source.failures and not stage.tolerance.lossy:
            versus_previous = _where_the_source_agrees(versus_previous, source, current, stage.tolerance)
        waived = self._allow_unproven
        return Proof(current, replace(versus_previous, waived=waived), replace(versus_source, waived=waived))

    def _gate(self, tolerance: Tolerance) -> Tolerance:
        if not (self._gated and tolerance.lossy):
            return tolerance
        return replace(tolerance, snr_db=float("-inf"), reason=f"{tolerance.reason}; the accuracy gate decides")


def _step(stage: Stage, made: Made, parity_seconds: float, proof: Proof) -> StepRecord:
    return StepRecord(
        stage.name,
        stage.version,
        dict(stage.options),
        made.seconds,
        parity_seconds,
        made.peak_rss_bytes,
        made.artifact,
        made.artifact.size_bytes,
        proof.versus_previous,
        proof.versus_source,
        stage.diagnosis if isinstance(stage, DiagnosedStage) else None,
    )


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


def made(task: Task, source: Artifact) -> Made:
    """Run a stage; what it made is what it says."""
    _check_accepts(task.stage, source)
    task.folder.mkdir(parents=True)
    _reset_peak_rss()
    begun = time.perf_counter()
    artifact = _checked(task.stage, task.stage.run(source, task.folder))
    return Made(artifact, time.perf_counter() - begun + _prior_seconds(task.stage), _peak_rss_bytes())


def _executed(make: Callable[[], Made], stage: Stage, source: Recording) -> Executed:
    ready = make()
    begun = time.perf_counter()
    recording = _recorded(stage, ready.artifact, source)
    return Executed(ready, recording, time.perf_counter() - begun)


def _current(ready: Executed | None, stage: Stage, artifact: Artifact, source: Recording) -> Recording:
    """What the artifact gives for the feeds of the proof; run ahead already, or now."""
    return _recorded(stage, artifact, source) if ready is None else ready.recording


def _recorded(stage: Stage, artifact: Artifact, source: Recording) -> Recording:
    title = f"{artifact.format} ({stage.name})"
    try:
        with plugins.runner(artifact) as runner:
            return record(title, artifact, runner, source.feeds, source.edges)
    except ConvertKitError as error:
        raise ToolError(f"what {stage.name} made does not run: {error}") from error


def is_small(artifact: Artifact) -> bool:
    """Whether two things may be done with an artifact at a time, judged by all its files.

    The weights of a large model lie beside it, in the folder of the stage that made it.
    """
    files = files_of(artifact.path.parent if artifact.made_by else artifact.path)
    return sum(file.stat().st_size for file in files) <= _AHEAD_BELOW_BYTES


def _prior_seconds(stage: Stage) -> float:
    return stage.prior_seconds if isinstance(stage, BegunStage) else 0.0


def _failure(step: StepRecord) -> ParityError:
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


def _check_accepts(stage: Stage, artifact: Artifact) -> None:
    if artifact.format not in stage.accepts:
        takes = ", ".join(sorted(stage.accepts))
        raise ToolError(f"stage {stage.name} takes {takes}, the artifact before it is {artifact.format}")


def _checked(stage: Stage, artifact: Artifact) -> Artifact:
    if artifact.format != stage.produces:
        raise ToolError(f"stage {stage.name} promised {stage.produces} and made {artifact.format}")
    if not artifact.path.exists():
        raise ToolError(f"stage {stage.name} reports {artifact.path.name} and did not write it")
    if artifact.sha256 != sha256_of(artifact.path):
        raise ToolError(f"stage {stage.name} reports a sha256 that {artifact.path.name} does not have")
    if looser := below_the_bar(stage.tolerance):
        raise ToolError(f"stage {stage.name} asks for a tolerance that no stage may have: {looser}")
    return artifact


def _reset_peak_rss() -> None:
    if sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5")  # proc(5): resets the peak of this process
        except OSError:
            return  # a container may forbid it; the peak is then the process's, as on other systems


def _peak_rss_bytes() -> int:
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

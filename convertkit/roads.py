"""From an opened source to a finished folder for each target.

Apart from :mod:`convertkit.job`, because it imports ONNX, the reports and what proves them: a source whose framework
is being imported in a worker is opened without waiting for that.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from convertkit import manifest, plugins
from convertkit.ahead import Ahead
from convertkit.artifact import Artifact
from convertkit.data import asked
from convertkit.data.evaluation import Evaluation, Metric, at_chance, find_metric, predictions
from convertkit.early import Early
from convertkit.errors import FeedError, GateError, ParityError, SourceError, ToolError, Unsupported, WorkerError
from convertkit.findings.measure import Findings, Subject, find, refused
from convertkit.formulas import sizes_of_dims
from convertkit.onnx.freeze import FreezeStage
from convertkit.onnx.index_bounds import with_index_bounds
from convertkit.onnx.input_domains import with_domains
from convertkit.options.relevance import check_interface, check_passes
from convertkit.parity import Recording, record
from convertkit.parity.feeds import ProofInputs, is_brief, proof_inputs, with_edges
from convertkit.parity.flags import is_finite, with_flags
from convertkit.parity.free_sizes import attempts
from convertkit.pipeline import Made, Pipeline, Road, StepRecord, is_small
from convertkit.progress import Progress
from convertkit.quiet import heard
from convertkit.recipe import ExportOptions
from convertkit.report import build as report_build
from convertkit.report.html import page, render
from convertkit.report.jsonable import dumps
from convertkit.stage import (
    BuildContext,
    ConcurrentSource,
    Feed,
    FeedSource,
    FreedSource,
    Source,
    Stage,
    Target,
)
from convertkit.twins import Twins

OnStep = Callable[[str, StepRecord], None]


def finish(run: Run, target: Target) -> Finished:
    """``target`` with the dimensions that the source freed by itself; fixed again where the target cannot have that."""
    try:
        return run.to_target(target)
    except Unsupported as refusal:
        fixed = run.at_fixed_sizes(target, refusal)
        if fixed is None:
            raise
        return fixed.to_target(target)


@dataclass(frozen=True, slots=True)
class Finished:
    target: str
    folder: Path
    artifact: Artifact
    report: Mapping[str, Any]
    failure: ParityError | None


class Run:
    """One export in progress: what its targets share is computed once."""

    def __init__(
        self,
        options: ExportOptions,
        source: Source,
        workdir: Path,
        progress: Progress,
        on_step: OnStep | None,
        ahead: Ahead,
        twins: Twins,
        early: Early | None = None,
    ) -> None:
        check_interface(options, source.artifact)
        self._options = options
        self._source = source
        self._workdir = workdir
        self._outbox = workdir / "finished"
        self._progress = progress
        self._on_step = on_step
        self._ahead = ahead
        self._early = early
        self._frozen = _frozen(source.artifact, options)
        inputs = self._frozen.inputs
        self._calibration = asked.calibration(options, inputs)
        self._evaluation = asked.evaluation(options, inputs)
        self._drawn = inputs if self._calibration is not None else with_index_bounds(source.artifact, inputs)
        self._proof_inputs = self._inputs_of_proof(0)
        self._twins = twins
        data_notes = (note for data in (self._calibration, self._evaluation) if data is not None for note in data.notes)
        self._notes = list(dict.fromkeys(data_notes))
        self._source_recording: Recording | None = None
        self._begun_recording: Callable[[], Recording] | None = None
        self._judged: tuple[Metric, float] | None = None
        self._hub: Road | None = None

    @property
    def has_onnx(self) -> bool:
        """Whether the source has become ONNX: what fails from then on fails for one target alone."""
        return self._hub is not None

    def _inputs_of_proof(self, attempt: int) -> ProofInputs:
        brief = is_brief(self._source.artifact.size_bytes)
        return proof_inputs(self._drawn, self._calibration, self._options.seed, attempt, brief=brief)

    def warn_of_calibration(self) -> None:
        """Tell what looks odd about the calibration data before the long work starts."""
        for warning in self._calibration.warnings if self._calibration else ():
            self._progress.warn(warning)

    def at_fixed_sizes(self, target: Target, refusal: Unsupported) -> Run | None:
        """The same export with those sizes fixed that nobody asked to be free; None where there are none."""
        chosen = dict(self._options.static)
        implied = self._source.implied_sizes if isinstance(self._source, FreedSource) else {}
        sizes = {name: size for name, size in implied.items() if name not in chosen}
        if not sizes:
            return None
        options = dataclasses.replace(self._options, static=(*self._options.static, *sizes.items()))
        workdir = self._workdir / f"{target.name}-fixed"
        run = Run(options, self._source, workdir, self._progress, self._on_step, self._ahead, self._twins)
        run._outbox = self._outbox
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        run._notes.append(f"{told} is fixed, {target.name} cannot leave it free: {str(refusal).splitlines()[0]}")
        return run

    def to_target(self, target: Target) -> Finished:
        """Take the source to one target, in a folder of its own below the work folder."""
        context = BuildContext(self._options, target, self._source.artifact.sha256, self._calibration, self._progress)
        passes = {each.name: stage for each in plugins.passes() if (stage := each.stage(context)) is not None}
        check_passes(self._options, passes)
        gated = self._evaluation is not None and self._options.max_drop is not None
        early = self._early if self._early is not None and self._early.target == target.name else None
        stages = target.stages(context) if early is None else early.stages
        begun = {} if early is None else {early.sha256: early.made}
        pipeline = self._pipeline([*passes.values(), *stages], target.name, gated=gated, early=begun)
        hub = self._to_onnx(target.name, pipeline)
        page()  # both are kept for the report, and made while the next step is, ahead
        report_build.environment()
        steps, road = list(hub.steps), hub
        if hub.failure is None:
            self._judged_source()
            road = pipeline.run(
                hub.artifact,
                lambda: (self._recorded_source(), hub.recording),
                self._reporter(target.name),
                hub.bound,
            )
            steps += road.steps
        failure = road.failure if self._calibration is not None else _hinted(road.failure)
        evaluation = self._evaluated(road.artifact) if failure is None else None
        if evaluation is not None and not evaluation.passed:
            failure = _gate_error(evaluation)
        found = Findings() if failure is not None else find(self._subject(target, hub, road.artifact, steps))
        failure = failure or refused(found, self._options)
        return self._finish(target.name, road.artifact, steps, evaluation, found, failure)

    def _subject(self, target: Target, hub: Road, artifact: Artifact, steps: Sequence[StepRecord]) -> Subject:
        """What is measured once all steps are verified."""
        return Subject(
            self._options,
            target,
            self._source.artifact,
            self._source.runner,
            hub.artifact,
            artifact,
            steps,
            self._calibration,
            self._evaluation,
            self._recorded_source().feeds[0],
            self._workdir,
            self._progress,
        )

    def _to_onnx(self, target: str, then: Pipeline) -> Road:
        if self._hub is None:
            if isinstance(self._source, ConcurrentSource) and is_small(self._source.artifact):
                self._begun_recording = self._ahead.begin(self._first_recording)
            stages = [self._source.stage()]
            if self._options.static:
                stages.append(FreezeStage(dict(self._options.static)))
            self._hub = self._pipeline(stages, "onnx").run(
                self._source.artifact,
                lambda: (self._recorded_source(), self._recorded_source()),
                self._reporter(target),
                then=then,
            )
        return self._hub

    def _pipeline(
        self,
        stages: Sequence[Stage],
        folder: str,
        *,
        gated: bool = False,
        early: Mapping[str, Callable[[], Made]] = MappingProxyType({}),
    ) -> Pipeline:
        return Pipeline(
            stages,
            self._workdir / folder,
            gated=gated,
            progress=self._progress,
            ahead=self._ahead,
            twin=self._twins.ask,
            generated=self._calibration is None,
            allow_unproven=self._options.allow_unproven,
            early=early,
        )

    def _recorded_source(self) -> Recording:
        if self._source_recording is None:
            self._source_recording = (self._begun_recording or self._first_recording)()
        return self._source_recording

    def _first_recording(self) -> Recording:
        """What the source makes of the samples, or of generated feeds of the first sizes that it takes."""
        if self._calibration is not None:
            return self._recording(self._proof_inputs)
        refusals: list[SourceError | ToolError | WorkerError] = []
        for attempt in range(attempts(self._frozen.inputs)):
            try:
                return self._generated_recording(attempt)
            except (SourceError, ToolError, WorkerError) as error:
                refusals.append(error)
        raise ToolError(
            f"the source fails on generated inputs: {refusals[0]}\n"
            "  try   --calib with samples of real data\n"
            "  try   --input with the sizes and values that it takes, as in ids:1,64:int64[0,1000)"
        ) from refusals[0]

    def _generated_recording(self, attempt: int) -> Recording:
        """On inputs for which the model is defined, where it says NaN of others, as a logarithm does."""
        recording = self._recording(self._proof_inputs if attempt == 0 else self._inputs_of_proof(attempt))
        if all(is_finite(outputs) for outputs in recording.outputs[: recording.usual]):
            return recording
        within = with_domains(self._source.artifact, self._drawn)
        if within == tuple(self._drawn):
            return recording
        self._drawn = within
        return self._recording(self._inputs_of_proof(attempt))

    def _recording(self, inputs: ProofInputs) -> Recording:
        artifact = self._source.artifact
        title = f"{artifact.format} (source)"
        with self._source.runner() as runner:
            recording = record(title, artifact, runner, inputs.feeds, inputs.edges, may_refuse=True)
            if refused := [name for name in inputs.edges if name not in recording.edges]:
                self._notes.append(
                    f"the source itself refuses the edge inputs {', '.join(refused)}: not compared there"
                )
            if self._calibration is not None or (flagged := with_flags(recording, runner)) is recording:
                return recording
            again = with_edges(self._drawn, flagged.feeds[: flagged.usual], brief=is_brief(artifact.size_bytes))
            return record(title, artifact, runner, again.feeds, again.edges, may_refuse=True)

    def _reporter(self, target: str) -> Callable[[StepRecord], None]:
        def report(step: StepRecord) -> None:
            if self._on_step is not None:
                with heard():
                    self._on_step(target, step)

        return report

    def _evaluated(self, artifact: Artifact) -> Evaluation | None:
        judged = self._judged_source()
        if judged is None or self._evaluation is None:
            return None
        with plugins.runner(artifact) as runner:
            labels, after = predictions(runner, self._tracked(self._evaluation, f"evaluating {artifact.path.name}"))
        metric, before = judged
        values = before, metric.value(labels, after)
        return Evaluation(metric.name, len(self._evaluation), *values, metric.drop(*values), self._options.max_drop)

    def _judged_source(self) -> tuple[Metric, float] | None:
        """The metric, and the source's own value; asked before a target's steps, as labels may not fit its outputs."""
        if self._judged is None and self._evaluation is not None:
            with self._source.runner() as runner:
                labels, before = predictions(runner, self._tracked(self._evaluation, "evaluating the source"))
            metric = find_metric(self._options.metric, labels, before)
            self._judged = metric, metric.value(labels, before)
            self._doubt(at_chance(metric, labels, before, self._judged[1]))
        return self._judged

    def _doubt(self, why: str) -> None:
        """A gate cannot fail where the source itself only guesses: refused with --max-drop, on few samples told."""
        data = self._evaluation
        if why and data is not None and len(data) >= asked.ENOUGH and self._options.max_drop is not None:
            raise FeedError(f"--eval {data.description}: {why}; --max-drop would let everything pass")
        if why:
            self._progress.warn(why)
            self._notes.append(why)

    def _tracked(self, feeds: FeedSource, title: str) -> Iterable[Feed]:
        return self._progress.track(feeds, len(feeds), title)

    def _finish(
        self,
        target: str,
        artifact: Artifact,
        steps: Sequence[StepRecord],
        evaluation: Evaluation | None,
        found: Findings,
        failure: ParityError | None,
    ) -> Finished:
        folder = self._outbox / target
        folder.mkdir(parents=True)
        about_data = self._calibration.warnings if self._calibration else ()
        described = report_build.build(
            self._source.artifact,
            target,
            self._options,
            steps,
            evaluation,
            found,
            {"calibration": self._calibration, "evaluation": self._evaluation},
            (
                *self._source.notes,
                *about_data,
                *self._notes,
                *_waived(steps),
            ),
            str(failure or ""),
        )
        if failure is None or self._options.keep_failed:
            artifact = _moved(artifact, folder)
        if failure is None:
            made = manifest.build(
                folder, artifact, self._source.artifact, target, self._options, self._calibration, found.effective
            )
            _write_json(folder / "manifest.json", made)
        _write_json(folder / "report.json", described)
        (folder / "report.html").write_text(render(described), encoding="utf-8")
        return Finished(target, folder, artifact, described, failure)


def _frozen(artifact: Artifact, options: ExportOptions) -> Artifact:
    """The source's interface with the sizes of ``--static``: what feeds must fit."""
    names = [dim for spec in artifact.inputs for dim in spec.shape if isinstance(dim, str)]
    sizes = sizes_of_dims(dict(options.static), names)
    inputs = tuple(
        dataclasses.replace(
            spec, shape=tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
        )
        for spec in artifact.inputs
    )
    return dataclasses.replace(artifact, inputs=inputs)


def _hinted(failure: ParityError | None) -> ParityError | None:
    """A failure on generated inputs, with the way to judge the model on real ones."""
    if failure is None or "--calib" in str(failure):
        return failure
    hint = "--calib with samples of real data: on generated ones an output may be too small for float32 to agree on"
    return type(failure)(f"{failure}\n  try   {hint}")


def _waived(steps: Sequence[StepRecord]) -> tuple[str, ...]:
    """What ``--allow-unproven`` let pass, for the report."""
    reports = (report for step in steps for report in (step.versus_previous, step.versus_source))
    found = dict.fromkeys(report.unproven for report in reports if report.waived and report.unproven)
    return tuple(f"NOT VERIFIED (--allow-unproven): {text}" for text in found)


def _gate_error(evaluation: Evaluation) -> GateError:
    unit, moved = ("%", "rose") if evaluation.metric == "mse" else ("points", "fell")
    return GateError(
        f"{evaluation.metric} {moved} from {evaluation.before:.4g} to {evaluation.after:.4g}: "
        f"{evaluation.drop:.3g} {unit}, --max-drop allows {evaluation.max_drop:g}\n"
        "  try   more samples for --calib, as varied as those of --eval\n"
        "  try   --w8 instead of --int8: stored integers, float activations\n"
        "  try   a larger --max-drop, where that much may be lost"
    )


def _moved(artifact: Artifact, folder: Path) -> Artifact:
    """Move everything that the last stage wrote into ``folder``."""
    for entry in sorted(artifact.path.parent.iterdir()):
        entry.rename(folder / entry.name)
    state = artifact.initial_state
    if state is not None and not (folder / state.name).exists():
        shutil.copyfile(state, folder / state.name)
    moved_state = None if state is None else folder / state.name
    return dataclasses.replace(artifact, path=folder / artifact.path.name, initial_state=moved_state)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(dumps(value), encoding="utf-8")

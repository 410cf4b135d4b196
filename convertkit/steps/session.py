"""One export: what its targets share is made once, and each target is taken to a finished folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec, is_small
from convertkit.budget import Point
from convertkit.errors import ConvertKitError, ParityError, Unsupported
from convertkit.findings.precision import refused
from convertkit.findings.values import Findings
from convertkit.onnx.freeze import FreezeStage
from convertkit.options.relevance import check_interface, check_passes
from convertkit.parity.values import Recording
from convertkit.progress import Progress
from convertkit.quiet import visible_stderr
from convertkit.recipe import ExportOptions
from convertkit.records import Evaluation, StepRecord
from convertkit.stage import FeedSource, StaticTarget, Target
from convertkit.steps import live, plan
from convertkit.steps.budget import ChooseWithin
from convertkit.steps.describe import Describe, Described, with_sizes
from convertkit.steps.finish import Ending, Finished, finished, reported
from convertkit.steps.judge import Evaluate, JudgeSource, gate_error
from convertkit.steps.judgement import Judgement
from convertkit.steps.make import Convert
from convertkit.steps.measure import Measure
from convertkit.steps.page import DrawPage
from convertkit.steps.planned import Planned, PlanStages
from convertkit.steps.recorded import Notes, RecordSource, described
from convertkit.steps.stages import OfPlugin, OfStage
from convertkit.steps.static import left_open, static_sizes
from convertkit.steps.verify import failure
from convertkit.tasks.resources import Resources
from convertkit.tasks.scheduler import Scheduler
from convertkit.text import NOT_VERIFIED

OnStep = Callable[[str, StepRecord], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where and by what an export is run, and who is told."""

    scheduler: Scheduler
    resources: Resources
    progress: Progress
    on_step: OnStep | None
    outbox: Path
    """Where finished folders are written, one for each target."""
    keep: bool = False
    """Whether what tasks have made stays where it is, for another run."""

    def part(self, target: str) -> Hashable:
        """By what the course of the whole knows one target of this export."""
        return self.outbox, target


class Session:
    """An export of an opened source; ``options.static`` may be more than the user's, where a target needs that."""

    def __init__(
        self, options: ExportOptions, describe: Describe, place: Place, notes: Sequence[str] = (),
        trade_off: Sequence[Point] = (),
    ) -> None:  # fmt: skip
        self._options, self._trade_off = options, tuple(trade_off)
        self._place = place
        self._describe = describe
        opened = place.scheduler.result(describe)
        check_interface(options, opened.artifact)
        inputs = with_sizes(opened.artifact, options).inputs
        self._calibration = live.calibration(options, inputs, place.resources)
        self._labelled = live.evaluation(options, inputs, place.resources)
        samples = (data for data in (self._calibration, self._labelled) if data is not None)
        self._extra = tuple(notes)
        self._notes = [*dict.fromkeys(note for data in samples for note in data.notes), *notes]
        self._plans = dict[str, tuple[Planned, ...]]()
        self._convert = Convert(describe, options)
        self._converted = False
        self._fixed: dict[str, Session] = {}
        beside = opened.shared and is_small(opened.artifact)
        self._source = RecordSource(describe, None if beside else self._convert, options, _digest(self._calibration))
        self._told = Notes(self._source)
        self._hub = self._to_onnx()
        self._judge = self._judging()

    def begin(self, targets: Sequence[Target] = ()) -> Session:
        """Start what all targets need: the source's way to ONNX, and its accuracy.

        The steps of the only target are built meanwhile, so that one which lacks something says so before any work is
        done, and imports what it needs while a worker converts the source.
        """
        scheduler = self._place.scheduler
        for task in filter(None, (self._convert, self._source, self._told, self._judge)):
            scheduler.hold(task)  # each target asks for them again
        for link in self._hub:
            self._submit(link)
        scheduler.submit(self._told)
        if self._judge is not None:
            scheduler.submit(self._judge)
        if len(targets) == 1:
            self._planned(targets[0])
        return self

    def _to_onnx(self) -> tuple[plan.Link, ...]:
        judgement = self._judgement(gated=False)
        start = plan.first(self._convert, self._source, judgement)
        if not self._options.static:
            return (start,)
        freeze = FreezeStage(dict(self._options.static))
        return (start, *plan.chain(start, self._source, [plan.Next.of(OfStage(freeze), freeze)], judgement))

    def _judging(self) -> JudgeSource | None:
        digest = _digest(self._labelled)
        return None if digest is None else JudgeSource(self._describe, self._convert, self._options, digest)

    def _judgement(self, *, gated: bool) -> Judgement:
        return Judgement(gated, self._calibration is None, self._options.allow_unverified)

    def _submit(self, link: plan.Link) -> None:
        for task in (link.make, link.verify):
            self._place.scheduler.hold(task)
        self._place.scheduler.submit(link.verify)

    @property
    def has_onnx(self) -> bool:
        """Whether the source has become ONNX: what fails from then on fails for one target alone."""
        return self._converted

    def recording(self, target: str) -> Recording:
        """What the source computes for the inputs that the artifact for ``target`` was verified on."""
        session = self._fixed.get(target, self)
        return session._place.scheduler.result(session._source).recording

    def warn_of_calibration(self) -> None:
        """Tell what looks odd about the calibration data before the long work starts."""
        for warning in self._calibration.warnings if self._calibration else ():
            self._place.progress.warn(warning)

    def to_target(self, target: Target) -> Finished:
        """Take the source to ``target``; where it needs sizes that nobody asked to be open, those are fixed.

        A stage may stumble over a file that no runtime takes, before anybody has run it: then that is what is told.
        """
        try:
            return self._led(target)
        except ConvertKitError:
            raise
        except Exception:
            self._place.scheduler.result(self._source)
            raise

    def _led(self, target: Target) -> Finished:
        kept = left_open(target, self._options)
        if isinstance(target, StaticTarget) and (sizes := static_sizes(self._open(), target, self._implied(), kept)):
            self._fixed[target.name] = static = self._at_sizes(target, sizes, target.static_because)
            return static.to_target(target)
        try:
            return self._taken(target)
        except Unsupported as refusal:
            fixed = self._at_fixed_sizes(target, refusal)
            if fixed is None:
                raise
            self._fixed[target.name] = fixed
            return fixed.to_target(target)

    def _at_fixed_sizes(self, target: Target, refusal: Unsupported) -> Session | None:
        """The same export with those sizes fixed that nobody asked to be open; None where there are none."""
        told = {*dict(self._options.static), *left_open(target, self._options)}
        sizes = {name: size for name, size in self._implied().items() if name not in told}
        return self._at_sizes(target, sizes, str(refusal).splitlines()[0]) if sizes else None

    def _at_sizes(self, target: Target, sizes: Mapping[str, int], why: str) -> Session:
        options = dataclasses.replace(self._options, static=(*self._options.static, *sizes.items()))
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        note = f"{told} is fixed, {target.name} cannot leave it dynamic: {why}"
        return Session(options, self._describe, self._place, [note]).begin()

    def _open(self) -> tuple[TensorSpec, ...]:
        """The inputs as they are to be delivered, with the sizes that are fixed so far."""
        return with_sizes(self._described().artifact, self._options).inputs

    def _implied(self) -> Mapping[str, int]:
        return self._described().implied_sizes or {}

    def _described(self) -> Described:
        scheduler = self._place.scheduler
        converted = scheduler.result(self._convert)
        self._converted = True
        return described(scheduler.result(self._describe), converted)

    def _within_budget(self, target: Target) -> Finished:
        """The export that keeps most within ``--budget``."""
        self._described()
        task = ChooseWithin(self._describe, self._hub[-1].make, self._options, target.name, _digest(self._calibration))
        choice = self._place.scheduler.run(task)
        options = choice.applied(self._options)
        self._fixed[target.name] = session = Session(
            options, self._describe, self._place, [*self._extra, choice.note], choice.points
        )
        return session.begin([target])._taken(target)

    def _taken(self, target: Target) -> Finished:
        if self._options.budget is not None:
            return self._within_budget(target)
        links = (*self._hub, *self._links(target))
        for link in links:
            self._submit(link)
        self._place.scheduler.course.part_begun(self._place.part(target.name))
        with self._place.scheduler.taken_back(*(link.verify for link in links[len(self._hub) :])):
            steps, artifact, failed = self._gathered(target, links)
        evaluation, found = None, Findings()
        if failed is None:
            evaluation = self._evaluated(links[-1])
            failed = None if evaluation is None or evaluation.passed else gate_error(evaluation, self._options, steps)
        if failed is None:
            found = self._measured(target, links)
            failed = refused(found.effective, self._options)
        return self._finished(target, artifact, steps, evaluation, found, failed)

    def _links(self, target: Target) -> tuple[plan.Link, ...]:
        """The steps behind ONNX; ``UsageError`` for a ``--pass`` that has nothing to do."""
        source = self._described().artifact
        stages = self._planned(target)
        check_passes(self._options, [each.place for _, each in stages if isinstance(each.place, str)])
        following = [
            plan.Next(OfPlugin(each.name, self._options, name, source, each.place), each.lossy) for name, each in stages
        ]
        gated = self._labelled is not None and self._options.max_drop is not None
        return plan.chain(
            self._hub[-1],
            self._source,
            following,
            self._judgement(gated=gated),
            data=_digest(self._calibration),
            patient=not is_small(self._place.scheduler.result(self._convert).artifact),
            after=() if self._judge is None else (self._judge,),
        )

    def _planned(self, target: Target) -> tuple[tuple[str, Planned], ...]:
        """The stages behind ONNX with whose they are: the target's, after those of the one that it packages."""
        return tuple(
            (part.name, each) for part in plugins.parts_of(target, self._options) for each in self._plan(part.name)
        )

    def _plan(self, target: str) -> tuple[Planned, ...]:
        if target not in self._plans:
            task = PlanStages(self._describe, self._options, target, _digest(self._calibration))
            self._plans[target] = self._place.scheduler.run(task).stages
        return self._plans[target]

    def _gathered(
        self, target: Target, links: Sequence[plan.Link]
    ) -> tuple[list[StepRecord], Artifact, ParityError | None]:
        """All steps up to the first that is not verified; the user is told of each as soon as it is."""
        steps = list[StepRecord]()
        for place, link in enumerate(links):
            if place == len(self._hub) and self._judge is not None:
                self._place.scheduler.result(self._judge)  # labels that do not fit end the export here
            found = self._place.scheduler.result(link.verify)
            step = dataclasses.replace(found.step, cached=self._place.scheduler.was_cached(link.make))
            steps.append(step)
            if self._place.on_step is not None:
                with visible_stderr():
                    self._place.on_step(target.name, step)
            if (failed := failure(step)) is not None:
                notes = self._place.scheduler.result(self._convert).notes
                return steps, step.artifact, failed if self._calibration is not None else hinted(failed, notes)
        return steps, steps[-1].artifact, None

    def _evaluated(self, last: plan.Link) -> Evaluation | None:
        digest = _digest(self._labelled)
        if self._judge is None or digest is None:
            return None
        task = Evaluate(self._describe, self._convert, self._judge, last.make, self._options, digest)
        return self._place.scheduler.run(task)

    def _measured(self, target: Target, links: Sequence[plan.Link]) -> Findings:
        verified = tuple(link.verify for link in links)
        data = _digest(self._calibration), _digest(self._labelled)
        hub, last = self._hub[-1].make, links[-1].make
        task = Measure(
            self._describe, self._convert, self._source, hub, last, verified, self._options, target.name, data
        )
        return self._place.scheduler.run(task)

    def _finished(
        self,
        target: Target,
        artifact: Artifact,
        steps: Sequence[StepRecord],
        evaluation: Evaluation | None,
        found: Findings,
        failed: ParityError | None,
    ) -> Finished:
        end = Ending(
            self._options,
            target.name,
            self._described().artifact,
            artifact,
            steps,
            evaluation,
            found,
            self._calibration,
            self._labelled,
            self._all_notes(),
            failed,
            self._trade_off,
        )
        report = reported(end)
        page = self._place.scheduler.run(DrawPage(report, self._place.keep))
        return finished(end, report, page.html, self._place.outbox / target.name, keep=self._place.keep)

    def _all_notes(self) -> tuple[str, ...]:
        """What the source says of itself, of the data and of the runs, each once."""
        scheduler = self._place.scheduler
        of_source = (*scheduler.result(self._convert).notes, *scheduler.result(self._told).notes)
        about_data = self._calibration.warnings if self._calibration else ()
        doubt = () if self._judge is None else (scheduler.result(self._judge).doubt,)
        notes = filter(None, (*of_source, *about_data, *self._notes, *doubt))
        return tuple(dict.fromkeys(note for note in notes if not self._was_followed(note)))

    def _was_followed(self, note: str) -> bool:
        """Whether a note advises a ``--static`` that was given."""
        return any(f"--static {name}=" in note for name, _ in self._options.static)


def _digest(data: FeedSource | None) -> str | None:
    return None if data is None else data.sha256


def hinted(failed: ParityError, notes: Sequence[str] = ()) -> ParityError:
    """A failure on generated inputs, with the way to judge the model on real ones; no data helps one that draws."""
    if "--calib" in str(failed):
        return failed
    if any(note.startswith(NOT_VERIFIED) for note in notes):
        way = "the random tensor as an input of the model: it draws random numbers, and other runtimes draw others"
        return type(failed)(f"{failed}\n  try   {way}")
    hint = "--calib with samples of real data: on generated ones an output may be too small for float32 to agree on"
    if "NaN" in str(failed):
        hint = "--input 'NAME::DTYPE[LOW,HIGH)' with the range of real inputs, if the model is defined for those alone"
    return type(failed)(f"{failed}\n  try   {hint}")

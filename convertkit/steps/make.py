"""Making one artifact of another: the source's conversion, a pass, a step of a target."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from convertkit import plugins
from convertkit.artifact import Artifact, bytes_beside, sha256_of
from convertkit.defects import blamed
from convertkit.errors import ToolError
from convertkit.memory import collect_after
from convertkit.parity.bar import below_the_bar
from convertkit.recipe import ExportOptions
from convertkit.records import Made, Verified
from convertkit.stage import (
    BuildContext,
    DiagnosedStage,
    PackagingTarget,
    SettlingStage,
    Stage,
    Target,
)
from convertkit.steps import live
from convertkit.steps.describe import Described, lying_at, with_sizes
from convertkit.target_options import for_passes, values
from convertkit.tasks.task import Context, Task

_NO_CONTENT = frozenset(
    {"source", "targets", "output", "keep_failed", "force", "verbose", "timeout_s", "calib", "eval", "metric", "strict",
     "label_file", "allow_unverified", "jobs", "cache", "scheduler", "target_options"}
)  # fmt: skip
"""Options that decide nothing about a file, or whose content counts and not their name."""


_ASKED_OF_STAGES = ("name", "version", "accepts", "produces", "tolerance", "options", "run")
_COPIES = 2
"""Of a model's weights, that a stage holds at its peak."""


class StageRef(Protocol):
    """Where a task finds its stage, in whatever process it runs."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str:
        """How a defect names the stage and whose it is."""
        ...

    @property
    def plugins(self) -> tuple[object, ...]:
        """Who may be at fault."""
        ...

    @property
    def packages(self) -> tuple[str, ...]:
        """Whose code the stage is."""
        ...

    def decides(self) -> Mapping[str, object] | None:
        """What besides the artifact decides what the stage makes, JSON-able; None where that cannot be told."""
        ...

    def opened(self, context: Context) -> AbstractContextManager[Stage]: ...


@dataclass(frozen=True, slots=True)
class OfStage:
    """A stage that is at hand."""

    stage: Stage

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def title(self) -> str:
        return f"stage {self.name}"

    @property
    def plugins(self) -> tuple[object, ...]:
        return (self.stage,)

    @property
    def packages(self) -> tuple[str, ...]:
        return (live.package_of(self.stage),)

    def decides(self) -> Mapping[str, object] | None:
        return {"stage": self.stage.name, "version": self.stage.version, "options": dict(self.stage.options)}

    def opened(self, context: Context) -> AbstractContextManager[Stage]:
        return nullcontext(self.stage)


@dataclass(frozen=True, slots=True)
class OfPlugin:
    """The pass of that name, or the step of the target at that place, built anew where it runs."""

    name: str
    options: ExportOptions
    target: str
    source: Artifact
    place: int | str

    def decides(self) -> Mapping[str, object] | None:
        chosen = choices(self.options, self.target, whole=isinstance(self.place, int))
        return {"stage": self.name, "place": self.place, **chosen}

    @property
    def title(self) -> str:
        return f"stage {self.name} of target {self.target}" if isinstance(self.place, int) else f"pass {self.place}"

    @property
    def plugins(self) -> tuple[object, ...]:
        passes = {each.name: each for each in plugins.passes()}
        target = plugins.target(self.target)
        return (passes[str(self.place)], target) if str(self.place) in passes else (target,)

    @property
    def packages(self) -> tuple[str, ...]:
        return (live.package_of(self.plugins[0]),)

    @contextmanager
    def opened(self, context: Context) -> Iterator[Stage]:
        data = live.calibration(self.options, self.source.inputs, context.resources)
        target = plugins.target(self.target)
        built = BuildContext(self.options, target, self.source.sha256, data, context.progress, context.once)
        with blamed(self.title, *self.plugins):
            stages = steps_of(built, target)
        yield stages[self.place]


def _content(options: ExportOptions, target: Target, *, whole: bool) -> object:
    """What a step gets of the target's own options, all of them or those of passes; files by their content."""
    given = values(target, options if whole else for_passes(target, options))
    return {name: _by_content(value) for name, value in given.items()}


def _by_content(value: object) -> object:
    if isinstance(value, tuple):
        return [_by_content(each) for each in value]
    return sha256_of(value) if isinstance(value, Path) else str(value)


def choices(options: ExportOptions, target: str, *, whole: bool) -> dict[str, object]:
    """What the stages of a target (or, not ``whole``, passes for it) are built from, JSON-able; files by content."""
    chosen = live.chosen(options, frozenset(each.name for each in fields(options)) - _NO_CONTENT)
    labels = None if options.label_file is None else sha256_of(Path(options.label_file))
    plugin = plugins.target(target)
    engine = live.engine_of(plugin) if whole else {}
    own = _content(options, plugin, whole=whole)
    return {"target": target, "labels": labels, **chosen, "target_options": own, **engine}


def steps_of(context: BuildContext, target: Target) -> dict[int | str, Stage]:
    """The stages of one target in order: passes by their names, its own by their places.

    The passes of a target that packages another's artifact are that one's.  Raises ``BrokenPlugin`` where a stage lacks
    something that ``Stage`` asks for.
    """
    found: dict[int | str, Stage] = {}
    of_passes = replace(context, options=for_passes(target, context.options))
    for each in () if isinstance(target, PackagingTarget) else plugins.passes():
        if (stage := each.stage(of_passes)) is not None:
            found[each.name] = _whole(stage, f"pass {each.name}")
    return found | {place: _whole(each, f"target {target.name}") for place, each in enumerate(target.stages(context))}


def _whole(stage: Stage, of: str) -> Stage:
    lacking = [name for name in _ASKED_OF_STAGES if not hasattr(stage, name)]
    if lacking:
        raise plugins.BrokenPlugin(
            f"{of}: its stage {type(stage).__name__} lacks {', '.join(lacking)}; see convertkit.stage.Stage"
        )
    return stage


@dataclass(frozen=True, slots=True)
class Planned:
    """A stage that is to run: its place among those of its export, its name, whether it changes numerics on purpose."""

    place: int | str
    name: str
    lossy: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The stages behind the canonical ONNX, in order."""

    stages: tuple[Planned, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PlanStages(Task[Plan]):
    """Which stages an export to one target has; building them tells early where one lacks something."""

    described: Task[Described]
    options: ExportOptions
    target: str
    data: str | None
    """The digest of the samples that stages may read."""
    keeps = Plan

    @property
    def title(self) -> str:
        return f"planning {self.target}"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described,)

    def decides(self) -> Mapping[str, object] | None:
        return {"data": self.data, **choices(self.options, self.target, whole=True)}

    @property
    def packages(self) -> tuple[str, ...]:
        return tuple(live.package_of(each) for each in (*plugins.passes(), plugins.target(self.target)))

    def run(self, given: tuple[Any, ...], context: Context) -> Plan:
        source: Described = given[0]
        data = live.calibration(self.options, with_sizes(source.artifact, self.options).inputs, context.resources)
        target = plugins.target(self.target)
        built = BuildContext(self.options, target, source.artifact.sha256, data, context.progress)
        with blamed(f"the stages of target {target.name}", target, *plugins.passes()):
            stages = steps_of(built, target)
        return Plan(tuple(Planned(place, each.name, each.tolerance.lossy) for place, each in stages.items()))


class Stopped(ToolError):
    """A step that was not started, since the one before it was not verified."""


@dataclass(frozen=True, slots=True, eq=False)
class Make(Task[Made]):
    """One stage, run on what ``before`` described or made; where there is a ``guard``, only once that has passed."""

    ref: StageRef
    before: Task[Described] | Task[Made]
    guard: Task[Verified] | None = None
    data: str | None = None
    """The digest of the samples that the stage may read."""
    after: tuple[Task[Any], ...] = ()
    """What has to be done before, and gives nothing to the stage."""
    keeps = Made

    @property
    def title(self) -> str:
        return self.ref.name

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        guards = () if self.guard is None else (self.guard,)
        return (self.before, *guards, *self.after)

    def decides(self) -> Mapping[str, object] | None:
        chosen = self.ref.decides()
        return None if chosen is None else {**chosen, "data": self.data}

    @property
    def packages(self) -> tuple[str, ...]:
        return self.ref.packages

    def memory(self, given: tuple[Any, ...]) -> int:
        """The weights as they were and as they become, and room to work."""
        return _COPIES * bytes_beside(given[0].artifact)

    def run(self, given: tuple[Any, ...], context: Context) -> Made:
        before: Described | Made = given[0]
        if self.guard is not None and not given[1].passed:
            raise Stopped(f"{self.title} was not started: the step before it was not verified")
        context.progress.status(self.title)
        with self.ref.opened(context) as stage, blamed(self.ref.title, *self.ref.plugins):
            return made(stage, before.artifact, context.folder)


@dataclass(frozen=True, slots=True, eq=False)
class Convert(Task[Made]):
    """The source's conversion to ONNX."""

    described: Task[Described]
    options: ExportOptions
    keeps = Made

    @property
    def title(self) -> str:
        return "converting"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described,)

    def decides(self) -> Mapping[str, object] | None:
        return {}  # the options of the source are those of its description

    def run(self, given: tuple[Any, ...], context: Context) -> Made:
        before: Described = given[0]
        with live.source(self.options, context.resources, context.progress) as source:
            stage = source.stage()
            context.progress.status(stage.name)
            with blamed(f"stage {stage.name}", stage):
                result = made(stage, before.artifact, context.folder)
            notes = tuple(source.notes) if result.settled is None else result.settled.notes
            return replace(result, notes=notes)

    def restored(self, result: Made) -> Made:
        """What the conversion found out about its source is told of the one that this export reads."""
        if result.settled is None:
            return result
        artifact = lying_at(result.settled.artifact, self.options.source)
        return replace(result, settled=replace(result.settled, artifact=artifact))


def made(stage: Stage, source: Artifact, folder: Path) -> Made:
    """Run a stage in a new folder; what it made is what it says."""
    _check_accepts(stage, source)
    _reset_peak_rss()
    begun = time.perf_counter()
    artifact = _checked(stage, stage.run(source, folder))
    collect_after(artifact)
    return Made(
        stage.name,
        stage.version,
        dict(stage.options),
        stage.tolerance,
        artifact,
        time.perf_counter() - begun,
        _peak_rss_bytes(),
        stage.diagnosis if isinstance(stage, DiagnosedStage) else None,
        stage.settled if isinstance(stage, SettlingStage) else None,
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

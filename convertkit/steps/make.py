"""Making one artifact of another: the source's conversion, a pass, a step of a target."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convertkit.artifact import Artifact, bytes_beside, sha256_of
from convertkit.defects import blamed
from convertkit.errors import ToolError
from convertkit.memory import collect_after
from convertkit.parity.bar import below_the_bar
from convertkit.recipe import ExportOptions
from convertkit.records import Made, Verified
from convertkit.stage import DiagnosedStage, SettlingStage, Stage
from convertkit.steps import live
from convertkit.steps.describe import Described, lying_at
from convertkit.steps.stages import StageRef
from convertkit.tasks.task import Context, Task

_COPIES = 2
"""Of a model's weights, that a stage holds at its peak."""


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

"""Running a source and what is made of it on the inputs of the verification."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convertkit.artifact import bytes_beside
from convertkit.recipe import ExportOptions
from convertkit.records import Made, Recorded, Told
from convertkit.steps import live
from convertkit.steps.describe import Described, with_sizes
from convertkit.steps.static import stated_sizes
from convertkit.tasks.task import Context, Task


@dataclass(frozen=True, slots=True, eq=False)
class RecordSource(Task[Recorded]):
    """What the source computes for the user's samples, or for generated inputs, and for edge inputs.

    ``converted`` is its conversion, where that has to come first: a framework that has computed once may not be forked
    any more, and a conversion may narrow the interface.
    """

    described: Task[Described]
    converted: Task[Made] | None
    options: ExportOptions
    data: str | None
    keeps = Recorded

    @property
    def title(self) -> str:
        return "running the source"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.described,) if self.converted is None else (self.described, self.converted)

    def decides(self) -> Mapping[str, object] | None:
        stated = {dim: tuple(sizes) for dim, sizes in stated_sizes(self.options).items()}
        decided = {"static": self.options.static, "seed": self.options.seed, "data": self.data}
        return {**decided, "sizes": stated} if stated else decided

    def run(self, given: tuple[Any, ...], context: Context) -> Recorded:
        """Run the source; ``ToolError`` where it takes none of the inputs that can be generated."""
        from convertkit.steps.recording import Recorder

        source = described(*given).artifact
        options = self.options
        data = live.calibration(options, with_sizes(source, options).inputs, context.resources)
        begun = time.perf_counter()
        settled = given[1].settled if len(given) > 1 else None
        with live.source(options, context.resources, context.progress, settled) as opened:
            recorder = Recorder(options, source, opened, data)
            recording = recorder.recording()
            notes = (*(() if settled else opened.notes), *recorder.notes)
        return Recorded(recording, time.perf_counter() - begun, notes)


def described(opened: Described, converted: Made | None = None) -> Described:
    """The source, with the interface that its conversion has left it."""
    if converted is None or converted.settled is None:
        return opened
    return dataclasses.replace(opened, artifact=converted.settled.artifact, notes=converted.settled.notes)


@dataclass(frozen=True, slots=True, eq=False)
class Notes(Task[Told]):
    """What running the source told, for the report, which needs nothing else of ``source``."""

    source: Task[Recorded]
    keeps = Told

    @property
    def title(self) -> str:
        return "noting"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.source,)

    def decides(self) -> Mapping[str, object] | None:
        return {}

    def run(self, given: tuple[Any, ...], context: Context) -> Told:
        recorded: Recorded = given[0]
        return Told(recorded.notes)


@dataclass(frozen=True, slots=True, eq=False)
class RecordArtifact(Task[Recorded]):
    """What an artifact computes for the inputs of the source's recording."""

    made: Task[Made]
    source: Task[Recorded]
    keeps = Recorded

    @property
    def title(self) -> str:
        return f"running {self.made.title}"

    @property
    def needs(self) -> tuple[Task[Any], ...]:
        return (self.made, self.source)

    def decides(self) -> Mapping[str, object] | None:
        return {}

    def memory(self, given: tuple[Any, ...]) -> int:
        """The weights, which the runtime may lay out anew."""
        return 2 * bytes_beside(given[0].artifact)

    def run(self, given: tuple[Any, ...], context: Context) -> Recorded:
        """``ToolError`` where the artifact does not run."""
        from convertkit.steps.recording import recorded

        made, source = given
        begun = time.perf_counter()
        recording = recorded(made.stage, made.artifact, source.recording)
        return Recorded(recording, time.perf_counter() - begun, runtime=recording.runtime or made.artifact.format)

"""Running a source and what is made of it on the inputs of the verification."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec, bytes_beside
from convertkit.errors import ConvertKitError, SourceError, ToolError, WorkerError
from convertkit.formulas import sizes_of_dims
from convertkit.onnx.index_bounds import with_index_bounds
from convertkit.onnx.input_domains import with_domains
from convertkit.parity import Recording, record
from convertkit.parity.feeds import ProofInputs, is_brief, proof_inputs, with_edges
from convertkit.parity.flags import is_finite, with_flags, without_empty_masks
from convertkit.parity.free_sizes import attempts
from convertkit.recipe import ExportOptions
from convertkit.records import Made, Recorded
from convertkit.stage import FeedSource, Runner
from convertkit.steps import live
from convertkit.steps.describe import Described
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
        return {"static": self.options.static, "seed": self.options.seed, "data": self.data}

    def run(self, given: tuple[Any, ...], context: Context) -> Recorded:
        """Run the source; ``ToolError`` where it takes none of the inputs that can be generated."""
        source = described(*given).artifact
        options = self.options
        data = live.calibration(options, with_sizes(source, options).inputs, context.resources)
        begun = time.perf_counter()
        settled = given[1].settled if len(given) > 1 else None
        with live.source(options, context.resources, context.progress, settled) as opened:
            session = Recorder(options, source, opened, data)
            recording = session.recording()
            notes = (*(() if settled else opened.notes), *session.notes)
        return Recorded(recording, time.perf_counter() - begun, notes)


def described(opened: Described, converted: Made | None = None) -> Described:
    """The source, with the interface that its conversion has left it."""
    if converted is None or converted.settled is None:
        return opened
    return dataclasses.replace(opened, artifact=converted.settled.artifact, notes=converted.settled.notes)


def with_sizes(artifact: Artifact, options: ExportOptions) -> Artifact:
    """The source's interface with the sizes of ``--static``: what samples must fit."""
    names = [dim for spec in artifact.inputs for dim in spec.shape if isinstance(dim, str)]
    sizes = sizes_of_dims(dict(options.static), names)
    inputs = tuple(
        dataclasses.replace(
            spec, shape=tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
        )
        for spec in artifact.inputs
    )
    return dataclasses.replace(artifact, inputs=inputs)


class Runs(Protocol):
    """What has a runner: a source, or anything else that is open."""

    def runner(self) -> Runner: ...


class Recorder:
    """Finds inputs that a model takes, and on which it tells something."""

    def __init__(
        self, options: ExportOptions, artifact: Artifact, source: Runs, calibration: FeedSource | None
    ) -> None:
        self._options = options
        self._artifact = artifact
        self._source = source
        self._calibration = calibration
        inputs = with_sizes(artifact, options).inputs
        self._inputs = inputs
        self._drawn: Sequence[TensorSpec] = inputs if calibration is not None else with_index_bounds(artifact, inputs)
        self._brief = is_brief(artifact.size_bytes)
        self.notes: list[str] = []

    def recording(self) -> Recording:
        """What the source makes of the samples, or of generated inputs of the first sizes that it takes."""
        if self._calibration is not None:
            return self._recorded(self._inputs_of(0))
        refusals: list[SourceError | ToolError | WorkerError] = []
        for attempt in range(attempts(self._inputs)):
            try:
                return self._generated(attempt)
            except (SourceError, ToolError, WorkerError) as error:
                refusals.append(error)
        raise ToolError(
            f"the source fails on generated inputs: {refusals[0]}\n"
            "  try   --calib with samples of real data\n"
            "  try   --input with the sizes and values that it takes, as in ids:1,64:int64[0,1000)"
        ) from refusals[0]

    def _inputs_of(self, attempt: int) -> ProofInputs:
        return proof_inputs(self._drawn, self._calibration, self._options.seed, attempt, brief=self._brief)

    def _generated(self, attempt: int) -> Recording:
        """On inputs for which the model is defined, where it says NaN of others, as a logarithm does."""
        recording = self._recorded(self._inputs_of(attempt))
        if all(is_finite(outputs) for outputs in recording.outputs[: recording.usual]):
            return recording
        within = with_domains(self._artifact, self._drawn)
        if within == tuple(self._drawn):
            return recording
        self._drawn = within
        return self._recorded(self._inputs_of(attempt))

    def _recorded(self, inputs: ProofInputs) -> Recording:
        with self._source.runner() as runner:
            recording = without_empty_masks(self._run(runner, inputs))
            if refused := [name for name in inputs.edges if name not in recording.edges]:
                self.notes.append(f"the source itself refuses the edge inputs {', '.join(refused)}: not compared there")
            if self._calibration is not None or (flagged := with_flags(recording, runner)) is recording:
                return recording
            edges = with_edges(self._drawn, flagged.feeds[: flagged.usual], brief=self._brief)
            return without_empty_masks(self._run(runner, edges))

    def _run(self, runner: Runner, inputs: ProofInputs) -> Recording:
        title = f"{self._artifact.format} (source)"
        return record(title, self._artifact, runner, inputs.feeds, inputs.edges, may_refuse=True)


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
        made, source = given
        begun = time.perf_counter()
        recording = recorded(made.stage, made.artifact, source.recording)
        return Recorded(recording, time.perf_counter() - begun)


def recorded(stage: str, artifact: Artifact, source: Recording) -> Recording:
    """What ``artifact`` computes for the inputs of ``source``."""
    title = f"{artifact.format} ({stage})"
    try:
        with plugins.runner(artifact) as runner:
            return record(title, artifact, runner, source.feeds, source.edges)
    except ConvertKitError as error:
        raise ToolError(f"what {stage} made does not run: {error}") from error

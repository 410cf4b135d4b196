"""Running a source on inputs that it takes, and artifacts on the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from convertkit import plugins
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import ConvertKitError, SourceError, ToolError, WorkerError
from convertkit.onnx.index_bounds import held_inputs, with_index_bounds
from convertkit.onnx.input_domains import with_domains
from convertkit.onnx.overhang import refuse_overhang
from convertkit.parity.between import with_between
from convertkit.parity.blanks import without_blanks
from convertkit.parity.far_integers import with_far_integers
from convertkit.parity.feeds import ProofInputs, is_brief, proof_inputs, with_edges
from convertkit.parity.flags import is_finite, with_flags, without_empty_masks
from convertkit.parity.free_sizes import NOT_STATED, attempts, named_sizes, sizes_of_rows
from convertkit.parity.replay import record
from convertkit.parity.values import Recording
from convertkit.recipe import ExportOptions
from convertkit.stage import FeedSource, Runner, SizedSource
from convertkit.steps.describe import source_bytes, with_sizes
from convertkit.steps.static import stated_sizes


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
        self._known = source.known_sizes if isinstance(source, SizedSource) else NOT_STATED
        self._calibration = calibration
        inputs = with_sizes(artifact, options).inputs
        self._inputs = inputs
        self._drawn: Sequence[TensorSpec] = inputs if calibration is not None else with_index_bounds(artifact, inputs)
        self._brief = is_brief(source_bytes(artifact))
        self.notes: list[str] = []

    def recording(self) -> Recording:
        """What the source makes of the samples, or of generated inputs of the first sizes that it takes."""
        if self._calibration is not None:
            return self._recorded(self._inputs_of(0, NOT_STATED))
        refusals: list[SourceError | ToolError | WorkerError] = []
        usual = [(attempt, NOT_STATED) for attempt in range(attempts(self._inputs))]
        others = [sizes for sizes in (self._known, *sizes_of_rows(self._inputs)) if sizes]
        empty: Recording | None = None
        for attempt, sizes in [*usual, *((0, sizes) for sizes in others)]:
            try:
                found = self._generated(attempt, sizes)
            except (SourceError, ToolError, WorkerError) as error:
                refusals.append(error)
                continue
            if not _is_empty(found):
                return found
            empty = empty or found
        if empty is not None:
            return empty
        raise ToolError(
            f"the source fails on generated inputs: {refusals[0]}\n"
            + self._other_sizes([(attempt, NOT_STATED) for attempt in range(attempts(self._inputs))])
            + "  try   --calib with samples of real data\n"
            "  try   --input with the sizes and values that it takes, as in ids:1,64:int64[0,1000)"
        ) from refusals[0]

    def _other_sizes(self, usual: Sequence[tuple[int, Mapping[str, Sequence[int]]]]) -> str:
        """The sizes at which the source was run, with the flags that give it others; empty where all are fixed."""
        if stated := stated_sizes(self._options):
            tried = [f"{dim} = {', '.join(map(str, (sizes[0], sizes[-1])))}" for dim, sizes in stated.items()]
            return f"  try   other sizes than {' and '.join(tried)}, at which it was run\n"
        found = [named_sizes(self._inputs, attempt, 0, sizes) for attempt, sizes in usual]
        if not found[0]:
            return ""
        told = "; ".join(", ".join(f"{dim}={size}" for dim, size in each.items()) for each in found)
        flags = " ".join(f"--static {dim}=SIZE" for dim in found[0] if dim.isidentifier())
        return f"  it was run with {told}\n  try   {flags}, with sizes that it takes\n"

    def _inputs_of(self, attempt: int, sizes: Mapping[str, Sequence[int]]) -> ProofInputs:
        seed, stated = self._options.seed, {**sizes, **stated_sizes(self._options)}
        return proof_inputs(self._drawn, self._calibration, seed, attempt, brief=self._brief, stated=stated)

    def _generated(self, attempt: int, sizes: Mapping[str, Sequence[int]]) -> Recording:
        """On inputs for which the model is defined, where it says NaN of others, as a logarithm does."""
        inputs = self._inputs_of(attempt, sizes)
        refuse_overhang(self._artifact, inputs.usual)
        recording = self._recorded(inputs)
        if all(is_finite(outputs) for outputs in recording.outputs[: recording.usual]):
            return recording
        within = with_domains(self._artifact, self._drawn)
        if within == tuple(self._drawn):
            return recording
        self._drawn = within
        return self._recorded(self._inputs_of(attempt, sizes))

    def _recorded(self, inputs: ProofInputs) -> Recording:
        with self._source.runner() as runner:
            recording = self._run(runner, inputs)
            if refused := [name for name in inputs.edges if name not in recording.edges]:
                self.notes.append(f"the source itself refuses the edge inputs {', '.join(refused)}: not compared there")
            if self._calibration is None and (flagged := with_flags(recording, runner)) is not recording:
                edges = with_edges(self._drawn, flagged.feeds[: flagged.usual], brief=self._brief)
                recording = self._run(runner, edges)
            if self._calibration is None:
                recording = without_blanks(recording, runner)
            found = with_between(without_empty_masks(recording), runner)
            if self._calibration is not None:
                return found
            return with_far_integers(found, self._open(), runner, brief=self._brief)

    def _open(self) -> Sequence[TensorSpec]:
        """Inputs of whose values neither the user nor the graph tells a bound."""
        untold = [spec for spec in self._inputs if spec.value_range is None or spec.by_example]
        held = held_inputs(self._artifact, untold)
        return [spec for spec in untold if spec.name not in held]

    def _run(self, runner: Runner, inputs: ProofInputs) -> Recording:
        title = f"{self._artifact.format} (source)"
        return record(title, self._artifact, runner, inputs.feeds, inputs.edges, may_refuse=True)


def _is_empty(recording: Recording) -> bool:
    """Whether outputs hold nothing or zeros alone, as where a sound is shorter than the window of its spectrum."""
    values = [value for outputs in recording.outputs[: recording.usual] for value in outputs.values()]
    return all(not value.size or (value.dtype.kind in "fiub" and not value.any()) for value in values)


def recorded(stage: str, artifact: Artifact, source: Recording) -> Recording:
    """What ``artifact`` computes for the inputs of ``source``."""
    title = f"{artifact.format} ({stage})"
    try:
        with plugins.runner(artifact) as runner:
            return record(title, artifact, runner, source.feeds, source.edges)
    except ConvertKitError as error:
        raise ToolError(f"what {stage} made does not run: {error}") from error

"""The contracts that converters, passes and targets fulfil.

A stage turns one artifact into the next and declares a tolerance; the pipeline replays the same
feeds through both sides and decides.  A stage can neither forget that check nor weaken it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

from convertkit.artifact import Array, Artifact
from convertkit.progress import Progress, Silent
from convertkit.target_options import values

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.recipe import ExportOptions

Feed = Mapping[str, Array]
"""One call's inputs by name, in the source's layout and dtype, batch dimension included."""

Outputs = dict[str, Array]
"""One call's outputs by name, in the source's layout and dtype, in the artifact's order."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What an artifact may differ from another one by, and why that much.

    A bound that is ``None`` is not checked.  ``relative`` bounds ``max |difference| / max |reference|``
    of each output.  ``lsb`` bounds the difference in units of the output tensor's scale and
    ``lsb_share`` is the share of elements (0 to 1) that must be within 1 LSB.  ``snr_db`` is the
    least signal-to-noise ratio; below ``warn_snr_db`` a step passes with a warning.  Where both
    LSB and SNR bounds are given, fulfilling either is enough.  ``same_integers`` says that the step computes the same
    integers: outputs that differ by more than 1 LSB, in more than 1 % of an output, or by more than ``FLOAT32`` where
    they have no scale, are held against the model's float64 twin, and against the looser bounds where it has none.
    ``lossy`` marks steps that change
    numerics on purpose: from there on, the comparison with the source uses this tolerance.
    """

    reason: str
    relative: float | None = None
    lsb: float | None = None
    lsb_share: float = 0.99
    snr_db: float | None = None
    warn_snr_db: float | None = None
    lossy: bool = False
    same_integers: bool = False


EXACT = Tolerance("the step only moves data", relative=0.0)
FLOAT32 = Tolerance("the same float32 arithmetic in another order", relative=1e-5)
LOSSY = Tolerance("the step changes numerics on purpose", snr_db=3.0, warn_snr_db=20.0, lossy=True)


class Runner(Protocol):
    """Executes one artifact: a context manager from feeds to outputs, for any batch the artifact takes."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def run(self, feed: Feed) -> Outputs:
        """Compute all outputs of the artifact for one feed."""
        ...


@dataclass(frozen=True, slots=True)
class Portable:
    """A model file and the runtime that executes it, here or on another processor.

    A ``signature`` of LiteRT finds inputs and outputs by their names; without one ``inputs`` and ``outputs`` are pairs
    of a name and its tensor's index, and empty where the names are those of the file's tensors.
    """

    runtime: Literal["litert", "onnxruntime"]
    path: Path
    signature: str = ""
    inputs: tuple[tuple[str, int], ...] = ()
    outputs: tuple[tuple[str, int], ...] = ()


@runtime_checkable
class PortableRunner(Runner, Protocol):
    """A runner of one file in a runtime that other processors have, too."""

    def portable(self) -> Portable:
        """The file, which is there while the runner is open."""
        ...


class RunnerFactory(Protocol):
    """What an entry point of ``convertkit.runners`` holds, named after the format it executes."""

    def __call__(self, artifact: Artifact) -> Runner: ...


class Stage(Protocol):
    """One step of an export: reads one artifact, writes the next one into ``workdir``."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def accepts(self) -> frozenset[str]:
        """Formats that :meth:`run` takes."""
        ...

    @property
    def produces(self) -> str:
        """Format of the result."""
        ...

    @property
    def tolerance(self) -> Tolerance: ...
    @property
    def options(self) -> Mapping[str, object]:
        """What made this run of the stage what it is, JSON-able; it goes into the report."""
        ...

    def run(self, source: Artifact, workdir: Path) -> Artifact: ...


@runtime_checkable
class DiagnosedStage(Protocol):
    """A stage that tells more than its artifact does, JSON-able, for the report."""

    @property
    def diagnosis(self) -> Mapping[str, object] | None: ...


@runtime_checkable
class ForetellingStage(Protocol):
    """A target's last stage that can tell what it would refuse without making its artifact, where that takes long.

    ``convertkit check`` asks it in place of :meth:`Stage.run` and of the artifact's runner.
    """

    def foretell(self, source: Artifact) -> Sequence[str] | None:
        """Sentences about what it would make, for ``check`` to show.

        Raises ``Unsupported``, in the words of :meth:`Stage.run`, for what that refuses ``source`` for.
        """
        ...


@dataclass(frozen=True, slots=True)
class Settled:
    """What a conversion has settled about its source.

    ``artifact`` is the source as it is from then on: the same file, outputs as the ONNX has them, perhaps fewer dynamic
    dimensions.  ``notes`` take the place of the source's.
    """

    artifact: Artifact
    notes: tuple[str, ...] = ()


@runtime_checkable
class SettlingStage(Protocol):
    """A source's stage that finds out more about the source while it converts it.

    ``settled`` is set by :meth:`Stage.run`; None where everything is as it was.
    """

    @property
    def settled(self) -> Settled | None: ...


class FeedSource(Protocol):
    """Calibration or evaluation data: streams feeds again and again, in the same order."""

    @property
    def description(self) -> str:
        """What the user gave, for reports."""
        ...

    @property
    def sha256(self) -> str:
        """Digest of everything that :meth:`__iter__` will yield."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """What looks odd about the data (constant, very few samples), for the report."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Feed]:
        """Yield feeds, ``Feed`` of one sample each (batch 1 where the model has a batch dimension)."""
        ...


class Source(Protocol):
    """An opened source model: knows its interface, can be executed, and can become ONNX."""

    @property
    def artifact(self) -> Artifact: ...
    @property
    def notes(self) -> Sequence[str]:
        """What the user should know (dynamic batch assumed, code trusted, …), for the report."""
        ...

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def runner(self) -> Runner:
        """The reference that every later artifact is held against."""
        ...

    def stage(self) -> Stage:
        """The step to ONNX."""
        ...


@runtime_checkable
class FreedSource(Protocol):
    """A source that made dimensions dynamic which the model itself leaves open.

    A target that cannot leave them dynamic gets the model at ``implied_sizes``, by the dimensions' names.
    """

    @property
    def implied_sizes(self) -> Mapping[str, int]: ...


@runtime_checkable
class SettledSource(Protocol):
    """A source whose runner has to know what its conversion has settled."""

    def settled(self, settled: Settled) -> Source:
        """The same source, not opened again, with the interface that its conversion left it."""
        ...


@runtime_checkable
class ConcurrentSource(Protocol):
    """A source whose runner and stage share nothing that changes: it may be executed while it is converted."""

    concurrent: bool


class Converter(Protocol):
    """What an entry point of ``convertkit.converters`` holds."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str:
        """One line for ``convertkit targets``, naming the file kinds."""
        ...

    def sniff(self, source: str) -> str | None:
        """The format of ``source`` where this converter reads it, else None.

        Looks at content only, executes nothing, imports no framework, never raises for a file
        of another kind, and takes milliseconds.
        """
        ...

    def open(self, source: str, options: ExportOptions, workdir: Path, progress: Progress) -> Source:
        """Open the source (in a worker process where a framework is involved), and tell ``progress`` what is done."""
        ...


Once = Callable[[Any], Any]
"""Runs a ``convertkit.tasks.task.Task`` that needs no others, or hands on what another stage of this run, or a cache,
has made by it; nobody may change that.
"""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What passes and targets may need to know to build their stages."""

    options: ExportOptions
    target: Target
    source_sha256: str = ""
    calibration: FeedSource | None = None
    progress: Progress = field(default_factory=Silent)
    once: Once | None = None

    @property
    def target_options(self) -> Mapping[str, Any]:
        """Every option that the target brings itself, by name: what was given for it, else its default.

        ``Target.profile`` gets the same of its options by ``convertkit.target_options.values(self, options)``.
        """
        return values(self.target, self.options)


@runtime_checkable
class FlagReader(Protocol):
    """A converter or a target that names the flags it has a use for: others are refused instead of ignored.

    A converter tells which of ``--model``, ``--signature``, ``--trust pickle``, ``--trust lambda`` and
    ``--trust pyfunc``, a target which of ``--opset``, ``--io-dtype``, ``--device``, ``--input-layout``,
    ``--description``, ``--label-file`` and ``--normalization``.  One that does not say it may get any of them.  A
    target that names ``--images`` uses it for more than folders of images.
    """

    @property
    def reads(self) -> frozenset[str]: ...


@runtime_checkable
class DeviceReader(Protocol):
    """A target that knows what its kernels cost on several devices, which ``--device`` names."""

    @property
    def devices(self) -> tuple[str, ...]: ...


@runtime_checkable
class FilesConverter(Protocol):
    """A converter whose sources may lie in more files than the one that is named, or in its folder."""

    def files_beside(self, source: str) -> Sequence[Path]:
        """The other files that decide what the source is, such as shards or external weights: a cache asks for them.

        Files whose names begin with the source's stem and a dot need not be told.
        """
        ...


@runtime_checkable
class LiveConverter(Protocol):
    """A converter that also takes objects of the caller's own process, by saving them as a file that it reads."""

    def save_live(self, model: object, example: object, folder: Path) -> Path | None:
        """A file in ``folder`` made of ``model``; None where that is not an object of this framework.

        ``example`` is None, an array, a tuple of positional or a dict of keyword arguments.  Imports no framework that
        the caller has not imported, and changes nothing about the object.  Raises ``UsageError`` where an example is
        missing or does not fit, another ``ConvertKitError`` where the object has no form that can be saved.
        """
        ...


@runtime_checkable
class WithExtra(Protocol):
    """A plugin of ours that needs one of our extras, by its name; ``convertkit targets`` tells whether it is there."""

    @property
    def extra(self) -> str: ...


@runtime_checkable
class WithEngine(Protocol):
    """A target whose compiler or runner lives in the environment of an engine, by that one's name."""

    @property
    def engine(self) -> str: ...


class PassPlugin(Protocol):
    """What an entry point of ``convertkit.passes`` holds: builds a stage where the options ask for it."""

    @property
    def name(self) -> str: ...

    @property
    def order(self) -> int:
        """Passes run in ascending order: prune 100, quantize 500."""
        ...

    def stage(self, context: BuildContext) -> Stage | None:
        """The stage, or None where the options (``options.passes`` holds ``--pass`` names) do not ask for it."""
        ...


class Target(Protocol):
    """What an entry point of ``convertkit.targets`` holds: compiles canonical ONNX into a deliverable."""

    @property
    def name(self) -> str: ...
    @property
    def summary(self) -> str:
        """One line for ``convertkit targets``."""
        ...

    @property
    def precisions(self) -> tuple[str, ...]:
        """Values of ``ExportOptions.precision`` that this target delivers."""
        ...

    @property
    def runs_here(self) -> bool:
        """Whether what runs the artifact here is what will run it: only then does its latency mean anything."""
        ...

    def profile(self, options: ExportOptions) -> QuantProfile:
        """How this target wants a model quantized at ``options.precision``."""
        ...

    def stages(self, context: BuildContext) -> tuple[Stage, ...]:
        """The steps from canonical ONNX (float or QDQ) to the deliverable."""
        ...


@runtime_checkable
class SimulatedTarget(Protocol):
    """A target whose delivered artifact a simulator executes here: its numbers count, its time does not.

    Of such a target ``runs_here`` is False.  A target whose device has no simulator here does not have the attribute.
    """

    @property
    def simulated(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Replay:
    """What an artifact answers to the golden vectors beside it: their number, and a sentence for each that differs."""

    vectors: int
    wrong: tuple[str, ...] = ()


@runtime_checkable
class GoldenTarget(Protocol):
    """A target that delivers golden vectors for a test on the device, and can give them to the artifact here, too."""

    def replay(self, artifact: Artifact, precision: str) -> Replay:
        """Run the vectors in the folder of a delivered ``artifact``; ``SourceError`` where they cannot be read."""
        ...


Execution = Literal["here", "simulated", "elsewhere"]
"""What executed a delivered artifact: what will run it, a simulator of that, or another program alone."""


def execution(target: Target) -> Execution:
    """Of what ``target`` delivers."""
    if target.runs_here:
        return "here"
    return "simulated" if isinstance(target, SimulatedTarget) and target.simulated else "elsewhere"


@runtime_checkable
class PackagingTarget(Protocol):
    """A target that packages what another one delivers, for a platform.

    The passes and steps of the target called ``packages`` come first: the same tasks, which make the same file.  Of
    this target there are :meth:`Target.stages` after them, and its :meth:`Target.profile` is not asked.
    """

    @property
    def packages(self) -> str: ...


@runtime_checkable
class ChoosingTarget(PackagingTarget, Protocol):
    """A packaging target whose options choose what it packages; ``packages`` is what it is without any."""

    def packaged(self, options: ExportOptions) -> str:
        """The target whose artifact goes into the package."""
        ...


@runtime_checkable
class CheckingTarget(Protocol):
    """A target whose options have to fit the other flags."""

    def check(self, options: ExportOptions) -> None:
        """Raise a ``ConvertKitError`` for options that contradict each other, before the source is opened."""
        ...


@runtime_checkable
class StaticTarget(Protocol):
    """A target whose runtime needs every size before it starts.

    ``static_because`` says why, as a clause.  A batch that is open becomes 1, and a size that the source did not name
    itself what the source says; any other has to be given by ``--static``.
    """

    @property
    def static_because(self) -> str: ...


@runtime_checkable
class FlexibleTarget(Protocol):
    """A target whose options say which dimensions stay dynamic, where it would need sizes otherwise."""

    def left_open(self, options: ExportOptions) -> Mapping[str, Sequence[int]]:
        """By their names, the sizes at which the artifact is verified, the usual one first; none where any are."""
        ...

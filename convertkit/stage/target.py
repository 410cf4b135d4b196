"""What builds the steps behind the canonical ONNX: targets, and passes in front of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from convertkit.artifact import Artifact
from convertkit.progress import Progress, Silent
from convertkit.stage.source import FeedSource
from convertkit.stage.step import Stage
from convertkit.target_options import values

if TYPE_CHECKING:
    from convertkit.profile import QuantProfile
    from convertkit.recipe import ExportOptions


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
class DeviceReader(Protocol):
    """A target that knows what its kernels cost on several devices, which ``--device`` names."""

    @property
    def devices(self) -> tuple[str, ...]: ...


@runtime_checkable
class PrecisionDeviceReader(DeviceReader, Protocol):
    """One that ``--device`` tells something at some precisions alone."""

    @property
    def device_precisions(self) -> tuple[str, ...]: ...


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


@runtime_checkable
class PartlySimulatedTarget(Protocol):
    """A target whose options decide whether a simulator executes its artifact here; ``runs_here`` is False."""

    def simulates(self, options: ExportOptions) -> bool: ...


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


def execution(target: Target, options: ExportOptions) -> Execution:
    """Of what ``target`` delivers with ``options``."""
    if target.runs_here:
        return "here"
    if isinstance(target, PartlySimulatedTarget):
        return "simulated" if target.simulates(options) else "elsewhere"
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
class SelectiveTarget(Protocol):
    """A target for sources of one kind."""

    def takes(self, source: str) -> bool:
        """Whether ``source`` is of that kind; ``check`` and ``init`` ask where no target is named."""
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
class ReasoningTarget(Protocol):
    """A target that says why it does not deliver a precision: a clause with the ways out, by the precision."""

    @property
    def lacks(self) -> Mapping[str, str]: ...


@runtime_checkable
class FlexibleTarget(Protocol):
    """A target whose options say which dimensions stay dynamic, where it would need sizes otherwise."""

    def left_open(self, options: ExportOptions) -> Mapping[str, Sequence[int]]:
        """By their names, the sizes at which the artifact is verified, the usual one first; none where any are."""
        ...

"""One step of an export, and what it may tell besides its artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from convertkit.artifact import Artifact
from convertkit.stage.tolerance import Tolerance


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

"""What opens a source model, and the data that it is fed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from convertkit.artifact import Artifact
from convertkit.progress import Progress
from convertkit.stage.runner import Feed, Runner
from convertkit.stage.step import Settled, Stage

if TYPE_CHECKING:
    from convertkit.recipe import ExportOptions


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
class SizedSource(Protocol):
    """A source that knows sizes of its dynamic dimensions at which it computes.

    They are those of the first feeds and of the last ones, by the dimensions' names, where it takes no usual ones.
    """

    @property
    def known_sizes(self) -> Mapping[str, Sequence[int]]: ...


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


@runtime_checkable
class FilesConverter(Protocol):
    """A converter whose sources may lie in more files than the one that is named, or in its folder."""

    def files_beside(self, source: str) -> Sequence[Path]:
        """The other files that decide what the source is, such as shards or external weights: a cache asks for them.

        Files whose names begin with the source's stem and a dot need not be told.
        """
        ...


@runtime_checkable
class IntegerConverter(Protocol):
    """A converter of files that may hold integers with their scales: ``--int8`` asks those for no data."""

    def is_quantized(self, source: str) -> bool:
        """Whether values that the model computes are stored as integers; reads the file, executes nothing."""
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

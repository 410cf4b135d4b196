"""The kinds of data that feeds come from, each read sample by sample."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.data.user_functions import told
from convertkit.errors import ConvertKitError, FeedError
from convertkit.stage import Feed

LABEL = "label"
_ALMOST_LABEL = frozenset({"labels", "y", "target", "targets", "class", "classes", "truth"})
NO_ARRAY = (ValueError, tokenize.TokenError)
"""What NumPy raises on files that are none of its own, or cut off."""
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, OSError, RuntimeError)
"""What zipfile raises on archives that are broken, encrypted or packed as it cannot unpack."""


class Raw(Protocol):
    """Data before it is checked."""

    @property
    def description(self) -> str: ...
    @property
    def labels(self) -> Array | None: ...
    @property
    def notes(self) -> Sequence[str]:
        """What was done to the data that its owner should know."""
        ...

    def chosen(self, samples: int | None) -> Sequence[int] | None:
        """Positions of the wanted samples, None for all."""
        ...

    def stream(self, chosen: Sequence[int] | None) -> Iterator[Feed]: ...


class Column(Protocol):
    """The rows of one input."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all rows together."""
        ...

    def rows(self) -> Iterator[Array]: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """Rows of an array in memory."""

    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def rows(self) -> Iterator[Array]:
        return iter(self.array)


@dataclass(frozen=True, slots=True)
class Stored:
    """Rows of an ``.npy`` file, or of a member of an ``.npz``, read in order and never held together.

    Read, not mapped: mapped pages would count as memory of the process.
    """

    path: Path
    member: str | None
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    def rows(self) -> Iterator[Array]:
        with _npy_stream(self.path, self.member) as stream:
            _npy_header(stream, self.path)
            size = int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
            for _ in range(self.shape[0]):
                data = stream.read(size)
                if len(data) != size:
                    raise FeedError(f"{self.path} is truncated")
                yield np.frombuffer(data, self.dtype).reshape(self.shape[1:])


@dataclass(frozen=True, slots=True)
class Folder:
    """Files of one folder, each a sample."""

    files: tuple[Path, ...]
    read: Callable[[Path], Array]
    shape: tuple[int, ...]

    def rows(self) -> Iterator[Array]:
        return (self.read(file) for file in self.files)


@dataclass(frozen=True, slots=True)
class Columns:
    """One column per input; rows become feeds of one sample, or of the model's fixed batch."""

    description: str
    columns: Mapping[str, Column]
    per_feed: Mapping[str, int]
    count: int
    labels: Array | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of_arrays(cls, title: str, arrays: Mapping[str, object], inputs: tuple[TensorSpec, ...]) -> Columns:
        """Columns of arrays in memory; the key ``label`` holds the truth."""
        whole = {name: _array(f"{title}: {name}", array) for name, array in arrays.items()}
        columns: dict[str, Column] = {name: Whole(array) for name, array in whole.items() if name != LABEL}
        labels = whole.get(LABEL)
        return cls.matched(title, columns, inputs, labels)

    @classmethod
    def matched(
        cls,
        title: str,
        columns: Mapping[str, Column],
        inputs: tuple[TensorSpec, ...],
        labels: Array | None,
        notes: tuple[str, ...] = (),
    ) -> Columns:
        """Columns held against the inputs; ``FeedError`` for a wrong name or unequal lengths."""
        specs = {spec.name: spec for spec in inputs}
        columns = _renamed(columns, inputs)
        if unknown := [name for name in columns if name not in specs]:
            expected = ", ".join(repr(name) for name in specs)
            called = f", labels are called {LABEL!r}" if unknown[0].lower() in _ALMOST_LABEL else ""
            raise FeedError(f"{title} holds the array {unknown[0]!r}; the model's inputs are {expected}{called}")
        per_feed = {name: _rows_per_feed(title, specs[name], column) for name, column in columns.items()}
        counts = {name: columns[name].shape[0] // (rows or 1) for name, rows in per_feed.items()}
        if len(set(counts.values())) > 1:
            raise FeedError(f"{title}: unequal numbers of samples, {counts}")
        return cls(title, columns, per_feed, min(counts.values(), default=0), labels, notes)

    def chosen(self, samples: int | None) -> Sequence[int] | None:
        """Evenly spread, because stored data is often sorted by class."""
        if samples is None or samples >= self.count:
            return None
        return tuple(int(index) for index in np.arange(samples) * self.count // samples)

    def stream(self, chosen: Sequence[int] | None) -> Iterator[Feed]:
        """Feeds at the chosen positions, in order."""
        wanted = None if chosen is None else frozenset(chosen)
        rows = {name: column.rows() for name, column in self.columns.items()}
        for index in range(self.count):
            parts = {name: [next(stream) for _ in range(self.per_feed[name] or 1)] for name, stream in rows.items()}
            if wanted is None or index in wanted:
                yield {name: _joined(part, self.per_feed[name]) for name, part in parts.items()}


def _renamed(columns: Mapping[str, Column], inputs: tuple[TensorSpec, ...]) -> Mapping[str, Column]:
    """The only array for the only input, whatever it is called."""
    plain = [spec.name for spec in inputs if not spec.is_state]
    if len(columns) == len(plain) == 1:
        return {plain[0]: next(iter(columns.values()))}
    return columns


def _joined(rows: list[Array], per_feed: int) -> Array:
    return np.asarray(rows[0]) if per_feed == 0 else np.stack(rows)


def _rows_per_feed(title: str, spec: TensorSpec, column: Column) -> int:
    """Rows that make one feed; 0 where a row is a whole feed already."""
    rank = len(spec.source_shape)
    if len(column.shape) == rank + 1:
        return 0
    if len(column.shape) != rank or rank == 0:
        want = "×".join(str(dim) for dim in spec.source_shape) or "()"
        got = "×".join(str(size) for size in column.shape) or "()"
        single = len(column.shape) == rank - 1 and rank > 1
        hint = "; one sample alone needs an axis in front: array[None]" if single else ""
        raise FeedError(f"{title}: {spec.name!r} has the shape {got}; samples of the model's input are {want}{hint}")
    batch = spec.source_shape[0]
    return batch if isinstance(batch, int) and batch > 0 else 1


@dataclass(frozen=True, slots=True)
class Items:
    """Whatever a function or an iterable yields: mappings by name, or bare arrays in the inputs' order."""

    description: str
    make: Callable[[], object]
    inputs: tuple[TensorSpec, ...]
    notes: tuple[str, ...] = ()

    @property
    def labels(self) -> Array | None:
        """The items' own ``label`` entries, where the first item has one."""
        found = [dict(item)[LABEL] for item in self._items() if isinstance(item, Mapping) and LABEL in item]
        if not found:
            return None
        labels = _array(f"{self.description}: {LABEL}", found)
        if labels.shape[1:2] not in ((), (1,)):
            raise FeedError(f"{self.description}: items with {labels.shape[1]} labels; expected one label for each")
        return labels.reshape(len(found), *labels.shape[2:])

    def chosen(self, samples: int | None) -> Sequence[int] | None:
        """The first ones: the length of a stream is not known."""
        return None if samples is None else range(samples)

    def stream(self, chosen: Sequence[int] | None) -> Iterator[Feed]:
        """Feeds in the given order."""
        for index, item in enumerate(self._items()):
            if chosen is not None and index >= len(chosen):
                return
            yield self._feed(item)

    def _items(self) -> Iterator[object]:
        try:
            made = self.make()
            if isinstance(made, Mapping) or not isinstance(made, Iterable):
                raise FeedError(f"{self.description} returned {type(made).__name__}; expected an iterable of samples")
            yield from made
        except ConvertKitError:
            raise
        except Exception as error:  # the border to the user's own function
            raise FeedError(f"{self.description} raised {told(error)}") from error

    def _feed(self, item: object) -> Feed:
        if isinstance(item, Mapping):
            known = {str(name): value for name, value in item.items() if name != LABEL}
            return {name: _array(f"{self.description}: {name}", value) for name, value in known.items()}
        values: Sequence[object] = item if isinstance(item, tuple | list) else (item,)
        names = [spec.name for spec in self.inputs if not spec.is_state]
        if len(values) != len(names):
            raise FeedError(f"{self.description} yields {len(values)} arrays; the model has {len(names)} inputs")
        return {name: _array(f"{self.description}: {name}", value) for name, value in zip(names, values, strict=True)}


def _array(title: str, value: object) -> Array:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise FeedError(f"{title} makes no array: {error}") from error


def stored(path: Path, member: str | None) -> Column:
    """The rows of an ``.npy``, or of a member of an ``.npz``."""
    with _npy_stream(path, member) as stream:
        shape, fortran, dtype = _npy_header(stream, path)
        title = f"{path}: {member}" if member else str(path)
        if dtype.hasobject:
            raise FeedError(f"{title} holds Python objects; expected numbers")
        if not shape:
            raise FeedError(f"{title} is a single number; expected samples along the first axis")
        if not fortran:
            return Stored(path, member, shape, dtype)
        data = np.frombuffer(stream.read(), dtype)
    return Whole(data.reshape(shape, order="F"))


@contextmanager
def _npy_stream(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    with reading(path):
        if member is None:
            with path.open("rb") as stream:
                yield stream
        else:
            with zipfile.ZipFile(path) as archive, closing(archive.open(member + ".npy")) as stream:
                yield stream


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What goes wrong while a file is read as a sentence about the file."""
    try:
        yield
    except _BROKEN as error:
        raise FeedError(f"{path} is broken: {error}") from error


def _npy_header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except NO_ARRAY as error:
        raise FeedError(f"{path} holds no NumPy array: {error}") from error
    return tuple(shape), bool(fortran), dtype

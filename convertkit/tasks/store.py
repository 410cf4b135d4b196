"""Where results are kept: in memory for one run, or in a cache folder that several runs share."""

from __future__ import annotations

import errno
import itertools
import shutil
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from convertkit.tasks import codec, entries
from convertkit.tasks.cache import CacheFolder
from convertkit.tasks.entries import Entry
from convertkit.tasks.leases import Lease

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})
"""Errors of a disk that takes no more; a run goes on without it."""


class Store(ABC):
    """Results by key.  May be shared by threads; to be closed, or used in a ``with`` statement."""

    is_shared = False
    """Whether other runs use what is kept."""

    @staticmethod
    def temporary(path: Path) -> Store:
        """One run's own: results stay in memory, and files in folders below ``path``."""
        return _Temporary(path)

    @staticmethod
    def at(
        path: Path, limit_bytes: int, *, spare: Path | None = None, warn: Callable[[str], None] = lambda warning: None
    ) -> Store:
        """The cache in the folder ``path``, of about ``limit_bytes``; several processes may use it at once.

        Where it cannot be written, ``warn`` is told once, it is only read from then on, and work happens below
        ``spare``, else in a temporary folder of the system's.  Raises ``UsageError`` where the folder holds other
        things.
        """
        return _Cache(path, limit_bytes, spare, warn)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def contains(self, key: str) -> bool:
        """Whether there is such a result, undamaged; it stays until the store is closed."""

    @abstractmethod
    def lookup(self, key: str, kind: type[Any]) -> Any:
        """The result of class ``kind``; None where there is none."""

    @abstractmethod
    def holds(self, key: str) -> bool:
        """Whether :meth:`contains` has found the result, or :meth:`commit` has kept it, in this run."""

    @abstractmethod
    def folder(self, key: str) -> Path:
        """A new, empty folder to work in; it goes when the store is closed."""

    @abstractmethod
    def commit(self, key: str, folder: Path, value: Any, kind: type[Any], title: str = "") -> Any:
        """Keep a result, whose files are in ``folder``; returns it as it is now: its files may have moved.

        Raises ``TypeError`` where it holds what a store cannot keep.
        """

    @abstractmethod
    def gives_up(self, error: BaseException) -> bool:
        """Whether a task that failed so would fare better now: its folder was on a full disk, the next is not."""

    def drop(self, folder: Path) -> None:
        """Remove a folder that is not needed any longer."""
        shutil.rmtree(folder, ignore_errors=True)

    def entries(self) -> list[Entry]:
        """What is kept for other runs, the least recently used first."""
        return []

    def prune(self, *, to_bytes: int | None = None, older_s: float | None = None) -> list[Entry]:
        """Remove entries that no living run uses: those not used for ``older_s``, then the least recently used until
        ``to_bytes`` are left.  Returns what was removed.
        """
        return []

    @abstractmethod
    def close(self) -> None:
        """Remove what only this run needed."""


class _Temporary(Store):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count(1)

    def contains(self, key: str) -> bool:
        return False

    def lookup(self, key: str, kind: type[Any]) -> Any:
        return None

    def holds(self, key: str) -> bool:
        return False

    def folder(self, key: str) -> Path:
        folder = self._path / str(next(self._numbers))
        folder.mkdir(parents=True)
        return folder

    def commit(self, key: str, folder: Path, value: Any, kind: type[Any], title: str = "") -> Any:
        return value

    def gives_up(self, error: BaseException) -> bool:
        return False

    def close(self) -> None:
        for number in range(1, next(self._numbers)):
            self.drop(self._path / str(number))


class _Unkeepable(Exception):
    """A result that refers to files that go with this run."""


class _Cache(Store):
    is_shared = True

    def __init__(self, path: Path, limit_bytes: int, spare: Path | None, warn: Callable[[str], None]) -> None:
        self._cache = CacheFolder(path.expanduser().resolve())
        self._limit = limit_bytes
        self._threshold = limit_bytes
        self._size: int | None = None
        self._given_spare = spare
        self._spare: Path | None = None
        self._warn = warn
        self._guard = threading.RLock()
        self._numbers = itertools.count(1)
        self._records: dict[str, Mapping[str, Any]] = {}
        self._writes = True
        try:
            self._cache.open()
        except OSError as error:
            self._give_up(error)

    def contains(self, key: str) -> bool:
        record = self._cache.take(key)
        if record is not None:
            self._records[key] = record
        return record is not None

    def lookup(self, key: str, kind: type[Any]) -> Any:
        if key not in self._records and not self.contains(key):
            return None
        place = self._cache.place(key)
        try:
            return entries.value(place, self._records[key], kind, lambda said: self._path(said, place))
        except (OSError, ValueError, LookupError, TypeError):  # removed by hand meanwhile, or refers to what is gone
            del self._records[key]
            return None

    def holds(self, key: str) -> bool:
        return key in self._records

    def folder(self, key: str) -> Path:
        name, lease = str(next(self._numbers)), self._lease()
        if lease is not None:
            try:
                (lease.work / name).mkdir()
            except OSError as error:
                self._give_up(error)
            else:
                return lease.work / name
        folder = self._working_elsewhere() / name
        folder.mkdir(parents=True)
        return folder

    def commit(self, key: str, folder: Path, value: Any, kind: type[Any], title: str = "") -> Any:
        lease = self._lease()
        if lease is None or value is None or not folder.is_relative_to(lease.work):
            return value
        try:
            said, arrays = codec.encoded(value, kind, lambda path: self._placed(path, folder))
        except _Unkeepable:
            return value
        draft = lease.work / f"draft-{next(self._numbers)}"
        try:
            draft.mkdir()
            folder.rename(draft / entries.FILES)
            record = entries.write(draft, title, said, arrays)
            place = self._cache.put(draft, key, lease)
            self._records[key] = record
            self._bound(record)
        except (OSError, ValueError) as error:  # ValueError: there are links among the files
            if (draft / entries.FILES).exists():
                (draft / entries.FILES).rename(folder)
            if isinstance(error, OSError):
                self._give_up(error)
            return value
        return codec.decoded(said, arrays, kind, lambda said: self._path(said, place))

    def gives_up(self, error: BaseException) -> bool:
        seen: BaseException | None = error
        while seen is not None and not (isinstance(seen, OSError) and seen.errno in _FULL):
            seen = seen.__cause__
        if not self._writes or not isinstance(seen, OSError):
            return False
        self._give_up(seen)
        return True

    def entries(self) -> list[Entry]:
        return self._cache.listed()

    def prune(self, *, to_bytes: int | None = None, older_s: float | None = None) -> list[Entry]:
        return self._cache.prune(to_bytes, older_s)

    def close(self) -> None:
        self._cache.close()
        if self._spare is not None:
            shutil.rmtree(self._spare, ignore_errors=True)

    def _bound(self, record: Mapping[str, Any]) -> None:
        """Count what was added, and make room where that is too much."""
        with self._guard:
            if self._size is None:
                self._size = sum(each.size_bytes for each in self._cache.listed())
            else:
                self._size += entries.size(record)
            if self._size > self._threshold:
                self._cache.prune(self._limit, None)
                self._size = sum(each.size_bytes for each in self._cache.listed())
                self._threshold = max(self._limit, self._size + self._limit // 20)

    def _placed(self, path: Path, folder: Path) -> codec.Json:
        """A path as an entry holds it: in its own files, in another entry's, or as it is."""
        results = self._cache.root / "results"
        if path.is_relative_to(folder):
            return ["own", path.relative_to(folder).as_posix()]
        if path.is_relative_to(results):
            _, key, *rest = path.relative_to(results).parts
            return ["entry", key, *rest]
        if path.is_relative_to(self._cache.root) or (self._spare is not None and path.is_relative_to(self._spare)):
            raise _Unkeepable
        return ["elsewhere", str(path)]

    def _path(self, said: codec.Json, place: Path) -> Path:
        """The path again; ``LookupError`` where another entry that it lies in is not there any longer."""
        where, *parts = said
        if where == "own":
            return Path(place, entries.FILES, *parts)
        if where == "elsewhere":
            return Path(parts[0])
        if parts[0] not in self._records and not self.contains(parts[0]):
            raise LookupError(parts[0])
        return Path(self._cache.place(parts[0]), *parts[1:])

    def _lease(self) -> Lease | None:
        """The lease where this run still writes."""
        return self._cache.lease if self._writes else None

    def _working_elsewhere(self) -> Path:
        with self._guard:
            if self._spare is None:
                self._spare = Path(tempfile.mkdtemp(prefix="convertkit-", dir=self._given_spare)).resolve()
            return self._spare

    def _give_up(self, error: OSError) -> None:
        """Only read from now on, and say so once; what lies in the working folder already stays until the end."""
        with self._guard:
            if not self._writes:
                return
            self._writes = False
        self._warn(f"the cache {self._cache.root} cannot be written: {error.strerror}; going on without it")

"""A cache folder on disk, shared by the runs of several processes: which entries there are, and who may remove them.

CACHEDIR.TAG    says that the folder is ours (https://bford.info/cachedir/)
lock, leases/   who uses what (convertkit.tasks.leases)
results/        one folder for each entry (convertkit.tasks.entries)
tmp/            one folder for each living run; entries are made there and renamed into place

The system gives back the locks of a killed run, and the next run removes what that has left.
"""

from __future__ import annotations

import errno
import itertools
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from convertkit.errors import UsageError
from convertkit.tasks import entries, leases
from convertkit.tasks.entries import Entry

_TAG = "CACHEDIR.TAG"
_TAGGED = """Signature: 8a477f597d28d172789f06886806bc55
# Results of convertkit, which can make them again: `convertkit cache prune` removes them.
"""


class CacheFolder:
    """The cache below ``root``, for one run.

    ``lease`` is None until :meth:`open` has made the folder writable for this run; without it entries are only read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lease: leases.Lease | None = None
        self._numbers = itertools.count(1)

    def exists(self) -> bool:
        """Whether there is such a folder, and it is one of ours."""
        return _is_ours(self.root)

    def open(self) -> None:
        """Begin a run, and remove what killed runs have left.

        Raises ``UsageError`` where the folder holds other things, ``OSError`` where it cannot be written.
        """
        _claim(self.root)
        self.lease = leases.Lease(self.root)
        with self._removing(self.lease) as away:
            leases.take_left(self.root, away)

    def close(self) -> None:
        """End the run; its working folder goes."""
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.close()

    def place(self, key: str) -> Path:
        """Where the entry with this key lies."""
        return self.root / "results" / key[:2] / key

    def take(self, key: str) -> Mapping[str, Any] | None:
        """The verified record of an entry, which stays until this run ends; None where there is none.

        A damaged entry is removed.
        """
        place = self.place(key)
        with self._shared():
            if not place.is_dir():
                return None
            if self.lease is not None:
                self.lease.use(key)
        try:
            record = entries.verified(place)
        except (OSError, ValueError):  # a file that is gone or cannot be read; a link
            record = None
        if record is None:
            self._remove(place)
            return None
        with suppress(OSError):  # a cache that may only be read
            entries.touch(place)
        return record

    def put(self, draft: Path, key: str, lease: leases.Lease) -> Path:
        """Move a complete entry into its place, and say where; of two runs that make the same, one's stays."""
        place = self.place(key)
        place.parent.mkdir(exist_ok=True)
        while True:
            with leases.shared(self.root):
                lease.use(key)
                try:
                    draft.rename(place)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
                else:
                    entries.flush(place.parent)
                    return place
            if self.take(key) is not None:
                shutil.rmtree(draft, ignore_errors=True)
                return place

    def listed(self) -> list[Entry]:
        """All entries, the least recently used first."""
        return entries.listed(self.root)

    def prune(self, to_bytes: int | None, older_s: float | None) -> list[Entry]:
        """Remove entries that no living run uses; those that went."""
        if self.lease is None:
            return []
        with self._removing(self.lease) as away:
            found, used = entries.listed(self.root), leases.in_use(self.root)
            gone = _spent(found, used, to_bytes, older_s)
            for each in gone:
                self.place(each.key).rename(away / each.key)
        return gone

    def _remove(self, place: Path) -> None:
        if self.lease is None:
            return
        with self._removing(self.lease) as away, suppress(FileNotFoundError):  # another run was faster
            place.rename(away / place.name)

    @contextmanager
    def _removing(self, lease: leases.Lease) -> Iterator[Path]:
        """A folder into which entries may be moved by the block, under the lock; it is removed after that."""
        away = lease.work / f"away-{next(self._numbers)}"
        away.mkdir()
        with leases.exclusive(self.root):
            yield away
        shutil.rmtree(away, ignore_errors=True)

    def _shared(self) -> AbstractContextManager[None]:
        return nullcontext() if self.lease is None else leases.shared(self.root)


def _spent(
    found: list[Entry], used: frozenset[str], to_bytes: int | None, older_s: float | None, now: float | None = None
) -> list[Entry]:
    """Which of ``found``, the least recently used first, go."""
    now = time.time() if now is None else now
    left = sum(each.size_bytes for each in found)
    gone = []
    for each in found:
        old = older_s is not None and now - each.used > older_s
        if each.key not in used and (old or (to_bytes is not None and left > to_bytes)):
            gone.append(each)
            left -= each.size_bytes
    return gone


def _claim(root: Path) -> None:
    """Make the folder and mark it as ours; ``UsageError`` where it is a file or holds other things."""
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file; a cache is a folder")
    root.mkdir(parents=True, exist_ok=True)
    tag = root / _TAG
    if not tag.exists():
        if any(root.iterdir()) and not tag.exists():  # another run may just have written it
            raise UsageError(f"{root} is not empty and not a cache of convertkit; name an empty or a new folder")
        tag.write_text(_TAGGED, encoding="ascii")
    elif not _is_ours(root):
        raise UsageError(f"{root} is the cache of another tool; name an empty or a new folder")


def _is_ours(root: Path) -> bool:
    tag = root / _TAG
    return tag.is_file() and _TAGGED.startswith(tag.read_text(encoding="utf-8", errors="replace"))  # half written, too

"""Who uses a cache folder now: each run holds a locked lease, which names the entries that must stay.

``lock`` is held shared while a run makes itself known or takes an entry, and exclusively while entries are removed or
what killed runs have left is swept.  The system lets go of the locks of a killed process.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Lease:
    """One run's part of the cache below ``root``: its working folder, and the keys of the entries it uses.

    Opening it makes what is missing below ``root`` and raises ``OSError`` where that cannot be written.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._guard = threading.Lock()
        self._used: set[str] = set()
        for name in ("leases", "results", "tmp"):
            (root / name).mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self.work = root / "tmp" / name
        self._path = root / "leases" / name
        with shared(root):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self.work.mkdir()

    def use(self, key: str) -> None:
        """Let the entry stay until this lease is closed; to be called under :func:`shared`."""
        with self._guard:
            if key not in self._used:
                os.write(self._file, f"{key}\n".encode())
                self._used.add(key)

    def close(self) -> None:
        """Give everything back; the working folder goes."""
        shutil.rmtree(self.work, ignore_errors=True)
        self._path.unlink(missing_ok=True)
        os.close(self._file)


@contextmanager
def shared(root: Path) -> Iterator[None]:
    """While no other process removes entries."""
    with _locked(root, fcntl.LOCK_SH):
        yield


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """While no other process takes an entry or begins a run."""
    with _locked(root, fcntl.LOCK_EX):
        yield


def in_use(root: Path) -> frozenset[str]:
    """The keys of all entries that a living run uses; under :func:`exclusive`."""
    return frozenset(key for lease in _leases(root) if not _is_dead(lease) for key in _keys(lease))


def take_left(root: Path, into: Path) -> bool:
    """Move what killed runs have left to ``into``, under :func:`exclusive`; whether there was anything."""
    leases = _leases(root)
    dead = [lease for lease in leases if _is_dead(lease)]
    alive = {lease.name for lease in leases} - {lease.name for lease in dead}
    left = [folder for folder in sorted((root / "tmp").iterdir()) if folder.name not in alive]
    for folder in left:
        with suppress(FileNotFoundError):  # its run has just ended and removed it
            folder.rename(into / f"left-{folder.name}")
    for lease in dead:
        lease.unlink(missing_ok=True)
    return bool(left or dead)


def _leases(root: Path) -> list[Path]:
    folder = root / "leases"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_dead(lease: Path) -> bool:
    """Whether nobody holds a lease; none is only half made under :func:`exclusive`."""
    try:
        file = os.open(lease, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


def _keys(lease: Path) -> list[str]:
    try:
        return lease.read_text(encoding="ascii").split()
    except FileNotFoundError:
        return []


@contextmanager
def _locked(root: Path, how: int) -> Iterator[None]:
    file = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)

"""Output folders that are either absent or complete.

Work happens in a temporary sibling that is renamed into place at the end.  Each run holds a lock on
its own sibling, so that the next run can tell leftovers of a killed one from work in progress.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from convertkit.errors import DeliveryError

_MARK = ".convertkit-"
_YOUNG_S = 5.0
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit is reached",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOTDIR: "a part of the path is no folder",
    errno.EEXIST: "a part of the path is no folder",
    errno.ENAMETOOLONG: "the name is too long",
}


def check_free(folder: Path, *, force: bool) -> None:
    """Raise ``DeliveryError`` where ``folder`` may not be (over)written; called before any work."""
    with _disk_errors(folder):
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise DeliveryError(f"{folder} exists and is no folder")
        if folder.is_dir() and any(folder.iterdir()) and not force:
            raise DeliveryError(f"{folder} exists and is not empty; choose another --output or add --force")


@contextmanager
def workspace(folder: Path) -> Iterator[Path]:
    """A locked temporary sibling of ``folder`` on the same file system; removed at the end.

    Operating-system errors inside (disk full, no permission) become ``DeliveryError``.
    """
    with _disk_errors(folder), _parents(folder):
        _remove_stale(folder)
        place = _sibling(folder)
        lock = os.open(place, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)


def _sibling(folder: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}{_MARK}", dir=folder.parent))
    except FileNotFoundError as error:  # /proc and the like say this for "nobody may write here"
        raise DeliveryError(f"{folder} cannot be written: nothing can be made in {folder.parent}") from error


def deliver(finished: Path, folder: Path, *, force: bool) -> None:
    """Move the complete ``finished`` folder to ``folder`` in one atomic step.

    With ``force`` an existing folder is exchanged for it; what it held ends up in ``finished``.
    """
    finished.chmod(0o755)
    with _disk_errors(folder):
        for file in finished.rglob("*"):
            _flush(file)
        if force and folder.is_dir() and any(folder.iterdir()):
            _exchange(finished, folder)
            return
        try:
            finished.rename(folder)  # also replaces an empty folder
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise DeliveryError(f"{folder} was filled by another run meanwhile; it stays as it is") from error
            raise


@contextmanager
def _parents(folder: Path) -> Iterator[None]:
    """Make the folders above ``folder``; those made here that are empty at the end go again."""
    made = [parent for parent in folder.parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for parent in made:
            if not any(parent.iterdir()):
                parent.rmdir()


def _flush(file: Path) -> None:
    if file.is_file():
        with file.open("rb") as stream:
            os.fsync(stream.fileno())


def _exchange(new: Path, old: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is not None:
        done = renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE)
        if done == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))
    # Where the file system cannot exchange, the folder is absent for an instant, never half-written.
    aside = new.with_name(new.name + "-old")
    old.rename(aside)
    new.rename(old)
    aside.rename(new)


def _remove_stale(folder: Path) -> None:
    for place in folder.parent.glob(f".{folder.name}{_MARK}*"):
        try:
            lock = os.open(place, os.O_RDONLY)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - place.stat().st_mtime > _YOUNG_S:
                shutil.rmtree(place, ignore_errors=True)
        except OSError:
            continue  # a living run holds it, or has just moved it into place
        finally:
            os.close(lock)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        raise DeliveryError(f"{folder} cannot be written: {_REASONS[error.errno]}") from error

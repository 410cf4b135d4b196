"""Errors of the operating system as sentences, and the exchange of two folders."""

from __future__ import annotations

import ctypes
import errno
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from convertkit.errors import DeliveryError

_FLUSHES = 16
"""So many files are written to the disk at a time: file systems do that together."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit is reached",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.EEXIST: "a part of the path is not a folder",
    errno.ENAMETOOLONG: "the name is too long",
    errno.ELOOP: "the path is a circle of links",
}
CANNOT_EXCHANGE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY})
"""What ``renameat2`` says where the file system, an overlay or a mount does not let two folders change places."""


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Errors of the disk inside as ``DeliveryError`` about ``folder``; others stay as they are."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REASONS:
            raise
        raise DeliveryError(f"{folder} cannot be written: {_REASONS[error.errno]}") from error


@contextmanager
def parents_of(folder: Path) -> Iterator[None]:
    """Make the folders above ``folder``; those made here that are empty at the end go again."""
    made = [parent for parent in folder.parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        for parent in made:
            if not any(parent.iterdir()):
                parent.rmdir()


def exchanged(new: Path, old: Path) -> bool:
    """Let two folders change places in one step; False, with nothing changed, where that cannot be done here."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE) == 0:
        return True
    if ctypes.get_errno() in CANNOT_EXCHANGE:
        return False
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))


def flush_below(folder: Path) -> None:
    """Wait until every file below ``folder`` is on the disk."""
    with ThreadPoolExecutor(_FLUSHES) as threads:
        deque(threads.map(flush, (file for file in folder.rglob("*") if file.is_file())), 0)


def flush(file: Path) -> None:
    """Wait until the file is on the disk."""
    opened = os.open(file, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)

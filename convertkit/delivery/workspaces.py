"""The temporary folder of one run: locked while it lives, removed by the next run where it was killed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from convertkit.delivery.disk import disk_errors, parents_of
from convertkit.delivery.journal import undo
from convertkit.delivery.ownership import MARK
from convertkit.delivery.places import Place, place_of
from convertkit.errors import DeliveryError
from convertkit.stopping import whole

_MADE = re.compile(rf"\..*{re.escape(MARK)}[a-z0-9_]{{8}}|{re.escape(MARK)}[a-z0-9_]{{8}}")
"""Names that :func:`tempfile.mkdtemp` makes of our prefixes."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A locked folder at ``path`` on the file system of the output."""

    path: Path


@contextmanager
def workspace(folder: Path) -> Iterator[Workspace]:
    """A workspace for an export into ``folder``; removed at the end.

    Operating-system errors inside (disk full, no permission) become ``DeliveryError``.
    """
    with disk_errors(folder), parents_of(folder), ExitStack() as stack:
        place = place_of(folder)
        remove_left(place)
        yield Workspace(_locked(place, stack))


def remove_left(place: Place) -> None:
    """Remove the workspaces of killed runs, in and beside the folder; what they had half delivered is undone."""
    for parent in dict.fromkeys((place.real, place.real.parent)):
        try:
            names = sorted(os.listdir(parent))
        except OSError:
            continue  # there is no folder yet, or it may not be read: then nothing was left in it by us
        for name in names:
            if _MADE.fullmatch(name) or name.startswith(f".{place.real.name}{MARK}"):
                _remove_unlocked(parent / name)


def _remove_unlocked(path: Path) -> None:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if undo(path):
            shutil.rmtree(path, ignore_errors=True)
    except BlockingIOError:
        return  # a living run holds it
    finally:
        os.close(lock)


@whole
def _locked(place: Place, stack: ExitStack) -> Path:
    """A new folder, locked, that goes at the end of ``stack``.

    It is another one where a run that cleans up took it for a leftover before it was locked.
    """
    while True:
        path = _made(place)
        try:
            lock = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            stack.callback(_removed, path, lock)
            return path
        os.close(lock)


@whole
def _removed(path: Path, lock: int) -> None:
    """Undo what is half delivered, and end the workspace."""
    if undo(path):
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def _made(place: Place) -> Path:
    prefix = MARK if place.inside else f".{place.real.name}{MARK}"
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=place.beside))
    except FileNotFoundError as error:  # /proc and the like say this for "nobody may write here"
        raise DeliveryError(f"{place.folder} cannot be written: nothing can be made in {place.beside}") from error

"""Whether an output folder may be written, and the last step of an export: moving it into place."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from convertkit.delivery.disk import disk_errors, exchanged, flush_below, parents_of
from convertkit.delivery.journal import move_in
from convertkit.delivery.ownership import FAILED, MARK, check_apart, check_ours, check_precious, list_kept, strangers
from convertkit.delivery.places import Place, place_of
from convertkit.delivery.workspaces import Workspace, remove_left, workspace
from convertkit.errors import DeliveryError


def check_free(folder: Path, *, force: bool, precious: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise ``DeliveryError`` where ``folder`` may not be (over)written; called before any work.

    With ``force`` it may hold what an earlier export wrote and nothing else.  ``precious`` maps the paths of what
    this export reads, none of which it may hold, to the words for them.
    """
    with disk_errors(folder):
        place = place_of(folder)
        remove_left(place)
        check_apart(folder, precious)
        if not place.real.is_dir() or not _entries(place.real):
            return
        check_precious(folder, precious)
        check_ours(place.real, folder)
        if not force and _results(place.real):
            raise DeliveryError(f"{folder} exists and is not empty; choose another --output or add --force")


def deliver(finished: Path, folder: Path, work: Workspace, *, force: bool) -> None:
    """Move the complete ``finished`` folder, which is below ``work``, to ``folder``: whole or not at all.

    One rename does it where the folder can be replaced.  With ``force`` what an earlier export wrote there is
    exchanged for it and goes with the workspace.
    """
    finished.chmod(0o755)
    with disk_errors(folder), parents_of(folder):
        place = place_of(folder)
        if _device(place.beside) != _device(work.path):
            _deliver_elsewhere(finished, folder, force=force)
            return
        flush_below(finished)
        if place.real.is_dir() and _entries(place.real):
            if not force and _results(place.real):
                raise _filled(folder)
            check_ours(place.real, folder)
            if not place.inside and _exchanged(finished, place):
                return
        elif not place.inside and _renamed(finished, place):
            return
        _moved_in(finished, place, work, force=force)


def leave_failed(
    finished: Path, folder: Path, work: Workspace, precious: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """Put the report of a failed export into ``<folder>.failed``, or ``<folder>/failed`` where that cannot be; where.

    It replaces an earlier one, unless that holds something else or ``precious``, too: then it gets a number.
    """
    list_kept(finished)
    inside = place_of(folder).inside
    for number in itertools.count(1):
        name = FAILED if number == 1 else f"{FAILED}-{number}"
        place = folder / name if inside else folder.with_name(f"{folder.name}.{name}")
        if _may_replace(place, precious):
            break
    deliver(finished, place, work, force=True)
    return place


def _may_replace(folder: Path, precious: Mapping[str, str]) -> bool:
    try:
        check_free(folder, force=True, precious=precious)
    except DeliveryError:
        return not folder.exists()  # it cannot be written at all, which is told when that is tried
    return True


def _renamed(finished: Path, place: Place) -> bool:
    """Rename to a folder that is absent or empty; False where that has to be done entry by entry."""
    try:
        finished.rename(place.real)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise _filled(place.folder) from error
        if error.errno in (errno.EXDEV, errno.EBUSY) and place.real.is_dir():
            return False
        raise
    return True


def _exchanged(finished: Path, place: Place) -> bool:
    """Let both folders change places; False where the file system cannot."""
    if not exchanged(finished, place.real):
        return False
    try:
        check_ours(finished, place.folder)  # somebody may have put a file there meanwhile
    except DeliveryError:
        exchanged(finished, place.real)
        raise
    return True


def _moved_in(finished: Path, place: Place, work: Workspace, *, force: bool) -> None:
    with _only_one(place.real):
        if not force and _results(place.real):
            raise _filled(place.folder)
        move_in(finished, place.real, work.path)


def _deliver_elsewhere(finished: Path, folder: Path, *, force: bool) -> None:
    """Deliver a copy: the folder is on another file system than the workspace."""
    with workspace(folder) as there:
        copy = there.path / "finished"
        shutil.copytree(finished, copy, symlinks=True)
        deliver(copy, folder, there, force=force)


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Of several runs that deliver into the same folder, one at a time."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if not entry.name.startswith(MARK)]


def _results(folder: Path) -> list[Path]:
    """What lies in a folder but for workspaces and what failed exports have left in it."""
    return [entry for entry in _entries(folder) if not _is_failed(entry)]


def _is_failed(entry: Path) -> bool:
    return entry.name == FAILED and entry.is_dir() and not strangers(entry)


def _device(folder: Path) -> int:
    return folder.stat().st_dev


def _filled(folder: Path) -> DeliveryError:
    return DeliveryError(f"{folder} was filled by another run meanwhile; it stays as it is")

"""One result on disk: written whole or not at all, and believed only where every byte is what was written.

results/ab/abcd…/entry.json   the first line is the sha256 of the rest: the value, and size and sha256 of each file
results/ab/abcd…/arrays.npz   the value's arrays, without pickle; absent where it has none
results/ab/abcd…/files/       the folder in which the task worked

Nothing of it is executed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convertkit.artifact import sha256_of
from convertkit.tasks import codec

if TYPE_CHECKING:
    import numpy.typing as npt

FILES = "files"
_RECORD = "entry.json"
_ARRAYS = "arrays.npz"


@dataclass(frozen=True, slots=True)
class Entry:
    """A result of a cache, as it is listed: ``used`` is when it was used last, in seconds since 1970."""

    key: str
    title: str
    size_bytes: int
    used: float


def write(
    folder: Path, title: str, json_value: codec.Json, arrays: Mapping[str, npt.NDArray[Any]]
) -> Mapping[str, Any]:
    """Complete an entry: ``folder`` holds ``files/`` and is not in its place yet.  All of it is on the disk then.

    Returns its record.  Raises ``ValueError`` where there are links among the files.
    """
    if arrays:
        _write_arrays(folder / _ARRAYS, arrays)
    held = {place: [os.path.getsize(folder / place), sha256_of(folder / place)] for place in _files(folder)}
    record = {"title": title, "value": json_value, "files": held}
    text = json.dumps(record, separators=(",", ":"))
    (folder / _RECORD).write_text(f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}", encoding="utf-8")
    for above, _, names in os.walk(folder):
        for name in names:
            flush(Path(above, name))
        flush(Path(above))
    return record


def verified(folder: Path) -> Mapping[str, Any] | None:
    """What ``entry.json`` says, where every file is there and as it was written; else None."""
    record = _record(folder)
    if record is None or set(record["files"]) != set(_files(folder)) - {_RECORD}:
        return None
    for place, (size, digest) in record["files"].items():
        if os.path.getsize(folder / place) != size or sha256_of(folder / place) != digest:
            return None
    return record


def value(folder: Path, record: Mapping[str, Any], kind: type[Any], path: Callable[[codec.Json], Path]) -> Any:
    """The value of a verified entry."""
    if not (folder / _ARRAYS).exists():
        return codec.decoded(record["value"], {}, kind, path)
    import numpy as np

    with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
        return codec.decoded(record["value"], arrays, kind, path)


def size(record: Mapping[str, Any]) -> int:
    """Bytes of an entry's files."""
    return sum(size for size, _ in record["files"].values())


def listed(root: Path) -> list[Entry]:
    """All entries, the least recently used first; those that go while they are listed are left out."""
    found = [_entry(folder) for folder in (root / "results").glob("??/*")]
    return sorted((each for each in found if each is not None), key=lambda each: each.used)


def touch(folder: Path) -> None:
    """Note that the entry is used now."""
    now = time.time()
    os.utime(folder / _RECORD, (now, now))


def flush(path: Path) -> None:
    """Wait until a file or a folder is on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _entry(folder: Path) -> Entry | None:
    try:
        size = _size(folder)
        used = os.path.getmtime(folder / _RECORD)
    except (OSError, ValueError):
        return None
    record = _record(folder)
    return Entry(folder.name, "damaged" if record is None else str(record["title"]), size, used)


def _write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    from numpy.lib import format as npy

    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # without a time, so that equal arrays are equal files
            with archive.open(member, "w", force_zip64=True) as stream:
                npy.write_array(stream, array, allow_pickle=False)


def _size(folder: Path) -> int:
    return sum(os.path.getsize(folder / place) for place in _files(folder))


def _record(folder: Path) -> Mapping[str, Any] | None:
    try:
        digest, _, text = (folder / _RECORD).read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    record: Mapping[str, Any] = json.loads(text)
    return record


def _files(folder: Path) -> list[str]:
    """Every file of an entry by its place in it; ``ValueError`` for a link, which would lead out of it."""
    found = []
    for above, below, names in os.walk(folder):
        for name in (*below, *names):
            if os.path.islink(os.path.join(above, name)):
                raise ValueError(f"{name} is a link")
        found += [os.path.relpath(os.path.join(above, name), folder) for name in names]
    return found

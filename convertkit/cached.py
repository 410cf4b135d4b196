"""What ``convertkit cache`` does: say what a cache holds, and remove what is not needed any longer."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from convertkit.errors import UsageError
from convertkit.tasks.cache import CacheFolder
from convertkit.tasks.entries import Entry

VARIABLE = "CONVERTKIT_CACHE"
_DAY_S = 24 * 60 * 60
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def folder(named: str | None) -> CacheFolder:
    """The cache that ``--cache`` or the environment names; ``UsageError`` where there is none."""
    place = named or os.environ.get(VARIABLE)
    if not place:
        raise UsageError(f"name the cache with --cache DIR, or in {VARIABLE}")
    found = CacheFolder(Path(place).expanduser().resolve())
    if not found.exists():
        raise UsageError(f"{place} is not a cache of convertkit")
    return found


def pruned(cache: CacheFolder, older_days: float | None, to: str | None) -> list[Entry]:
    """Remove what was not used for so many days, and the least recently used beyond a size; what went.

    What killed runs have left goes, too; what a living run uses stays.
    """
    to_bytes = None if to is None else size_of(to)
    cache.open()
    try:
        return cache.prune(to_bytes, None if older_days is None else older_days * _DAY_S)
    finally:
        cache.close()


def size_of(text: str) -> int:
    """Bytes of ``500MB``, ``2 GB`` or ``1.5GiB``; ``UsageError`` for anything else."""
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2].upper() not in _UNITS:
        raise UsageError(f"--to {text}: not a size; write for example 500MB or 2GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def as_json(cache: CacheFolder, removed: Sequence[Entry] | None = None) -> Mapping[str, Any]:
    """What the cache holds now, and what was removed, as ``--json`` prints it."""
    held = cache.listed()
    found = {"folder": str(cache.root), "size_bytes": _size(held), "entries": [_entry(each) for each in held]}
    return found if removed is None else {**found, "removed": [_entry(each) for each in removed]}


def lines(cache: CacheFolder) -> Iterator[str]:
    """What the cache holds, for people: results by what made them, the largest first."""
    from convertkit.text import aligned, size_text

    held = sorted(cache.listed(), key=lambda each: each.title)
    kinds = {title: list(entries) for title, entries in groupby(held, key=lambda each: each.title)}
    rows = [
        (title, str(len(entries)), size_text(_size(entries)), _used(max(each.used for each in entries))[:10])
        for title, entries in sorted(kinds.items(), key=lambda kind: -_size(kind[1]))
    ]
    yield from aligned([("made by", "results", "size", "last used"), *rows], right=(1, 2)) if rows else ()
    yield told(cache.root, held, "in")


def told(root: Path, entries: Sequence[Entry], word: str) -> str:
    """How many entries, and how large: ``12 results, 3.4 MB, in DIR``."""
    from convertkit.text import size_text

    return f"{len(entries)} result{'' if len(entries) == 1 else 's'}, {size_text(_size(entries))}, {word} {root}"


def _entry(entry: Entry) -> Mapping[str, Any]:
    return {"key": entry.key, "title": entry.title, "size_bytes": entry.size_bytes, "used": _used(entry.used)}


def _used(when: float) -> str:
    return datetime.fromtimestamp(int(when), UTC).isoformat()


def _size(entries: Sequence[Entry]) -> int:
    return sum(each.size_bytes for each in entries)

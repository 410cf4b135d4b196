"""Whether every reader of a zip archive finds the same entries in it.

Python's ``zipfile`` examines an archive and torch's own reader loads it.  They find the directory in different ways:
``zipfile`` takes the 64-bit record that lies before its locator, torch the one that the locator points to; ``zipfile``
counts bytes, torch entries; ``zipfile`` ends a name at its first zero byte.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF


def ambiguity(path: Path, entries: list[zipfile.ZipInfo]) -> str | None:
    """What lets readers of the archive differ, None where nothing does; ``entries`` are what ``zipfile`` found."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        stream.seek(max(0, size - _END.size - _LOCATOR.size - _END_64.size))
        tail = stream.read()
    end = tail[-_END.size :]
    if len(end) < _END.size or not end.startswith(b"PK\x05\x06"):
        return "its directory is not at its end"
    *_, count, length, start, _ = _END.unpack(end)
    begin = size - _END.size
    locator = tail[-_END.size - _LOCATOR.size : -_END.size]
    if locator.startswith(b"PK\x06\x07"):
        begin -= _LOCATOR.size + _END_64.size
        record = tail[: _END_64.size]
        if _LOCATOR.unpack(locator)[2] != begin or not record.startswith(b"PK\x06\x06"):
            return "it has two directories"
        narrow = ((count, _FULL_16), (length, _FULL_32), (start, _FULL_32))
        *_, count, length, start = _END_64.unpack(record)
        if any(said not in (wide, full) for (said, full), wide in zip(narrow, (count, length, start), strict=True)):
            return "it has two directories"
    if start + length != begin:
        return "its directory is not where it says"
    if count != len(entries):
        return f"its directory says {count} entries and has {len(entries)}"
    if any("\0" in entry.orig_filename for entry in entries):
        return "a name of an entry has a zero byte"
    return None

"""ZIP archives whose bytes depend on their members alone: the model stored as it is, where a page of memory begins."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from convertkit.errors import SourceError

PAGE = 16384
"""Where a stored model begins, in bytes: pages of memory have 4 or 16 KB on phones, and zipalign asks for 4 bytes."""
_EARLIEST = (1980, 1, 1, 0, 0, 0)
_HEADER_BYTES = 30
_PADDING = 0xD935
"""The field that zipalign and apksigner fill up with: its identifier, a size, the alignment, and zeros.
Source: Android, tools/apksig, ``ApkSigner.ALIGNMENT_ZIP_EXTRA_DATA_FIELD_EXTENSION_ID``."""
_PADDING_BYTES = 6
_UNIX, _READABLE = 3, 0o644 << 16


def archive(members: Mapping[str, bytes], stored: Set[str] = frozenset()) -> bytes:
    """An archive of these members in this order; those of ``stored`` uncompressed, each at a multiple of ``PAGE``."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, data in members.items():
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.create_system, entry.external_attr = _UNIX, _READABLE
            entry.compress_type = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            if name in stored:
                entry.extra = _padding(stream.tell() + _HEADER_BYTES + len(name.encode()))
            made.writestr(entry, data)
    return stream.getvalue()


def _padding(begin: int) -> bytes:
    """An extra field behind ``begin`` that ends at a multiple of ``PAGE``."""
    gap = -(begin + _PADDING_BYTES) % PAGE
    return struct.pack("<HHH", _PADDING, 2 + gap, PAGE) + bytes(gap)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an archive: its bytes, where they begin in the file, whether they lie there as they are."""

    data: bytes
    offset: int
    stored: bool


def members_of(path: Path) -> dict[str, Member]:
    """All members of an archive; ``SourceError`` for what is not one, or is broken."""
    try:
        whole = path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(whole)) as opened:
            return {each.filename: _member(opened, each, whole) for each in opened.infolist()}
    except (OSError, zipfile.BadZipFile, struct.error) as error:
        raise SourceError(f"{path.name} is not an archive that can be read: {error}") from error


def _member(opened: zipfile.ZipFile, entry: zipfile.ZipInfo, whole: bytes) -> Member:
    """Where the data begins stands in the member's own header, whose extra field may not be the directory's."""
    begin = entry.header_offset
    name, extra = struct.unpack("<HH", whole[begin + 26 : begin + _HEADER_BYTES])
    data = opened.read(entry)
    return Member(data, begin + _HEADER_BYTES + name + extra, entry.compress_type == zipfile.ZIP_STORED)

"""How small files get where a package or a download compresses them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

_LEVEL = 6
"""What zip archives, and APKs among them, usually have."""
_AT_ONCE = 1 << 20


def deflated_bytes(files: Iterable[Path]) -> int:
    """Of all files together, each deflated on its own as in an archive."""
    return sum(map(_deflated, files))


def _deflated(file: Path) -> int:
    packer, count = zlib.compressobj(_LEVEL), 0
    with file.open("rb") as stream:
        while content := stream.read(_AT_ONCE):
            count += len(packer.compress(content))
    return count + len(packer.flush())

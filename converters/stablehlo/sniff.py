"""Recognise StableHLO and ``jax.export`` files by content."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

BYTECODE = b"ML\xefR"
_PRODUCER = BYTECODE + b"\rStableHLO_v"
_TEXT = re.compile(rb"\b(?:stablehlo|vhlo|chlo|mhlo)\.[a-z]|func\.func\s|^\s*module\b[^\n]*\{", re.MULTILINE)
_HEAD_BYTES = 1 << 16
_FLATBUFFER_ROOT_BELOW = 1 << 12


def is_stablehlo(path: Path) -> bool:
    """MLIR bytecode, or text in which MLIR functions or StableHLO operators stand."""
    head = _head(path)
    if head.startswith(BYTECODE):
        return True
    return b"\0" not in head and _TEXT.search(head) is not None


def is_jax_export(path: Path) -> bool:
    """A flatbuffer (small root offset first) that holds a portable StableHLO artifact."""
    head = _head(path)
    if len(head) < 64 or head.startswith(BYTECODE):
        return False
    root = int.from_bytes(head[:4], "little")
    if not 4 <= root < _FLATBUFFER_ROOT_BELOW:
        return False
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(_PRODUCER, 0, 1 << 20) >= 0


def _head(path: Path) -> bytes:
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            return stream.read(_HEAD_BYTES)
    except OSError:
        return b""

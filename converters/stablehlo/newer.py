"""Portable artifacts of a newer StableHLO than the one that reads them here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from jaxlib.mlir.dialects import stablehlo

_WRITTEN_BY = re.compile(rb"ML\xefR\rStableHLO_v(\d+)\.(\d+)\.(\d+)\0")
_TILINGS = (1, 18, 0)
"""The first StableHLO whose custom calls tell the tilings of their results: where those lie in memory, not what they
are.  They are the last of the properties, and an older reader leaves them."""
_TILED_CALL = re.compile(rb"(?<=\0)custom_call_v2(?=\0)")

Version = tuple[int, int, int]


def readable(artifact: bytes) -> bytes:
    """The artifact without the tilings of custom calls, where the reader here does not know them."""
    version = newer_version(artifact)
    if version is None or not installed_version() < _TILINGS <= version:
        return artifact
    return _TILED_CALL.sub(b"custom_call_v1", artifact)


def newer_version(artifact: bytes | str) -> Version | None:
    """The StableHLO that wrote a portable artifact, where it is a newer one than the installed jaxlib has."""
    found = None if isinstance(artifact, str) else _WRITTEN_BY.match(artifact)
    version = None if found is None else _numbers(found.groups())
    return version if version is not None and version > installed_version() else None


def installed_version() -> Version:
    """The StableHLO of the installed jaxlib."""
    return _numbers(stablehlo.get_current_version().split("."))


def _numbers(parts: Sequence[bytes | str]) -> Version:
    major, minor, patch = (int(part) for part in parts)
    return major, minor, patch

"""What a module can be compiled for."""

from __future__ import annotations

import re
from collections.abc import Mapping

ANY_CPU = "generic"
"""LLVM's name for what every processor of an architecture has."""
PLATFORMS: Mapping[str, str] = {
    "android-arm64": "aarch64-linux-android",
    "linux-arm64": "aarch64-linux-gnu",
    "linux-x86_64": "x86_64-linux-gnu",
}
"""Names of platforms, with LLVM's triples; a module holds its own code and needs no linker there."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def cpu_name(text: str) -> str:
    """A processor's name; ``ValueError`` for what cannot be one, or stands for a machine that nobody names."""
    if text in ("host", "native"):
        raise ValueError("a processor's name, such as haswell: the same command writes the same file on every machine")
    if not _NAME.fullmatch(text):
        raise ValueError("a processor's name as LLVM has it, such as haswell or cortex-a76")
    return text

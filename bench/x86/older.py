"""LiteRT as on a server with AVX-512 and nothing newer: it finds no dot products of bytes (VNNI), whatever is here.

Needs ``gcc`` and ``objdump``.  Clock, caches and ports stay those of the processor at hand.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import ai_edge_litert

_SOURCE = Path(__file__).with_suffix(".c")
_LIBRARY = "libpywrap_litert_common.so"


def hide_newer() -> Callable[[], int]:
    """Let the runtime, which must not have asked the processor yet, find an older one.

    Returns what tells how often it has asked since.  Raises ``SystemExit`` where the library cannot be changed.
    """
    from ai_edge_litert import interpreter  # noqa: F401  # loads the library, which asks when it first opens a model

    library = Path(ai_edge_litert.__file__).with_name(_LIBRARY)
    places = _asking(library)
    with tempfile.TemporaryDirectory() as name:
        built = Path(name) / "older.so"
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", built, _SOURCE], check=True)
        older = ctypes.CDLL(str(built))
    offsets = (ctypes.c_size_t * len(places))(*places)
    if older.keep(ctypes.c_void_p(_loaded(library)), offsets, ctypes.c_size_t(len(places))):
        raise SystemExit("this system does not let a process change its own code")
    return lambda: ctypes.c_int.in_dll(older, "kept").value


def _asking(library: Path) -> list[int]:
    """Where it asks the processor what it is."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(each, 16) for each in re.findall(r"^ *([0-9a-f]+):\s+cpuid", told, re.MULTILINE)]


def _loaded(library: Path) -> int:
    """The address of its first byte."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, *_ = line.split()
        if line.endswith(str(library)) and int(offset, 16) == 0:
            return int(span.split("-")[0], 16)
    raise SystemExit(f"{library.name} is not loaded")

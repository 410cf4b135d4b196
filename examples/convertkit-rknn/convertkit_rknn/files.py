"""The delivered files: which graph a ``.rknn`` was compiled from, and whether another build of it is the same file.

The toolkit writes addresses of its own memory into its files, so that two builds of a graph need not be equal byte by
byte.  They are the same where they differ in nothing but words that change from build to build, or that one of them has
from memory that was never set: its process fills that with a byte of its own (:data:`.runtime.FILL`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, sha256_of
from convertkit.errors import ToolError
from convertkit_rknn.runtime import FILL

GRAPH, FILE = "model.onnx", "model.rknn"
_SEAL = re.compile(rb"convertkit ([0-9a-f]{64}) ([a-z0-9]+) ([0-9]);")
_WORD = 4
"""Bytes: what a field of the file is aligned to."""
_UNSET = tuple(int.from_bytes(bytes([byte]) * _WORD) for byte in (FILL, FILL ^ 0xFF))
"""Words of memory that is free again, and of memory that is handed out."""


@dataclass(frozen=True, slots=True)
class Build:
    """What the toolkit was asked for: the chip, and its optimization level."""

    chip: str
    level: int


def seal(graph: Path, build: Build) -> str:
    """The text in a ``.rknn`` that names the graph and the build."""
    return f"convertkit {sha256_of(graph)} {build.chip} {build.level};"


def build_of(file: Path) -> Build:
    """How the file was built; ``ToolError`` where it was not from the graph beside it."""
    graph = file.with_name(GRAPH)
    if not graph.is_file():
        raise ToolError(f"{file.name} needs {GRAPH} beside it, from which it was compiled: the simulator runs that")
    found = _SEAL.search(file.read_bytes())
    if found is None or found[1].decode() != sha256_of(graph):
        raise ToolError(f"{file.name} is not the file that was compiled from {graph.name}")
    return Build(found[2].decode(), int(found[3]))


def check_same(file: Path, rebuilt: Path, others: Callable[[], Iterable[Path]]) -> None:
    """``ToolError`` where the file is not what the toolkit makes of the graph now.

    ``others`` are more builds of it, which are asked for where the first differs.
    """
    delivered, first = file.read_bytes(), rebuilt.read_bytes()
    if delivered == first:
        return
    builds = [first, *(each.read_bytes() for each in others())]
    if {len(each) for each in builds} != {len(delivered)}:
        raise ToolError(_other(file))
    words = [_words(each) for each in builds]
    changing = np.any([words[0] != each for each in words[1:]], axis=0)
    given = _words(delivered)
    unset = np.any([np.isin(each, _UNSET) for each in (given, *words)], axis=0)
    if np.any((given != words[0]) & ~changing & ~unset):
        raise ToolError(_other(file))


def _words(data: bytes) -> Array:
    padded = data + bytes(-len(data) % _WORD)
    return np.frombuffer(padded, f"<u{_WORD}")


def _other(file: Path) -> str:
    return f"{file.name} is not what the toolkit makes of {GRAPH}"

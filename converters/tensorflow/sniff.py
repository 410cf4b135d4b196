"""Recognising SavedModels and frozen graphs by their content."""

from __future__ import annotations

from pathlib import Path

from convertkit import wire
from convertkit.errors import SourceError

SAVED_MODEL = "saved_model.pb"
_NODE, _NAME, _OP = 1, 1, 2
_HEAD_BYTES = 1 << 16


def saved_model_folder(path: Path) -> Path | None:
    """The folder of a SavedModel, also where its ``saved_model.pb`` is named; else None."""
    try:
        if path.is_dir() and (path / SAVED_MODEL).is_file():
            return path
        if path.name == SAVED_MODEL and path.is_file():
            return path.parent
    except (OSError, ValueError):
        return None
    return None


def is_graph_def(path: Path) -> bool:
    """Whether the file starts with a NodeDef: a message that holds a name and an operator."""
    try:
        with path.open("rb") as stream:
            head = memoryview(stream.read(_HEAD_BYTES))
    except (OSError, ValueError):
        return False
    if len(head) < 4 or head[0] != _NODE << 3 | wire.BYTES:
        return False
    try:
        length, start = wire.varint(head, 1)
        node = head[start : start + length]
        if not node or node[0] != _NAME << 3 | wire.BYTES:
            return False
        size, start = wire.varint(node, 1)
        name, rest = bytes(node[start : start + size]), node[start + size :]
        if not rest or rest[0] != _OP << 3 | wire.BYTES:
            return False
        size, start = wire.varint(rest, 1)
        op = bytes(rest[start : start + size])
    except SourceError:
        return False
    return name.decode(errors="replace").isprintable() and op.decode(errors="replace").isidentifier()

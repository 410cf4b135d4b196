"""``symbol.json``: MXNet's graph, as text without code.

Source: MXNet 1.9.1, nnvm's ``SaveJSON``.  Older releases call a node's attributes ``attr`` or ``param``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.errors import SourceError

_MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Node:
    """One operator, or a variable where ``kind`` is ``null``; ``inputs`` are places of nodes and of their results."""

    name: str
    kind: str
    attributes: Mapping[str, str]
    inputs: tuple[tuple[int, int], ...]

    @property
    def title(self) -> str:
        return f"{self.name} ({self.kind})"


@dataclass(frozen=True, slots=True)
class Symbol:
    """Nodes, each behind what it reads, and the results of the graph."""

    nodes: tuple[Node, ...]
    heads: tuple[tuple[int, int], ...]


def read_symbol(path: Path) -> Symbol:
    """``SourceError`` where the file is not a graph."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SourceError(f"{path.name}: larger than a graph without weights is")
        stored = json.loads(path.read_bytes())
        nodes = tuple(_node(place, entry) for place, entry in enumerate(stored["nodes"]))
        heads = tuple((int(head[0]), int(head[1])) for head in stored["heads"])
    except (OSError, ValueError, RecursionError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise SourceError(f"{path.name} is not a graph of MXNet") from error
    if not heads or any(not 0 <= place < len(nodes) or result < 0 for place, result in heads):
        raise SourceError(f"{path.name}: its results are not nodes of it")
    if len({node.name for node in nodes}) != len(nodes):
        raise SourceError(f"{path.name}: two nodes have the same name")
    return Symbol(nodes, heads)


def looks_like_a_symbol(path: Path) -> bool:
    """Whether a file begins as a graph does."""
    try:
        with path.open("rb") as stream:
            head = stream.read(4096)
    except OSError:
        return False
    return head.lstrip()[:1] == b"{" and b'"nodes"' in head and b'"op"' in head and b'"null"' in head


def _node(place: int, entry: Mapping[str, Any]) -> Node:
    attributes = {**entry.get("param", {}), **entry.get("attr", {}), **(entry.get("attrs") or {})}
    inputs = tuple((int(each[0]), int(each[1])) for each in entry["inputs"])
    name, kind = entry["name"], entry["op"]
    words = (name, kind, *attributes, *attributes.values())
    if not all(isinstance(each, str) for each in words) or any(not 0 <= each < place for each, _ in inputs):
        raise ValueError("a node that is not one")
    if any(result < 0 for _, result in inputs):
        raise ValueError("a result that is not one")
    if "subgraphs" in entry:
        raise ValueError("control flow")
    return Node(name, kind, attributes, inputs)

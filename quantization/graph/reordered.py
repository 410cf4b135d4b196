"""Values whose channels a step has put in another order: what they were called before, and which channel is where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

_MARK = "convertkit.reordered"


@dataclass(frozen=True, slots=True)
class Before:
    """The name of a value before, and along ``axis`` the place that each of its entries had."""

    name: str
    axis: int
    entries: tuple[int, ...]


def mark_reordered(value: ir.Value, name: str, axis: int, entries: Sequence[int]) -> None:
    """Rename a node's first output, and note what it was."""
    node = value.producer()
    assert node is not None
    node.metadata_props[_MARK] = json.dumps([str(value.name), axis, [int(each) for each in entries]])
    value.name = name


def reordered_values(graph: ir.Graph) -> dict[str, Before]:
    """What :func:`mark_reordered` noted, by the names that the values have now."""
    found = {}
    for node in graph:
        if _MARK in node.metadata_props:
            name, axis, entries = json.loads(node.metadata_props[_MARK])
            found[str(node.outputs[0].name)] = Before(name, axis, tuple(entries))
    return found


def forget_order(graph: ir.Graph) -> None:
    """Remove what was noted, once nothing is compared any more: it may take a tenth of a small file."""
    for node in graph:
        node.metadata_props.pop(_MARK, None)

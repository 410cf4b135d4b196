"""Which node of the user's model a node belongs to that a pass made: an annotation in ``meta``, never serialised."""

from __future__ import annotations

import onnx_ir as ir

_SOURCE = "convertkit.source"


def source_of(node: ir.Node) -> str:
    """The name of the model's node that this one belongs to: its own, unless a pass made it."""
    return str(node.meta.get(_SOURCE) or node.name or "")


def set_source(made: ir.Node, source: ir.Node) -> None:
    """Say that a pass made ``made`` for ``source``; it stands where ``source`` stands in the user's model."""
    made.meta[_SOURCE] = source_of(source)
    made.metadata_props.update(source.metadata_props)

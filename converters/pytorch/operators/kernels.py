"""Operators that ONNX Runtime does not compute in the type that a model has, told as the model's author knows them."""

from __future__ import annotations

import re
from pathlib import Path

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.load import load_model
from convertkit.onnx.origin import location

_NODE = re.compile(r"(?:node with name|node\. Name:) ?'(?P<name>[^']+)'")
_LACKING = ("Could not find an implementation for", "does not support double")
_WAYS_OUT = {"float64": ("model.float() before it is saved or returned: targets compute in float32",)}


def lacking(path: Path, told: str) -> Unsupported | None:
    """The refusal behind what ONNX Runtime said of the model at ``path``, None where it is about something else."""
    found = _NODE.search(told)
    if found is None or not any(text in told for text in _LACKING):
        return None
    nodes = [node for node in load_model(path).graph.all_nodes() if node.name == found["name"]]
    if not nodes:
        return None
    dtype = _dtype(nodes[0])
    return Unsupported(
        f"{dtype}: ONNX Runtime, which verifies every step, has no {nodes[0].op_type} for it",
        subject=f"{found['name']} ({nodes[0].op_type})",
        location=location(nodes[0]),
        ways_out=_WAYS_OUT.get(dtype, ()),
    )


def _dtype(node: ir.Node) -> str:
    """Of the first operand whose type is known; a float64 one comes first."""
    known = [value.dtype for value in (*node.inputs, *node.outputs) if value is not None and value.dtype is not None]
    if ir.DataType.DOUBLE in known:
        return "float64"
    return known[0].name.lower() if known else "its type"

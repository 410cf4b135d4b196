"""Where a node of the graph comes from in the user's own source."""

from __future__ import annotations

import re

import onnx_ir as ir

TRACE_KEY = "pkg.torch.onnx.stack_trace"
"""Metadata of a node that holds its Python frames, innermost last, as torch's exporter writes them."""
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def location(node: ir.Node) -> str:
    """The line of the user's model that made the node, where the exporter recorded it: ``model.py:41, in forward``."""
    trace = node.metadata_props.get(TRACE_KEY, "") or node.doc_string or ""
    frames = [frame for frame in _FRAME.finditer(trace) if "site-packages" not in frame["file"]]
    if not frames:
        return ""
    last = frames[-1]
    return f"{last['file']}:{last['line']}, in {last['function']}"

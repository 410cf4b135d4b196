"""Recurrent layers in the form that RKNN-Toolkit2's simulator takes.

before:  y = GRU (x, w, r, b), layout = 0
after:   y = GRU (x, w, r, b)

The simulator ends with "Bad node spec" where the attribute is stated, even at its default.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.errors import Unsupported

_KINDS = frozenset({"GRU", "LSTM", "RNN"})


def leave_out_layout(model: ir.Model) -> int:
    """In place; how many layers stated it.  ``Unsupported`` where it is another than the default."""
    found = [node for node in model.graph if node.op_type in _KINDS and "layout" in node.attributes]
    for node in found:
        if node.attributes.get_int("layout", 0) != 0:
            raise Unsupported(
                "layout 1, and RKNN-Toolkit2 takes 0, time in front of the batch",
                subject=f"{node.name} ({node.op_type})",
                ways_out=("--target onnxruntime", "--target executorch"),
            )
        node.attributes.pop("layout")
    return len(found)

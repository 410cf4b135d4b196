"""Models that arrive quantized: they pass through with the scales that they came with."""

from __future__ import annotations

import onnx_ir as ir


def is_quantized(model: ir.Model) -> bool:
    """Whether any operator quantizes an activation already (QDQ, or QLinear operators)."""
    return any(node.op_type == "QuantizeLinear" or node.op_type.startswith("QLinear") for node in model.graph)


def to_qdq(model: ir.Model) -> None:
    """Rewrite QLinear operators as QDQ, in place."""

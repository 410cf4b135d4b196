"""Divisions as products with a reciprocal, for ``--full-integer``: TFLite has no integer kernel of a division.

before:  y = Div (x, z)
after:   y = Mul (x, Reciprocal (z)), or Mul (x, 1 / z) where z is stored
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, inserted, is_float32, replaced
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.kinds import node_kinds
from convertkit.quantization.graph.units import constant, is_constant

_PARTS = ("Mul", "Reciprocal")


def divisions_as_products(model: ir.Model, profile: QuantProfile) -> None:
    """Rewrite every division of float32 that ``profile`` has no rule for, in place, where it has rules for the parts.

    Leaves divisions by zeros and by what is too small for a finite reciprocal: no integers express them.
    """
    if any(profile.rule((part,)) is None for part in _PARTS):
        return
    for node in tuple(model.graph):
        if node.op_type == "Div" and not node.domain and profile.rule(node_kinds(node)) is None:
            _rewrite(model.graph, node)


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    x, divisor = node.inputs
    if x is None or divisor is None or not is_float32(divisor):
        return
    if not is_constant(divisor):
        replaced(node, "Mul", [x, inserted(node, "Reciprocal", [divisor], divisor).outputs[0]])
        return
    with np.errstate(divide="ignore", over="ignore"):
        factors = (1 / constant(divisor).astype(np.float64)).astype(np.float32)
    if np.isfinite(factors).all():
        replaced(node, "Mul", [x, add_constant(graph, f"{divisor.name}_reciprocal", factors)])

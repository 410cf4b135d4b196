"""Softplus from the logarithm of two exponentials' sum, one of them that of 0."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.converters.stablehlo.ops.unary import LOG1P_END, LOG1P_SERIES
from convertkit.onnx.edit import is_float32, replaced
from convertkit.onnx.recognise.match import Term, match, polynomial

_POWER: Term = ("Exp", ("Neg", ("Abs", "x")))
_RATIO: Term = ("Div", _POWER, ("Add", _POWER, 2.0))
_LOG: Term = (
    "Where",
    ("Less", ("Abs", _POWER), LOG1P_END),
    ("Mul", _RATIO, polynomial(LOG1P_SERIES, ("Mul", _RATIO, _RATIO))),
    ("Log", ("Add", _POWER, 1.0)),
)
"""How ``log1p`` keeps its digits near 0."""
_SOFTPLUS: Term = ("Where", ("Not", ("Equal", "x", "x")), ("Add", "x", 0.0), ("Add", ("Relu", "x"), _LOG))


def recognise_softplus(node: ir.Node) -> None:
    """``jax.nn.softplus``, which is ``logaddexp(x, 0)``.

    before:  x is NaN ? x + 0 : max(x, 0) + log1p(exp(-|x|))
    after:   Softplus(x)
    """
    if node.op_type != "Where" or not is_float32(node.outputs[0]):
        return
    found = match(_SOFTPLUS, node.outputs[0], {})
    if found is not None:
        replaced(node, "Softplus", [found["x"]])

"""Softplus from the logarithm of two exponentials' sum, one of them that of 0."""

from __future__ import annotations

import math

import onnx_ir as ir

from convertkit.converters.stablehlo.recognise.edit import is_float32, replaced
from convertkit.converters.stablehlo.recognise.match import Term, match

_POWER: Term = ("Exp", ("Neg", ("Abs", "x")))
_SUM: Term = ("Add", _POWER, 1.0)
_LOG: Term = (
    "Where",
    ("Or", ("Equal", _SUM, 1.0), ("Equal", _SUM, math.inf)),
    _POWER,
    ("Mul", _POWER, ("Div", ("Log", _SUM), ("Sub", _SUM, 1.0))),
)
"""How ``log1p`` keeps its digits near 0."""
_SOFTPLUS: Term = ("Where", ("Not", ("Equal", "x", "x")), "x", ("Add", ("Relu", "x"), _LOG))


def recognise_softplus(node: ir.Node) -> None:
    """``jax.nn.softplus``, which is ``logaddexp(x, 0)``.

    before:  x is NaN ? x : max(x, 0) + log1p(exp(-|x|))
    after:   Softplus(x)
    """
    if node.op_type != "Where" or not is_float32(node.outputs[0]):
        return
    found = match(_SOFTPLUS, node.outputs[0], {})
    if found is not None:
        replaced(node, "Softplus", [found["x"]])

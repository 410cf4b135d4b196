"""Erf from the quotient of polynomials that XLA writes for it."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from convertkit.onnx.recognise.match import Term, added, match, polynomial

_ABOVE = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_BELOW = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
    -1.42647390514189e-02,
)


def _clamped(x: Term, bound: float) -> Term:
    return ("Min", ("Max", x, -bound), bound)


def _clipped(x: Term, bound: float) -> Term:
    return ("Clip", x, -bound, bound)


def erf(x: Term, limit: Callable[[Term, float], Term]) -> Term:
    """How StableHLO expands ``chlo.erf`` of float32: a quotient on [-4, 4], cut off at 1."""
    inside = limit(x, 4.0)
    square: Term = ("Mul", inside, inside)
    quotient: Term = ("Div", ("Mul", inside, polynomial(_ABOVE, square)), polynomial(_BELOW, square))
    return limit(quotient, 1.0)


_ERF = {"Min": erf("x", _clamped), "Clip": erf("x", _clipped)}
"""By the last operator: the importer writes Clip where the bounds are scalars."""


def recognise_erf(node: ir.Node) -> None:
    """The 27 nodes that compute ``erf`` in float32.

    before:  Min(Max(Div(Mul(c, P(c²)), Q(c²)), -1), 1) with c = Min(Max(x, -4), 4)
    after:   Erf(x)

    Both are within a few roundings of the function; NaN stays NaN.
    """
    result = node.outputs[0]
    found = match(_ERF[node.op_type], result, {}) if node.op_type in _ERF else None
    if found is None:
        return
    x = found["x"]
    if x.dtype != ir.DataType.FLOAT or x.shape is None or x.shape != result.shape:
        return
    made = added(node, "Erf", [x], x, f"{node.name or result.name}/erf")
    node.op_type = "Identity"
    node.resize_inputs(1)
    node.replace_input_with(0, made)

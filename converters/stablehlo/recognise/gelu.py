"""The polynomials that XLA writes for ``erfc``, where GELU is made of them."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import only_user
from convertkit.onnx.recognise.match import Term, added, match, polynomial, scalar

_ROOT_HALF = float(np.float32(math.sqrt(0.5)))
_BELOW_TWO = (
    *(2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1, 6.210004621745983e-1),
    *(-4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1),
)
_ABOVE_TWO = (
    *(-1.047766399936249e1, 1.297719955372516e1, -7.495518717768503e0, 2.921019019210786e0, -1.015265279202700e0),
    *(4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1),
)
_NEAR_ZERO = (
    *(7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2),
    *(1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710e0),
)
_LOG_OF_GREATEST = -float(np.log(np.finfo(np.float32).max))


def erfc(z: Term) -> Term:
    """How StableHLO expands ``chlo.erfc`` of float32: three polynomials for |z| below 1, below 2 and above."""
    square: Term = ("Mul", z, z)
    inverse: Term = ("Div", 1.0, square)
    tail: Term = (
        "Mul",
        ("Mul", ("Exp", ("Neg", square)), ("Div", 1.0, ("Abs", z))),
        ("Where", ("Less", ("Abs", z), 2.0), polynomial(_BELOW_TWO, inverse), polynomial(_ABOVE_TWO, inverse)),
    )
    kept: Term = ("Where", ("Less", ("Neg", square), _LOG_OF_GREATEST), 0.0, tail)
    far: Term = ("Where", ("Less", z, 0.0), ("Sub", 2.0, kept), kept)
    near: Term = ("Sub", 1.0, ("Mul", z, polynomial(_NEAR_ZERO, square)))
    return ("Where", ("Less", ("Abs", z), 1.0), near, far)


_HALF: Term = ("Mul", 0.5, "x")
_ARGUMENT: Term = ("Mul", ("Neg", "x"), _ROOT_HALF)
_ERFC = erfc("z")


def recognise_erfc(node: ir.Node) -> None:
    """The product of ``x / 2`` and the 65 nodes that compute ``erfc(-x / √2)``.

    before:  Mul(Mul(0.5, x), erfc's polynomials of Mul(Neg(x), √½))
    after:   Mul(Mul(0.5, x), Add(Erf(Mul(x, √½)), 1))

    ``erfc(-z)`` is ``1 + erf(z)``.  Its far tail, which the sum rounds to 0 below 6e-8, counts only
    where nothing else uses it than this product; there it is at most 2e-7 of the greatest |x|.
    The form is the one that targets take as GELU.
    """
    if node.op_type != "Mul" or node.domain != "":
        return
    for place, complement in enumerate(node.inputs):
        half = match(_HALF, node.inputs[1 - place], {})
        root = None if complement is None else complement.producer()
        if half is None or complement is None or root is None or root.op_type != "Where":
            continue
        found = match(_ERFC, complement, {}) if only_user(complement) is node else None
        x = half["x"]
        if x.dtype != ir.DataType.FLOAT or x.shape is None or not x.shape == complement.shape == node.outputs[0].shape:
            continue
        if found is None or match(_ARGUMENT, found["z"], {"x": x}) is None:
            continue
        name = f"{node.name or node.outputs[0].name}/gelu"
        scaled = added(node, "Mul", [x, scalar(node, _ROOT_HALF, f"{name}/root_half")], x, f"{name}/scaled")
        error = added(node, "Erf", [scaled], x, f"{name}/erf")
        total = added(node, "Add", [error, scalar(node, 1.0, f"{name}/one")], x, f"{name}/plus_one")
        node.replace_input_with(place, total)
        return

"""Softplus without the exponential of a large number, for runtimes whose exponential ends before that."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place


def write_softplus(node: ir.Node) -> None:
    """In place.

    before:  y = Softplus (x)
    after:   y = Add (Relu (x), Log (Add (Exp (Neg (Abs (x))), 1)))
    """
    x = node.inputs[0]
    assert x is not None
    kind = ir.DataType.FLOAT if x.dtype is None else x.dtype
    place = Place(node)
    small = place.op("Exp", place.op("Neg", place.op("Abs", x)))
    rest = place.op("Log", place.op("Add", small, place.constant(np.ones((), kind.numpy()))))
    place.becomes(place.op("Add", place.op("Relu", x), rest))

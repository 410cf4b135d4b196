"""Asinh and Atanh without the difference of near numbers, for runtimes that take the logarithm of about 1.

Source: N. J. Higham, Accuracy and Stability of Numerical Algorithms, 1.14.1, for the logarithm of 1 + u.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place

_FAR = np.float32(1e4)
"""From here on the square root of x² + 1 is x in float32, whose square ends at 1.8e19."""


def write_asinh(node: ir.Node) -> None:
    """In place; what is not float32 stays.

    before:  y = Asinh (x)
    after:   y = Sign (x) · log1p (|x| + x² / (1 + Sqrt (x² + 1))), and Log (2 · |x|) for large ones
    """
    x = node.inputs[0]
    if x is None or x.dtype != ir.DataType.FLOAT:
        return
    place = Place(node)
    one, far = place.constant(np.float32(1)), place.constant(_FAR)
    size = place.op("Abs", x)
    near = place.op("Min", size, far)
    square = place.op("Mul", near, near)
    root = place.op("Sqrt", place.op("Add", square, one))
    small = _log1p(place, place.op("Add", near, place.op("Div", square, place.op("Add", root, one))))
    large = place.op("Add", place.op("Log", place.op("Max", size, far)), place.constant(np.float32(np.log(2))))
    is_far = place.op("Greater", size, far, dtype=ir.DataType.BOOL)
    length = place.op("Where", is_far, large, small, like=x)
    place.becomes(place.op("Mul", place.op("Sign", x), length))


def write_atanh(node: ir.Node) -> None:
    """In place; what is not float32 stays.

    before:  y = Atanh (x)
    after:   y = Sign (x) · log1p (2 · |x| / (1 - |x|)) / 2
    """
    x = node.inputs[0]
    if x is None or x.dtype != ir.DataType.FLOAT:
        return
    place = Place(node)
    size = place.op("Abs", x)
    rest = place.op("Sub", place.constant(np.float32(1)), size, like=x)
    length = _log1p(place, place.op("Div", place.op("Add", size, size), rest))
    place.becomes(place.op("Mul", place.op("Mul", place.op("Sign", x), length), place.constant(np.float32(0.5))))


def _log1p(place: Place, u: ir.Value) -> ir.Value:
    """``log (1 + u)``: its logarithm is as much too large as ``1 + u`` is, rounded; of little ``u`` itself."""
    one, zero = place.constant(np.float32(1)), place.constant(np.float32(0))
    whole = place.op("Add", u, one)
    part, plain = place.op("Sub", whole, one), place.op("Log", whole)
    gone = place.op("Equal", part, zero, dtype=ir.DataType.BOOL)
    divisor = place.op("Where", gone, one, part, like=u)
    righted = place.op("Mul", plain, place.op("Div", u, divisor))
    small = place.op("Where", gone, u, righted, like=u)
    return place.op("Where", place.op("Greater", u, one, dtype=ir.DataType.BOOL), plain, small, like=u)

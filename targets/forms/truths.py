"""Truths that a runtime does not make of numbers, as comparisons."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place


def write_truth(node: ir.Node) -> None:
    """A cast to bool, in place; others stay.

    before:  y = Cast <to = bool> (x)
    after:   y = Not (Equal (x, 0))
    """
    x = node.inputs[0]
    is_truth = node.attributes.get_int("to", 0) == int(ir.DataType.BOOL)
    if is_truth and x is not None and x.dtype is not None and x.dtype not in (ir.DataType.BOOL, ir.DataType.STRING):
        place = Place(node)
        _unequal(place, x, place.constant(np.zeros((), x.dtype.numpy())))


def write_is_nan(node: ir.Node) -> None:
    """``Not (Equal (x, x))``, in place."""
    x = node.inputs[0]
    if x is not None:
        _unequal(Place(node), x, x)


def write_is_infinite(node: ir.Node) -> None:
    """``Equal (Abs (x), inf)``, or of one sign, in place; one that asks for neither stays."""
    x = node.inputs[0]
    above, below = (node.attributes.get_int(f"detect_{sign}", 1) for sign in ("positive", "negative"))
    if x is None or x.dtype is None or not (above or below):
        return
    place = Place(node)
    end = place.constant(x.dtype.numpy().type(np.inf if above else -np.inf))
    value = place.op("Abs", x) if above and below else x
    place.becomes(place.op("Equal", value, end, dtype=ir.DataType.BOOL, like=x))


def _unequal(place: Place, one: ir.Value, other: ir.Value) -> None:
    place.becomes(place.op("Not", place.op("Equal", one, other, like=one, dtype=ir.DataType.BOOL)))

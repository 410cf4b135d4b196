"""Remainders of floats by an infinite divisor, which are the dividend and which some runtimes compute as NaN."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place


def write_infinite_divisors(model: ir.Model) -> None:
    """Every Mod of floats with C's rule (IEC 60559, ``fmod``) for infinite divisors, in place.

    before:  z = Mod <fmod = 1> (x, y)
    after:   z = Where (And (Equal (Abs (y), inf), Less (Abs (x), inf)), x, Mod <fmod = 1> (x, y))
    """
    for node in tuple(model.graph.all_nodes()):
        if node.op_type == "Mod" and not node.domain and node.attributes.get_int("fmod", 0) == 1:
            _remainder(node)


def _remainder(node: ir.Node) -> None:
    x, y = node.inputs
    if x is None or y is None or x.dtype is None or not x.dtype.is_floating_point():
        return
    place = Place(node)
    end = place.constant(x.dtype.numpy().type(np.inf))
    divides = place.op("Equal", place.op("Abs", y), end, dtype=ir.DataType.BOOL)
    is_finite = place.op("Less", place.op("Abs", x), end, dtype=ir.DataType.BOOL)
    stays = place.op("And", divides, is_finite, like=node.outputs[0], dtype=ir.DataType.BOOL)
    rest = place.op("Mod", x, y, like=node.outputs[0], fmod=1)
    place.becomes(place.op("Where", stays, x, rest, like=node.outputs[0]))

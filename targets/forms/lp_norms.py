"""LpNormalization with a norm, a test for 0 and a quotient."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place, dims


def write_lp_normalization(node: ir.Node) -> None:
    """What has norm 0 stays 0, where runtimes divide by it or add a small number to each norm."""
    x, sizes = node.inputs[0], dims(node.inputs[0])
    if x is None or sizes is None:
        return
    axis = node.attributes.get_int("axis", -1) % len(sizes)
    place, shape = Place(node), [1 if each == axis else size for each, size in enumerate(sizes)]
    kind = "ReduceL1" if node.attributes.get_int("p", 2) == 1 else "ReduceL2"
    norm = place.op(kind, x, place.constant(np.array([axis])), shape=shape, keepdims=1)
    zero, one = (place.op("CastLike", place.constant(np.float32(each)), x, like=norm, shape=()) for each in (0, 1))
    empty = place.op("Equal", norm, zero, dtype=ir.DataType.BOOL)
    place.becomes(place.op("Div", x, place.op("Where", empty, one, norm, like=norm), like=x))

"""OneHot as comparisons: MNN 3.6 converts the operator and ends the process that runs it.

before:  y = OneHot (x, n, (off, on))
after:   y = Where (x = (0, 1, …) or x = (-n, 1 - n, …), on, off)

An index beyond these hits nothing.  Source: ONNX operators, OneHot-11.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, dims, refusal


def write_one_hot(node: ir.Node) -> None:
    """In place; ``Unsupported`` where the depth or the values are only known at run time."""
    x, depth, values = node.inputs[0], array_of(node.inputs[1]), array_of(node.inputs[2])
    whole = dims(node.outputs[0])
    if x is None or x.dtype is None or depth is None or values is None or whole is None:
        raise refusal(
            node, "a depth or values that are only known at run time; MNN is given comparisons with constants"
        )
    count, place = int(depth.item()), Place(node)
    axis = node.attributes.get_int("axis", -1) % len(whole)
    column = [1 if each == axis else size for each, size in enumerate(whole)]
    places = np.arange(count).reshape([-1 if each == axis else 1 for each in range(len(whole))])
    indices = place.op("Unsqueeze", x, place.constant(np.array([axis])), shape=column)
    hits = [
        place.op("Equal", indices, place.constant(each.astype(x.dtype.numpy())), dtype=ir.DataType.BOOL, shape=whole)
        for each in (places, places - count)
    ]
    hit = place.op("Or", *hits)
    off, on = (place.constant(each.reshape([1] * len(whole))) for each in values)
    place.becomes(place.op("Where", hit, on, off, like=node.outputs[0]))

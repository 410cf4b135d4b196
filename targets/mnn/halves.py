"""Round to even as sums: of a half MNN 3.6 takes the integer that is farther from 0.

before:  y = Round (x)
after:   y = Sub (Add (x, 3 · 2²²), 3 · 2²²)

Behind the sum float32 has no digits left of a fraction, and the sum itself rounds to even.  Beyond 2²² the number stays
what Round gives, where it is not clipped anyway.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, is_float32, only_user
from convertkit.targets.forms.writing import Place

_EXACT = 1 << 22
"""Up to here the sum is one of the numbers between which float32 has no others."""


def write_halves(node: ir.Node) -> None:
    """In place."""
    x = node.inputs[0]
    if x is None or not is_float32(x):
        return
    place = Place(node)
    far = place.constant(np.float32(3 * _EXACT))
    rounded = place.op("Sub", place.op("Add", x, far), far, like=x)
    if _is_clipped(node):
        place.becomes(rounded)
        return
    near = place.op("Less", place.op("Abs", x), place.constant(np.float32(_EXACT)), dtype=ir.DataType.BOOL)
    place.becomes(place.op("Where", near, rounded, place.op("Round", x), like=x))


def _is_clipped(node: ir.Node) -> bool:
    """Whether what is beyond becomes the same bound as what the sum makes of it."""
    reader = only_user(node.outputs[0])
    if reader is None or reader.op_type != "Clip" or reader.domain:
        return False
    bounds = [array_of(each) for each in reader.inputs[1:]]
    return len(bounds) == _BOUNDS and all(each is not None and abs(float(each)) < _EXACT for each in bounds)


_BOUNDS = 2

"""ReduceLogSumExp by operators that every runtime has."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, dims


def write_log_sum_exp(node: ir.Node) -> None:
    """In place: the largest is taken out, so that nothing overflows; axes that are computed stay.

    before:  y = ReduceLogSumExp (x, axes)
    after:   m = ReduceMax (x, axes), y = Where (Abs (m) == inf, m, m + Log (ReduceSum (Exp (x - m), axes)))

    A runtime's maximum and exponential may lose NaN, so that it is put in where an element is one.
    """
    x, sizes = node.inputs[0], dims(node.inputs[0])
    named = node.inputs[1] if len(node.inputs) > 1 else None
    axes = array_of(named)
    if x is None or sizes is None or x.dtype != ir.DataType.FLOAT or (named is not None and axes is None):
        return
    if axes is None or not axes.size:
        if node.attributes.get_int("noop_with_empty_axes", 0):
            return
        axes = np.arange(len(sizes))
    place = Place(node)
    over = place.constant(axes.astype(np.int64))
    reduced = {int(each) % len(sizes) for each in axes}
    kept = [1 if axis in reduced else size for axis, size in enumerate(sizes)]
    largest = place.op("ReduceMax", x, over, shape=kept, keepdims=1)
    total = place.op("ReduceSum", place.op("Exp", place.op("Sub", x, largest)), over, shape=kept, keepdims=1)
    end, nan, zero, one = (place.constant(np.float32(number)) for number in (np.inf, np.nan, 0, 1))
    is_infinite = place.op("Equal", place.op("Abs", largest), end, dtype=ir.DataType.BOOL)
    found = place.op("Where", is_infinite, largest, place.op("Add", place.op("Log", total), largest), like=largest)
    is_number = place.op("Equal", x, x, dtype=ir.DataType.BOOL)
    lacking = place.op("ReduceMax", place.op("Where", is_number, zero, one, like=x), over, shape=kept, keepdims=1)
    found = place.op("Where", place.op("Equal", lacking, one, dtype=ir.DataType.BOOL), nan, found, like=largest)
    if not node.attributes.get_int("keepdims", 1):
        rest = [size for axis, size in enumerate(sizes) if axis not in reduced]
        found = place.op("Squeeze", found, over, shape=rest)
    place.becomes(found)

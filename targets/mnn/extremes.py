"""ArgMax and ArgMin as comparisons: of equal elements MNN 3.6 takes another than ONNX does.

before:  y = ArgMax (x)
after:   hit = Equal (x, ReduceMax (x)), y = n - ReduceMax (hit * (n, n - 1, …, 1))

With ``select_last_index`` places are counted from the other end.  Floats hold them exactly.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.writing import Place, dims, refusal

KINDS = frozenset({"ArgMax", "ArgMin"})
_MOST = 1 << 24
"""Places that float32 counts."""


def write_extremes(node: ir.Node) -> None:
    """In place; ``Unsupported`` where the size of the axis is only known at run time."""
    x, sizes = node.inputs[0], dims(node.inputs[0])
    axis = node.attributes.get_int("axis", 0)
    size = None if sizes is None else sizes[axis]
    if x is None or sizes is None or not isinstance(size, int) or size >= _MOST:
        raise refusal(node, "of equal elements MNN takes another, and the size of its axis is not known; use --static")
    axis %= len(sizes)
    place, kept = Place(node), [1 if each == axis else old for each, old in enumerate(sizes)]
    best = _reduced(place, "ReduceMax" if node.op_type == "ArgMax" else "ReduceMin", x, axis, kept)
    reaches = "GreaterOrEqual" if node.op_type == "ArgMax" else "LessOrEqual"
    equal = place.op(reaches, x, best, like=x, dtype=ir.DataType.BOOL)
    hit = place.op("Cast", equal, dtype=ir.DataType.FLOAT, to=int(ir.DataType.FLOAT))
    is_last = node.attributes.get_int("select_last_index", 0) != 0
    counted = np.arange(1, size + 1) if is_last else np.arange(size, 0, -1)
    shape = [-1 if each == axis else 1 for each in range(len(sizes))]
    weight = place.constant(counted.reshape(shape).astype(np.float32))
    score = _reduced(place, "ReduceMax", place.op("Mul", hit, weight, like=hit), axis, kept)
    ends = place.constant(np.float32(1 if is_last else size))
    found = place.op("Sub", score, ends) if is_last else place.op("Sub", ends, score, like=score)
    whole = place.op("Cast", found, dtype=ir.DataType.INT64, to=int(ir.DataType.INT64))
    if not node.attributes.get_int("keepdims", 1):
        rest = [old for each, old in enumerate(sizes) if each != axis]
        whole = place.op("Squeeze", whole, place.constant(np.array([axis])), shape=rest)
    place.becomes(whole)


def _reduced(place: Place, kind: str, value: ir.Value, axis: int, shape: list[int | ir.SymbolicDim]) -> ir.Value:
    return place.op(kind, value, place.constant(np.array([axis])), shape=shape, keepdims=1)

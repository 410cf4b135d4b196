"""Unique: which values there are, found by comparing each with each."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted, like
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

distinct = Registry()


@distinct.lowers("Unique", since=11)
def unique(b: Builder, x: Tensor, *, axis: int | None = None, sorted: int = 1) -> tuple[Tensor, ...]:
    """Values, the first place of each, the number of each element's value, and how many there are of each.

    NaN equals nothing, itself included: it is in no result.
    """
    if axis is not None and x.rank != 1:
        raise Unsupported(f"equal slices along axis {axis}: only single elements are compared")
    flat = b.reshape(x, (DYNAMIC,)) if x.rank != 1 else x
    (comparable,) = as_accepted(b, "EQUAL", flat)
    same = b.equal(b.reshape(comparable, (DYNAMIC, 1)), b.reshape(comparable, (1, DYNAMIC)))
    earliest = b.arg_max(b.cast(same, "int32"), 1, "int32")
    is_first = b.equal(earliest, _counted(b, flat))
    places = b.cast(b.reshape(b.where(is_first), (DYNAMIC,)), "int32")
    if sorted:
        places = b.gather(places, _ascending(b, b.gather(flat, places, 0)), 0)
    values = b.gather(comparable, places, 0)
    owners = b.equal(b.reshape(comparable, (DYNAMIC, 1)), b.reshape(values, (1, DYNAMIC)))
    numbers = b.cast(owners, "int32")
    counts = b.sum(numbers, (0,), keep_dims=False)
    return (
        b.cast(values, x.dtype),
        b.cast(places, "int64"),
        b.arg_max(numbers, 1, "int64"),
        b.cast(counts, "int64"),
    )


def _counted(b: Builder, x: Tensor) -> Tensor:
    """0, 1, 2, … for each element of a vector, as int32."""
    if x.is_static:
        return b.constant(np.arange(x.shape[0], dtype=np.int32))
    zero, one = (b.constant(np.array(number, np.int32)) for number in (0, 1))
    return b.range(zero, b.reshape(b.size_of(x, 0), ()), one, DYNAMIC)


def _ascending(b: Builder, values: Tensor) -> Tensor:
    """Places of the values from the smallest to the largest."""
    wide = values if values.dtype in ("float32", "int64") else b.cast(values, "int32")
    turned = b.neg(wide) if wide.is_float else b.sub(like(b, wide, -1), wide)
    _, order = b.topk(turned, b.reshape(b.size_of(values, 0), ()))
    return order

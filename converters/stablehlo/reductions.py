"""Reductions, products and sorting primitives on a tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from convertkit.converters.stablehlo.layout import Layout, Size, int64s
from convertkit.converters.stablehlo.tape import Out
from convertkit.converters.stablehlo.tensor import BOOL, I64, U8, Tensor, constant

Reducer = Literal["add", "multiply", "maximum", "minimum", "and", "or", "xor"]

_REDUCE = {
    "add": "ReduceSum",
    "multiply": "ReduceProd",
    "maximum": "ReduceMax",
    "minimum": "ReduceMin",
    "or": "ReduceMax",
    "and": "ReduceMin",
}


class Reductions(Layout):
    """A tape with reductions along axes."""

    def reduce(self, op: Reducer, x: Tensor, axes: Sequence[int], keepdims: bool = False) -> Tensor:
        """Reduce along ``axes``; bools take and/or through their integer values."""
        if not axes:
            return x
        if x.dtype == BOOL:
            return self.cast(self.reduce(op, self.cast(x, U8), axes, keepdims), BOOL)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdims or axis not in axes)
        return self.op(_REDUCE[op], [x, int64s(list(axes))], kept, x.dtype, {"keepdims": int(keepdims)})

    def arg_extreme(self, x: Tensor, axis: int, greatest: bool) -> Tensor:
        """int64 index of the first greatest or least element along ``axis``, which goes away."""
        shape = tuple(size for place, size in enumerate(x.shape) if place != axis)
        # The kernel's main type is the input's; the output is always int64.
        name = "ArgMax" if greatest else "ArgMin"
        if x.dtype == BOOL:
            x = self.cast(x, U8)
        return self.op(name, [x], shape, I64, {"axis": axis, "keepdims": 0})

    def top_k(self, x: Tensor, k: Size, axis: int, largest: bool) -> tuple[Tensor, Tensor]:
        """Sorted values and int64 indices; equal values keep their order."""
        count = k if not isinstance(k, int) else constant(np.array([k], np.int64))
        shape = (*x.shape[:axis], k if isinstance(k, int) else None, *x.shape[axis + 1 :])
        attributes = {"axis": axis, "largest": int(largest), "sorted": 1}
        if x.dtype == BOOL:
            values, indices = self.top_k(self.cast(x, U8), k, axis, largest)
            return self.cast(values, BOOL), indices
        values, indices = self.ops("TopK", [x, count], (Out(shape, x.dtype), Out(shape, I64)), attributes)
        return values, indices

    def take_along(self, x: Tensor, indices: Tensor, axis: int) -> Tensor:
        """ONNX ``GatherElements``."""
        return self.op("GatherElements", [x, indices], indices.shape, x.dtype, {"axis": axis})

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """NumPy's matmul of two tensors of one rank, at least 2, with equal leading dimensions."""
        shape = (*x.shape[:-1], y.shape[-1])
        if len(y.shape) < len(x.shape):
            shape = (*x.shape[:-1], y.shape[-1])
        return self.op("MatMul", [x, y], shape, x.dtype)

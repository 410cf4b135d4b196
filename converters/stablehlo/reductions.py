"""Reductions, products and sorting primitives on a tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import onnx_ir as ir

from convertkit.converters.stablehlo.layout import Layout, Size, int64s
from convertkit.converters.stablehlo.tape import Out
from convertkit.converters.stablehlo.tensor import BOOL, I64, SIGNED, U8, U64, UNSIGNED, Tensor, constant

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
        if op not in ("add", "multiply") and all(x.shape[axis] == 1 for axis in axes):
            return x if keepdims else self.squeeze(x, axes)
        if x.dtype == BOOL:
            return self.cast(self.reduce(op, self.cast(x, U8), axes, keepdims), BOOL)
        if x.dtype in (I64, U64) and op in ("maximum", "minimum") and not self.fits_int32(x):
            return self._extreme(op == "maximum", x, axes, keepdims)
        if x.dtype in (*SIGNED, *UNSIGNED) and op == "add" and not self._counts(x):
            return self._integer_sum(x, axes, keepdims)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdims or axis not in axes)
        return self.op(_REDUCE[op], [x, int64s(list(axes))], kept, x.dtype, {"keepdims": int(keepdims)})

    def _counts(self, x: Tensor) -> bool:
        """Whether values are 0 or 1: cast from bool, so that no sum of them overflows."""
        node = x.core.producer() if isinstance(x.core, ir.Value) else None
        source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
        return source is not None and source.dtype == BOOL

    def _integer_sum(self, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
        """A sum modulo 2^n: the kernel adds in double, which is exact up to 2^53."""
        narrow = x.dtype not in (I64, U64)
        kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape) if keepdims or axis not in axes)
        if narrow:
            wide = self.cast(x, I64)
            total = self.op("ReduceSum", [wide, int64s(list(axes))], kept, I64, {"keepdims": int(keepdims)})
            return self.cast(total, x.dtype)
        wide = self.cast(x, I64)
        for axis in axes:
            running = self.op("CumSum", [wide, constant(np.array(axis, np.int64))], wide.shape, I64)
            wide = self.take(running, axis, -1)
        return self.cast(wide if keepdims else self.squeeze(wide, axes), x.dtype)

    def _extreme(self, greatest: bool, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
        """The greatest or least of 64-bit integers, found by its place (see ``kernels.table``)."""
        for axis in axes:
            shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
            name = "ArgMax" if greatest else "ArgMin"
            place = self.op(name, [x], shape, I64, {"axis": axis, "keepdims": 1})
            x = self.take_along(x, place, axis)
        return x if keepdims else self.squeeze(x, axes)

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

"""ONNX reductions as MIL."""

from __future__ import annotations

import math

import numpy as np

from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.arithmetic import div
from convertkit.targets.coreml.handlers.operands import flat_axes, integers, only_float
from convertkit.targets.coreml.tensor import Tensor, constant

reductions = Registry()


def _reduction(kind: str) -> Handler:
    def handler(
        b: Builder, x: Tensor, axes: Tensor | None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        named = () if axes is None else integers(axes, "axes")
        if not named and noop_with_empty_axes:
            return reduced(b, kind, b.op("expand_dims", x=x, axes=(0,)), (0,), False)
        chosen = flat_axes(named, x.rank) if named else tuple(range(x.rank))
        return reduced(b, kind, x, chosen, bool(keepdims))

    return handler


def reduced(b: Builder, kind: str, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """One reduction over ``axes``; booleans as integers, a mean of integers as a sum that is divided."""
    if x.rank == 0:
        return b.reshape(reduced(b, kind, b.reshape(x, (1,)), (0,), False), ())
    if x.dtype == "bool":
        return b.cast(reduced(b, kind, b.cast(x, "int32"), axes, keepdims), "bool")
    if kind in ("reduce_l2_norm", "reduce_log_sum", "reduce_log_sum_exp"):
        only_float(x, kind)
    if kind == "reduce_log_sum":
        total = b.op("reduce_sum", x=x, axes=axes, keep_dims=keepdims)
        return b.op("log", x=total, epsilon=b.real(0, total))
    if x.dtype == "int32" and kind == "reduce_mean":
        count = b.full(math.prod(x.size(axis) for axis in axes), x)
        return div(b, b.op("reduce_sum", x=x, axes=axes, keep_dims=keepdims), count)
    return b.op(kind, x=x, axes=axes, keep_dims=keepdims)


for _op, _kind, _since in (
    ("ReduceSum", "reduce_sum", (13,)),
    ("ReduceMean", "reduce_mean", (18,)),
    ("ReduceMax", "reduce_max", (18, 20)),
    ("ReduceMin", "reduce_min", (18, 20)),
    ("ReduceProd", "reduce_prod", (18,)),
    ("ReduceL1", "reduce_l1_norm", (18,)),
    ("ReduceL2", "reduce_l2_norm", (18,)),
    ("ReduceSumSquare", "reduce_sum_square", (18,)),
    ("ReduceLogSum", "reduce_log_sum", (18, 28)),
    ("ReduceLogSumExp", "reduce_log_sum_exp", (18, 28)),
):
    reductions.lowers(_op, since=_since)(_reduction(_kind))


def _choice(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        """The last of equal ones is the first from behind."""
        at = axis % x.rank
        if not select_last_index:
            return b.op(kind, x=x, axis=np.int32(at), keep_dims=bool(keepdims))
        turned = b.op("reverse", x=x, axes=(at,))
        place = b.op(kind, x=turned, axis=np.int32(at), keep_dims=bool(keepdims))
        return b.op("sub", x=constant(np.array(x.size(at) - 1, np.int32)), y=place)

    return handler


reductions.lowers("ArgMax", since=13)(_choice("reduce_argmax"))
reductions.lowers("ArgMin", since=13)(_choice("reduce_argmin"))


@reductions.lowers("CumSum", since=14)
def cum_sum(b: Builder, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    (at,) = integers(axis, "axis")
    return b.op("cumsum", x=x, axis=np.int32(at % x.rank), exclusive=bool(exclusive), reverse=bool(reverse))


@reductions.lowers("CumProd", since=26)
def cum_prod(b: Builder, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Products with what stands 1, 2, 4, … places before: as many as the size has binary digits."""
    (place,) = integers(axis, "axis")
    at = place % x.rank
    product = b.op("reverse", x=x, axes=(at,)) if reverse else x
    if exclusive:
        product = _delayed(b, product, at, 1)
    step = 1
    while step < x.size(at):
        product = b.op("mul", x=product, y=_delayed(b, product, at, step))
        step *= 2
    return b.op("reverse", x=product, axes=(at,)) if reverse else product


def _delayed(b: Builder, x: Tensor, axis: int, places: int) -> Tensor:
    """``x`` moved back along ``axis``, with ones in front."""
    sizes = list(x.sizes)
    kept = sizes[axis] - places
    sizes[axis] = places
    front = constant(np.ones(sizes, x.dtype))
    if not kept:
        return front
    ends = tuple(kept if each == axis else 0 for each in range(x.rank))
    mask = tuple(each != axis for each in range(x.rank))
    return b.concat([front, b.op("slice_by_index", x=x, begin=(0,) * x.rank, end=ends, end_mask=mask)], axis)

"""Reductions, arg-reductions, running sums and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import (
    accepted,
    as_accepted,
    constant_ints,
    float_only,
    like,
    moved_last,
)
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

reductions = Registry()

Compute = Callable[[Builder, Tensor, tuple[int, ...], bool], Tensor]

_LARGEST = float(np.finfo(np.float32).max)


def _reduction(compute: Compute) -> Handler:
    """A handler for one of ONNX's Reduce operators, whose axes are an input since opset 18."""

    def handler(
        b: Builder, x: Tensor, axes: Tensor | None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        chosen = () if axes is None else constant_ints(axes, "the reduced axes")
        if not chosen and not noop_with_empty_axes:
            chosen = tuple(range(x.rank))
        return compute(b, x, tuple(sorted(axis % x.rank for axis in chosen)), bool(keepdims))

    return handler


def total(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """Sum over ``axes``."""
    if not axes:
        return x
    (wide,) = as_accepted(b, "SUM", x)
    return b.cast(b.sum(wide, axes, keep_dims=keep), x.dtype) if wide is not x else b.sum(x, axes, keep_dims=keep)


def _mean(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """MEAN of integers rounds in float32; ONNX Runtime divides their sum and cuts."""
    if x.dtype == "int32" and not x.is_quantized and axes:
        count = math.prod(known_size(x, axis, "the mean of integers") for axis in axes)
        return b.div(b.sum(x, axes, keep_dims=keep), like(b, x, count))
    if not x.is_quantized:
        float_only(x, "ReduceMean")
    if not axes:
        return x
    return _mean_of_rows(b, x, len(axes), keep) if _goes_by_rows(b, x, axes) else b.mean(x, axes, keep_dims=keep)


def _goes_by_rows(b: Builder, x: Tensor, axes: tuple[int, ...]) -> bool:
    """Whether these are the last axes of an image or a batch, along which NPUs have no mean.

    Source of the rule: Vela's ``tflite_model_semantic.py``, ``constraint_mean_axis``.
    """
    is_last = sorted(axis % x.rank for axis in axes) == list(range(x.rank - len(axes), x.rank))
    if not (b.program.portable and is_last and x.dtype == "int8" and x.is_static):
        return False
    return math.prod(x.shape[:-3]) > 1 or (x.rank > 2 and min(x.shape[-3:]) > 1)


def _mean_of_rows(b: Builder, x: Tensor, count: int, keep: bool) -> Tensor:
    """Along the last ``count`` axes."""
    outer, inner = x.shape[: x.rank - count], x.shape[x.rank - count :]
    means = b.mean(b.reshape(x, (math.prod(outer), math.prod(inner))), (1,), keep_dims=True)
    return b.reshape(means, (*outer, *([1] * count if keep else [])))


def _extreme(code: str) -> Compute:
    def compute(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        if not axes:
            return x
        methods = {"REDUCE_MAX": b.reduce_max, "REDUCE_MIN": b.reduce_min}
        of_bools = {"REDUCE_MAX": b.reduce_any, "REDUCE_MIN": b.reduce_all}
        if x.dtype == "bool":
            return of_bools[code](x, axes, keep_dims=keep)
        (wide,) = as_accepted(b, code, x)
        result = methods[code](wide, axes, keep_dims=keep)
        return result if wide is x else b.cast(result, x.dtype)

    return compute


def _prod(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    if not axes:
        return x
    (wide,) = as_accepted(b, "REDUCE_PROD", x)
    return b.cast(b.reduce_prod(wide, axes, keep_dims=keep), x.dtype)


def _l1(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return total(b, b.abs(x), axes, keep)


def _l2(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    float_only(x, "ReduceL2")
    return b.sqrt(total(b, b.square(x), axes, keep))


def _sum_square(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return total(b, b.mul(x, x), axes, keep)


def _log_sum(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    float_only(x, "ReduceLogSum")
    return b.log(total(b, x, axes, keep))


def log_sum_exp(b: Builder, x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    """``log(sum(exp(x)))`` without overflow: the maximum is taken out, where it is finite."""
    float_only(x, "ReduceLogSumExp")
    if not axes:
        return x
    peak = b.reduce_max(x, axes, keep_dims=True)
    peak = b.minimum(b.maximum(peak, like(b, x, -_LARGEST)), like(b, x, _LARGEST))
    result = b.add(b.log(b.sum(b.exp(b.sub(x, peak)), axes, keep_dims=True)), peak)
    return result if keep else b.squeeze(result, axes)


for _op, _since, _compute in (
    ("ReduceSum", (13,), total),
    ("ReduceMean", (18,), _mean),
    ("ReduceMax", (18, 20), _extreme("REDUCE_MAX")),
    ("ReduceMin", (18, 20), _extreme("REDUCE_MIN")),
    ("ReduceProd", (18,), _prod),
    ("ReduceL1", (18,), _l1),
    ("ReduceL2", (18,), _l2),
    ("ReduceSumSquare", (18,), _sum_square),
    ("ReduceLogSum", (18, 28), _log_sum),
    ("ReduceLogSumExp", (18, 28), log_sum_exp),
):
    reductions.lowers(_op, since=_since)(_reduction(_compute))


def known_size(x: Tensor, axis: int, what: str) -> int:
    """The size of one axis; a refusal where it is only known at run time."""
    if x.shape[axis] == DYNAMIC:
        raise UnknownSize(f"{what} along an axis whose size is only known at run time")
    return x.shape[axis]


def _arg_reduction(code: str) -> Handler:
    def handler(b: Builder, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        """The first of equal extremes, or the last: the first one from behind."""
        axis %= x.rank
        find = b.arg_max if code == "ARG_MAX" else b.arg_min
        if x.dtype == "int64":  # the kernels take none: the first place where the extreme is
            extreme = (b.reduce_max if code == "ARG_MAX" else b.reduce_min)(x, (axis,), keep_dims=True)
            x, find = b.cast(b.equal(x, extreme), "int32"), b.arg_max
        (wide,) = as_accepted(b, code, x)
        index = find(b.reverse(wide, (axis,)) if select_last_index else wide, axis)
        if select_last_index:
            size = known_size(x, axis, "the last of equal extremes")
            index = b.sub(like(b, index, size - 1), index)
        return b.expand_dims(index, axis) if keepdims else index

    return handler


reductions.lowers("ArgMax", since=13)(_arg_reduction("ARG_MAX"))
reductions.lowers("ArgMin", since=13)(_arg_reduction("ARG_MIN"))


@reductions.lowers("Hardmax", since=13)
def hardmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """One at the first maximum."""
    axis %= x.rank
    (wide,) = as_accepted(b, "ARG_MAX", x)
    index = b.arg_max(wide, axis, "int32")
    depth = b.constant(np.array(known_size(x, axis, "Hardmax"), np.int32))
    return b.one_hot(index, depth, like(b, x, 1), like(b, x, 0), axis)


@reductions.lowers("CumSum", since=14)
def cum_sum(b: Builder, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    (place,) = constant_ints(axis, "the axis")
    (wide,) = as_accepted(b, "CUMSUM", x)
    summed = b.cumsum(wide, place % x.rank, exclusive=bool(exclusive), reverse=bool(reverse))
    return summed if wide is x else b.cast(summed, x.dtype)


@reductions.lowers("CumProd", since=26)
def cum_prod(b: Builder, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Products with the values 1, 2, 4, … places before: log2(size) multiplications."""
    (place,) = constant_ints(axis, "the axis")
    place %= x.rank
    if not x.is_static:
        raise UnknownSize("CumProd of sizes that are only known at run time")
    (product,) = as_accepted(b, "MUL", x)
    if reverse:
        product = b.reverse(product, (place,))
    if exclusive:
        product = _delayed(b, product, place, 1)
    step = 1
    while step < x.shape[place]:
        product = b.mul(product, _delayed(b, product, place, step))
        step *= 2
    product = b.reverse(product, (place,)) if reverse else product
    return b.cast(product, x.dtype)


def _delayed(b: Builder, x: Tensor, axis: int, places: int) -> Tensor:
    """``x`` moved back along ``axis``, with ones in front."""
    kept = list(x.shape)
    kept[axis] -= places
    ones = [*x.shape]
    ones[axis] = places
    front = b.constant(np.ones(ones, x.dtype))
    return b.concatenation([front, b.slice(x, (0,) * x.rank, kept)], axis)


_NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
"""Integers that TopK ranks as they are, but SUB does not mirror."""


@reductions.lowers("TopK", since=(11, 24))
def top_k(
    b: Builder,
    x: Tensor,
    k: Tensor,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> tuple[Tensor, Tensor]:
    """The kernel sorts always; the smallest are the largest of the mirrored values, ties by index as before."""
    axis %= x.rank
    (wide,) = as_accepted(b, "TOPK_V2", x)
    if not largest and not x.is_quantized and wide.dtype in ("int8", "uint8", "int16", "uint16"):
        wide = b.cast(wide, "int32")  # in which the mirrored values fit, and SUB computes
    if not largest and wide.dtype in _NARROW:
        wide = b.cast(wide, "int32")
    swapped, order = moved_last(b, wide, axis)
    ranked = swapped if largest else _mirrored(b, swapped)
    values, indices = b.topk(ranked, _scalar_k(b, k))
    values = values if largest else _mirrored(b, values)
    values, indices = b.transpose(values, order), b.transpose(indices, order)
    return b.cast(values, x.dtype), b.cast(indices, "int64")


def _mirrored(b: Builder, x: Tensor) -> Tensor:
    """Values in opposite order: negated, or ``-1 - x`` for integers, which cannot overflow."""
    if x.is_float:
        return b.neg(x)
    if x.is_quantized or x.dtype not in b.dtypes("SUB"):
        raise Unsupported(f"the smallest values of {x.dtype}: TFLite SUB takes {', '.join(b.dtypes('SUB'))}")
    return b.sub(like(b, x, -1), x)


def _scalar_k(b: Builder, k: Tensor) -> Tensor:
    return b.reshape(b.cast(k, "int32"), ())


@reductions.lowers("LpNormalization", since=(1, 22))
def lp_normalization(b: Builder, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Zero where the norm is zero."""
    float_only(x, "LpNormalization")
    axes = (axis % x.rank,)
    norm = _l1(b, x, axes, True) if p == 1 else _l2(b, x, axes, True)
    empty = b.equal(norm, like(b, x, 0))
    return b.div(x, b.select(empty, like(b, x, 1), norm))


@reductions.lowers("Trilu", since=14)
def trilu(b: Builder, x: Tensor, k: Tensor | None, *, upper: int = 1) -> Tensor:
    """One triangle of each matrix; the rest is zero."""
    dtype = accepted(b, "SELECT_V2", x.dtype)
    wide = b.cast(x, dtype)
    return b.cast(b.select(_triangle(b, x, k, bool(upper)), wide, like(b, wide, 0)), x.dtype)


def _triangle(b: Builder, x: Tensor, k: Tensor | None, upper: bool) -> Tensor:
    """True where the column is at least (``upper``) or at most so far right of the row as the diagonal."""
    rows, columns = (b.reshape(_counted(b, x, axis), view) for axis, view in ((-2, (DYNAMIC, 1)), (-1, (1, DYNAMIC))))
    shift = b.constant(np.array(0, np.int32)) if k is None else b.reshape(b.cast(k, "int32"), ())
    known = [each.constant for each in (rows, columns, shift)]
    if known[0] is not None and known[1] is not None and known[2] is not None:
        ahead = known[1] - known[0]
        return b.constant(ahead >= known[2] if upper else ahead <= known[2])
    return (b.greater_equal if upper else b.less_equal)(b.sub(columns, rows), shift)


def _counted(b: Builder, x: Tensor, axis: int) -> Tensor:
    """0, 1, 2, … along an axis, as int32."""
    if x.shape[axis] != DYNAMIC:
        return b.constant(np.arange(x.shape[axis], dtype=np.int32))
    zero, one = (b.constant(np.array(number, np.int32)) for number in (0, 1))
    return b.range(zero, b.reshape(b.size_of(x, axis % x.rank), ()), one, DYNAMIC)


@reductions.lowers("EyeLike", since=(9, 22))
def eye_like(b: Builder, x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """A constant: only the input's shape and type count."""
    from onnx import helper

    if not x.is_static:
        raise UnknownSize("the shape is only known at run time")
    kind = helper.tensor_dtype_to_np_dtype(dtype) if dtype else np.dtype(x.dtype)
    rows, columns = x.shape
    return b.constant(np.eye(rows, columns, k, dtype=kind))


@reductions.lowers("ReverseSequence", since=(10, 28))
def reverse_sequence(b: Builder, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """The first elements of each sequence backwards, the rest as it is."""
    (wide,) = as_accepted(b, "REVERSE_SEQUENCE", x)
    done = b.reverse_sequence(wide, lengths, seq_dim=time_axis, batch_dim=batch_axis)
    return done if wide is x else b.cast(done, x.dtype)

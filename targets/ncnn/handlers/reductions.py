"""Reductions over axes, which the layer Reduction takes in the order of the blob's own."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.handlers.activations import unary
from convertkit.targets.ncnn.handlers.arithmetic import binary
from convertkit.targets.ncnn.handlers.moves import as_shape
from convertkit.targets.ncnn.tensor import Tensor

reductions = Registry()

_KINDS = {
    "ReduceSum": 0, "ReduceSumSquare": 2, "ReduceMean": 3, "ReduceMax": 4, "ReduceMin": 5, "ReduceProd": 6,
    "ReduceL1": 7, "ReduceL2": 8, "ReduceLogSum": 9,
}  # fmt: skip
_LOG_SUM_EXP = "ReduceLogSumExp"


def reduced(b: Builder, x: Tensor, kind: str, axes: tuple[int, ...], *, keepdims: bool) -> Tensor:
    """``x`` reduced over ``axes`` of ONNX."""
    places = {axis % x.rank for axis in axes}
    shape = tuple(1 if axis in places else size for axis, size in enumerate(x.shape))
    kept = shape if keepdims else tuple(size for axis, size in enumerate(x.shape) if axis not in places)
    found, where = b.along(x, sorted(places))
    sizes = tuple(1 if place in where else size for place, size in enumerate(found.sizes))
    return b.layer("Reduction", [found], kept, sizes, {0: _KINDS[kind], 1: 0, 3: where, 4: 1, 5: 1})


def log_sum_exp(b: Builder, x: Tensor, axes: tuple[int, ...], *, keepdims: bool) -> Tensor:
    """Of differences to the largest: the layer's own is infinite for numbers from 89 on."""
    most = reduced(b, x, "ReduceMax", axes, keepdims=True)
    total = reduced(b, unary(b, "Exp", binary(b, "Sub", x, most)), "ReduceSum", axes, keepdims=keepdims)
    return binary(b, "Add", unary(b, "Log", total), as_shape(b, most, total.shape))


def _handler(kind: str) -> Handler:
    def handler(
        b: Builder, x: Tensor, axes: Tensor | None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        given = () if axes is None else tuple(int(axis) for axis in axes.known.reshape(-1))
        if not given and noop_with_empty_axes:
            return x
        if not x.rank:
            raise Unsupported("a single number without axes")
        over = given or tuple(range(x.rank))
        if kind == _LOG_SUM_EXP:
            return log_sum_exp(b, x, over, keepdims=bool(keepdims))
        return reduced(b, x, kind, over, keepdims=bool(keepdims))

    return handler


for _op in (*_KINDS, _LOG_SUM_EXP):
    _since = (13,) if _op == "ReduceSum" else (18, 20) if _op in ("ReduceMax", "ReduceMin") else (18,)
    reductions.lowers(_op, since=_since)(_handler(_op))

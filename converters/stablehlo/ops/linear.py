"""Triangular systems and Cholesky factors, row by row.

The rows depend on each other, so a matrix of n rows takes n steps: written out up to 32 rows, a
``Loop`` above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import text
from convertkit.converters.stablehlo.registry import Handlers
from convertkit.converters.stablehlo.tape import Out
from convertkit.converters.stablehlo.tensor import BF16, BOOL, F16, F32, I64, Tensor, constant
from convertkit.errors import Unsupported

linear = Handlers()

_WRITTEN_OUT = 32
Step = Callable[[Builder, Tensor, Tensor], Tensor]
"""Row number (int64, shape [1]) and the matrix so far → the matrix with that row filled in."""


@linear.translates
def triangular_solve(b: Builder, op: hlo.TriangularSolveOp, a: Tensor, y: Tensor) -> Tensor:
    how = Triangle(
        left=_flag(op, "left_side"),
        lower=_flag(op, "lower"),
        transposed=text(op.transpose_a) in ("TRANSPOSE", "ADJOINT"),
        unit=_flag(op, "unit_diagonal"),
    )
    return solved(b, a, y, how)


@dataclass(frozen=True, slots=True)
class Triangle:
    """Which half of a matrix counts, on which side of the unknown it stands, and how it is read."""

    left: bool
    lower: bool
    transposed: bool
    unit: bool


def _flag(op: hlo.TriangularSolveOp, name: str) -> bool:
    return name in op.attributes and str(op.attributes[name]) == "true"


def solved(b: Builder, a: Tensor, y: Tensor, how: Triangle) -> Tensor:
    """``a · x = y`` (or ``x · a = y``), brought to a lower triangle with the unknown on the right."""
    if a.dtype in (F16, BF16):
        return b.cast(solved(b, b.cast(a, F32), b.cast(y, F32), how), y.dtype)
    swap = [*range(a.rank - 2), a.rank - 1, a.rank - 2]
    lower = how.lower
    if how.transposed:
        a, lower = b.transpose(a, swap), not lower
    if not how.left:  # x·a = y is aᵀ·xᵀ = yᵀ
        a, y, lower = b.transpose(a, swap), b.transpose(y, swap), not lower
    if not lower:  # counted from the end, an upper triangle is a lower one
        a, y = b.reverse(a, [a.rank - 2, a.rank - 1]), b.reverse(y, [y.rank - 2])
    x = forward_substitution(b, a, y, how.unit)
    if not lower:
        x = b.reverse(x, [x.rank - 2])
    return x if how.left else b.transpose(x, swap)


def forward_substitution(b: Builder, a: Tensor, y: Tensor, unit: bool) -> Tensor:
    """Solve ``a · x = y`` for a lower triangular ``a``; what is above the diagonal is not read."""
    rows = a.rank - 2

    def step(inner: Builder, row: Tensor, x: Tensor) -> Tensor:
        factors = inner.op("Gather", [a, row], (*a.shape[:rows], 1, a.shape[-1]), a.dtype, {"axis": rows})
        value = inner.op("Gather", [y, row], (*y.shape[:rows], 1, y.shape[-1]), y.dtype, {"axis": rows})
        # Rows of x that are not computed yet are 0; NaN above the diagonal must not leak through them.
        read = inner.where(inner.less(_columns(a.shape[-1]), row), factors, 0.0)
        rest = inner.sub(value, inner.op("MatMul", [read, x], value.shape, a.dtype))
        if not unit:
            diagonal = inner.op("Gather", [factors, row], (*factors.shape[:-1], 1), a.dtype, {"axis": a.rank - 1})
            rest = inner.div(rest, diagonal)
        return _with_row(inner, x, row, rest)

    return _row_by_row(b, y, step)


@linear.translates
def cholesky(b: Builder, op: hlo.CholeskyOp, a: Tensor) -> Tensor:
    lower = "lower" in op.attributes and str(op.attributes["lower"]) == "true"
    return factored(b, a, lower)


def factored(b: Builder, a: Tensor, lower: bool) -> Tensor:
    """The Cholesky factor, zero in its other half; NaN from the first pivot on that is not positive."""
    swap = [*range(a.rank - 2), a.rank - 1, a.rank - 2]
    wide = b.cast(a, F32) if a.dtype in (F16, BF16) else a
    factor = _factor(b, wide if lower else b.transpose(wide, swap))
    return b.cast(factor if lower else b.transpose(factor, swap), a.dtype)


def _factor(b: Builder, a: Tensor) -> Tensor:
    """The lower triangle L of ``a = L · Lᵀ``, column by column; only the lower half is read."""
    rank, rows = a.rank, a.rank - 2

    def step(inner: Builder, row: Tensor, x: Tensor) -> Tensor:
        own = inner.op("Gather", [x, row], (*x.shape[:rows], 1, x.shape[-1]), x.dtype, {"axis": rows})
        column = inner.op("Gather", [a, row], (*a.shape[:-1], 1), a.dtype, {"axis": rank - 1})
        swap = [*range(rows), rank - 1, rank - 2]
        rest = inner.sub(column, inner.op("MatMul", [x, inner.transpose(own, swap)], column.shape, a.dtype))
        pivot = inner.op("Gather", [rest, row], (*rest.shape[:rows], 1, 1), a.dtype, {"axis": rows})
        below = inner.greater_equal(inner.reshape(_columns(a.shape[-1]), (a.shape[-1], 1)), row)
        scaled = inner.where(below, inner.div(rest, inner.sqrt(pivot)), 0.0)
        here = inner.equal(_columns(a.shape[-1]), row)
        return inner.where(here, scaled, x)

    return _row_by_row(b, a, step)


def _columns(size: int | None) -> Tensor:
    if size is None:
        raise Unsupported("a matrix of a size that is known only at run time")
    return constant(np.arange(size, dtype=np.int64))


def _with_row(b: Builder, x: Tensor, row: Tensor, value: Tensor) -> Tensor:
    count = x.shape[-2]
    here = b.equal(b.reshape(_columns(count), (count, 1)), row)
    return b.where(here, value, x)


def _row_by_row(b: Builder, like: Tensor, step: Step) -> Tensor:
    count = like.shape[-2]
    if count is None:
        raise Unsupported("a matrix of a size that is known only at run time")
    none = b.like(like, 0.0)
    free = None in like.shape  # what is as large as ``like`` is made of it
    x = b.where(b.equal(like, like), none, 0.0) if free else b.full(b.broadcast_in_dim(none, like.shape, []))
    if count <= _WRITTEN_OUT:
        for row in range(count):
            x = b.full(step(b, constant(np.array([row], np.int64)), x))
        return x
    inner = b.child()
    number, going = inner.fresh((), I64, "row"), inner.fresh((), BOOL, "going")
    so_far = inner.fresh(x.shape, x.dtype, "rows")
    filled = inner.full(step(inner, inner.reshape(number, (1,)), so_far))
    graph = inner.graph("row", [number, going, so_far], [going, filled])
    trips = constant(np.array(count, np.int64))
    return b.raw("Loop", [trips, constant(np.array(True)), x], (Out(x.shape, x.dtype),), {"body": graph})[0]

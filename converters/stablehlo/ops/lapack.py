"""The LAPACK and BLAS routines that JAX's exports for CPU call, where ONNX can express them.

Of a dynamic batch, a call takes the shapes of its results as well, which follow from its operands.
"""

from __future__ import annotations

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import int64s
from convertkit.converters.stablehlo.mlir import integer
from convertkit.converters.stablehlo.ops.linear import Triangle, factored, solved
from convertkit.converters.stablehlo.tensor import F32, F64, I32, I64, Operand, Tensor, constant, splat
from convertkit.errors import Unsupported

_WRITTEN_OUT = 32
"""The largest matrix that is eliminated; every column is some fifteen operators."""


def letter(op: hlo.CustomCallOp, name: str) -> str:
    """One of the routine's character arguments, which the call carries as its code."""
    for holder in ("mhlo.backend_config", "backend_config"):
        if holder in op.attributes and name in op.attributes[holder]:
            return chr(integer(op.attributes[holder][name]))
    raise Unsupported(f"a LAPACK call without its argument {name}")


def cholesky(b: Builder, op: hlo.CustomCallOp, a: Tensor, *sizes: Tensor) -> tuple[Operand, ...]:
    """``potrf``: the factor in one half, the other as it was; and the number of the first bad pivot, 0 for none."""
    lower = letter(op, "uplo") == "L"
    size = a.shape[-1]
    if size is None:
        raise Unsupported("a matrix of a size that is known only at run time")
    if 0 in a.shape:
        return a, splat(0, a.shape[:-2], I32)
    factor = factored(b, a, lower)
    half = np.tri(size, dtype=bool)
    inside = constant(half if lower else half.T)
    diagonal = b.reduce("add", b.where(constant(np.eye(size, dtype=bool)), factor, 0.0), [a.rank - 1])
    bad = b.logical_not(b.greater(diagonal, 0.0))
    first = b.add(b.arg_extreme(bad, bad.rank - 1, True), int64s([1]))
    first = first if first.rank == a.rank - 2 else b.reshape(first, a.shape[:-2])
    info = b.where(b.reduce("or", bad, [bad.rank - 1]), b.cast(first, I32), 0)
    return b.where(inside, factor, a), info


def triangular_solve(b: Builder, op: hlo.CustomCallOp, a: Tensor, y: Tensor, *sizes: Tensor) -> tuple[Operand, ...]:
    """``trsm`` with a factor of one."""
    how = Triangle(
        left=letter(op, "side") == "L",
        lower=letter(op, "uplo") == "L",
        transposed=letter(op, "trans_x") != "N",
        unit=letter(op, "diag") == "U",
    )
    return (solved(b, a, y, how),)


def elimination(b: Builder, op: hlo.CustomCallOp, a: Tensor, *sizes: Tensor) -> tuple[Operand, ...]:
    """``getrf``: both factors in one matrix, the row that each step exchanged, and the first pivot that is 0.

    Rows and pivots count from 1; every step takes the row of the largest element, as LAPACK does.
    """
    rows, columns = a.shape[-2:]
    if rows is None or columns is None or max(rows, columns) > _WRITTEN_OUT:
        raise Unsupported(
            f"the factors of a matrix of {rows} x {columns}; expected fixed sizes, at most {_WRITTEN_OUT}"
        )
    if a.dtype not in (F32, F64) or 0 in (rows, columns):
        raise Unsupported("the factors of a matrix that is not real or has no elements")
    exchanged, empty = [], []
    for step in range(min(rows, columns)):
        a, place, pivot = _eliminated(b, a, step)
        exchanged.append(b.squeeze(place, [a.rank - 2]))
        number, none = (constant(np.array(value, np.int32)) for value in (step + 1, columns + 1))
        empty.append(b.squeeze(b.where(b.equal(pivot, 0.0), number, none), [a.rank - 2]))
    last = a.rank - 2
    first = b.reduce("minimum", b.concat(empty, last), [last])
    info = b.where(b.greater(first, columns), 0, first)
    return a, b.add(b.cast(b.concat(exchanged, last), I32), 1), info


def _eliminated(b: Builder, a: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
    """One column: the matrix after it, the row that came up (from 0) and its pivot, both (…, 1, 1)."""
    rank, (rows, columns) = a.rank, a.shape[-2:]
    assert rows is not None
    assert columns is not None
    below = np.arange(rows)[:, None] > step
    at_step, from_step = (
        constant(mask) for mask in (np.arange(rows)[:, None] == step, np.arange(rows)[:, None] < step)
    )
    sizes = b.where(from_step, -1.0, b.abs(b.take(a, rank - 1, step, step + 1)))
    place = b.op("ArgMax", [sizes], (*a.shape[:-2], 1, 1), I64, {"axis": rank - 2, "keepdims": 1})
    chosen = b.equal(constant(np.arange(rows, dtype=np.int64)[:, None]), place)
    row = b.reduce("add", b.where(chosen, a, 0.0), [rank - 2], keepdims=True)
    a = b.where(at_step, row, b.where(chosen, b.take(a, rank - 2, step, step + 1), a))
    pivot = b.take(row, rank - 1, step, step + 1)
    factors = b.div(b.take(a, rank - 1, step, step + 1), b.where(b.equal(pivot, 0.0), 1.0, pivot))
    less = b.sub(a, b.mul(factors, row))
    behind, here = (np.arange(columns) > step), (np.arange(columns) == step)
    a = b.where(constant(below & behind), less, b.where(constant(below & here), factors, a))
    return a, place, pivot


ROUTINES = {
    f"lapack_{kind}{name}_ffi": routine
    for kind in "sd"
    for name, routine in (("getrf", elimination), ("potrf", cholesky), ("trsm", triangular_solve))
}

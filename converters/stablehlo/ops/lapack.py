"""The LAPACK and BLAS routines that JAX's exports for CPU call, where ONNX can express them."""

from __future__ import annotations

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.layout import int64s
from convertkit.converters.stablehlo.mlir import integer
from convertkit.converters.stablehlo.ops.linear import Triangle, factored, solved
from convertkit.converters.stablehlo.tensor import I32, Operand, Tensor, constant, splat
from convertkit.errors import Unsupported


def _letter(op: hlo.CustomCallOp, name: str) -> str:
    """One of the routine's character arguments, which the call carries as its code."""
    for holder in ("mhlo.backend_config", "backend_config"):
        if holder in op.attributes and name in op.attributes[holder]:
            return chr(integer(op.attributes[holder][name]))
    raise Unsupported(f"a LAPACK call without its argument {name}")


def cholesky(b: Builder, op: hlo.CustomCallOp, a: Tensor) -> tuple[Operand, ...]:
    """``potrf``: the factor in one half, the other as it was; and the number of the first bad pivot, 0 for none."""
    lower = _letter(op, "uplo") == "L"
    size = a.shape[-1]
    if size is None:
        raise Unsupported("a matrix of a size that only the running model knows")
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


def triangular_solve(b: Builder, op: hlo.CustomCallOp, a: Tensor, y: Tensor) -> tuple[Operand, ...]:
    """``trsm`` with a factor of one."""
    how = Triangle(
        left=_letter(op, "side") == "L",
        lower=_letter(op, "uplo") == "L",
        transposed=_letter(op, "trans_x") != "N",
        unit=_letter(op, "diag") == "U",
    )
    return (solved(b, a, y, how),)


ROUTINES = {
    f"lapack_{kind}{name}_ffi": routine
    for kind in "sd"
    for name, routine in (("potrf", cholesky), ("trsm", triangular_solve))
}

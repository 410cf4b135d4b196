"""Diagonals put into matrices, and matrices that are inverted, solved or measured, registered with tf2onnx.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.converters.tensorflow.compat import MatrixDiag, tf_op
from convertkit.converters.tensorflow.forms import Form

_WRITTEN_OUT = 32
"""The largest matrix that is eliminated; every column is some fifteen operators."""
_MINORS = 4
"""Up to this size the determinant is a plain operator for every target."""


@tf_op(["MatrixDiag", "MatrixDiagV2", "MatrixDiagV3"])
class Diagonals(MatrixDiag):  # type: ignore[misc]  # tf2onnx has no types
    """Elements taken by a table of places; tf2onnx's form takes away a batch of one."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **how: Any) -> None:
        f = Form(ctx, node)
        bands, shape = [0, 0], f.shape()
        if len(node.input) > 1:
            bands = [int(each) for each in np.broadcast_to(f.known(1).reshape(-1), 2)]
        rank = 1 if bands[0] == bands[1] else 2
        if min(shape[-rank:]) < 1:
            cls.version_12(ctx, node, **how)
            return
        sizes = [int(f.known(place)) for place in (2, 3)] if len(node.input) > 2 else [-1, -1]
        aligned = str(f.flag("align", "LEFT_LEFT" if node.type == "MatrixDiagV2" else "RIGHT_LEFT"))
        places = _places(shape[-1], (bands[0], bands[1]), (sizes[0], sizes[1]), aligned)
        flat = node.input[0]
        if rank == 2:
            flat = f.op("Reshape", flat, f.constant([*[0] * (len(shape) - 2), -1]))
        taken = f.op("Gather", flat, f.constant(np.maximum(places, 0)), axis=-1)
        padding = node.input[4] if len(node.input) > 4 else f.like(0)
        f.end(f.op("Where", f.constant(places >= 0, np.bool_), taken, padding))


def _places(longest: int, bands: tuple[int, int], sizes: tuple[int, int], aligned: str) -> np.ndarray[Any, Any]:
    """Which element of the diagonals, row by row from the highest, each element of the matrix is; -1 for none.

    Source of the rule: ``tf.linalg.diag``, "k", "num_rows" and "align".
    """
    low, high = bands
    least = (longest - min(high, 0), longest + max(low, 0))
    rows, columns = (known if known > 0 else wanted for known, wanted in zip(sizes, least, strict=True))
    if max(sizes) < 1:
        rows = columns = max(least)
    row, column = np.indices((rows, columns))
    band = column - row
    length = np.minimum(rows + np.minimum(band, 0), columns - np.maximum(band, 0))
    above, _, below = aligned.partition("_")
    left = ((band >= 0) & (above == "LEFT")) | ((band <= 0) & (below == "LEFT"))
    inner = np.minimum(row, column) + np.where(left, 0, longest - length)
    return np.where((band >= low) & (band <= high), (high - band) * longest + inner, -1)


def _square(f: Form, place: int = 0) -> int:
    """The size of square matrices that are eliminated."""
    size = f.shape(place)[-1]
    if not 0 < size <= _WRITTEN_OUT:
        raise ValueError(f"{f.node.type} of {size} x {size} matrices; expected a fixed size, at most {_WRITTEN_OUT}")
    return size


def _turned(f: Form, value: str, place: int = 0) -> str:
    rank = len(f.shape(place))
    return f.op("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])


def _eliminated(f: Form, table: str, size: int) -> tuple[str, list[str], list[str]]:
    """[A | B] as [1 | B / A], the pivots, and whether each came from its own row, all (…, 1, 1).

    Each column takes the row of the largest element, as LAPACK does.
    """
    rows = np.arange(size)[:, None]
    zero, one, less = f.like(0), f.like(1), f.like(-1)
    pivots, own = [], []
    for step in range(size):
        here, at = f.constant(rows == step, np.bool_), f.constant([step])
        column = f.op("Gather", table, at, axis=-1)
        sizes = f.op("Where", f.constant(rows < step, np.bool_), less, f.op("Abs", column))
        place = f.op("ArgMax", sizes, axis=-2, keepdims=1)
        chosen = f.op("Equal", f.constant(rows), place)
        row = f.op("ReduceSum", f.op("Where", chosen, table, zero), f.constant([-2]), keepdims=1)
        table = f.op("Where", here, row, f.op("Where", chosen, f.op("Gather", table, at, axis=-2), table))
        pivot = f.op("Gather", row, at, axis=-1)
        unit = f.op("Div", row, f.op("Where", f.op("Equal", pivot, zero), one, pivot))
        rest = f.op("Sub", table, f.op("Mul", f.op("Gather", table, at, axis=-1), unit))
        table = f.op("Where", here, unit, rest)
        pivots.append(pivot)
        own.append(f.op("Equal", place, f.constant(step)))
    return table, pivots, own


def _beside(f: Form, matrix: str, right: str, size: int) -> str:
    """B / A of A and B beside each other."""
    table = _eliminated(f, f.op("Concat", matrix, right, axis=-1), size)[0]
    return f.part(table, -1, size, np.iinfo(np.int64).max)


@tf_op("MatrixInverse")
class Inverse:
    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        size = _square(f)
        matrix = _turned(f, node.input[0]) if f.flag("adjoint") else node.input[0]
        one = f.op("Expand", f.like(np.eye(size)), f.op("Shape", matrix))
        f.end(_beside(f, matrix, one, size))


@tf_op("MatrixSolve")
class Solve:
    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        matrix = _turned(f, node.input[0]) if f.flag("adjoint") else node.input[0]
        f.end(_beside(f, matrix, node.input[1], _square(f)))


def _sign(f: Form, own: list[str]) -> list[str]:
    """-1 for each row that changed places."""
    return [f.op("Where", each, f.like(1), f.like(-1)) for each in own]


def _product(f: Form, factors: list[str]) -> str:
    found = f.op("ReduceProd", f.op("Concat", *factors, axis=-1), f.constant([-1]), keepdims=0)
    return f.op("Squeeze", found, f.constant([-1]))


@tf_op("LogMatrixDeterminant")
class LogDeterminant:
    """The sign and the logarithm of the absolute value."""

    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        pivots, own = _eliminated(f, node.input[0], _square(f))[1:]
        logarithms = f.op("Log", f.op("Abs", f.op("Concat", *pivots, axis=-1)))
        total = f.op("ReduceSum", logarithms, f.constant([-1]), keepdims=0)
        sign = _product(f, [*_sign(f, own), *(f.op("Sign", each) for each in pivots)])
        f.end(sign, f.op("Squeeze", total, f.constant([-1])))


@tf_op("MatrixDeterminant")
class Determinant:
    """The product of the pivots, where targets have no operator."""

    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        if not _MINORS < f.shape()[-1] <= _WRITTEN_OUT:
            f.end(f.op("Det", node.input[0]))
            return
        pivots, own = _eliminated(f, node.input[0], f.shape()[-1])[1:]
        f.end(_product(f, [*_sign(f, own), *pivots]))

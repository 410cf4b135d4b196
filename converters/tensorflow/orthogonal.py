"""Orthogonal factors and eigenvalues of small matrices, written out and registered with tf2onnx.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.converters.tensorflow.compat import tf_op
from convertkit.converters.tensorflow.forms import Form

_WRITTEN_OUT = 32
"""The most columns that are reflected; each is some twenty operators."""
_TURNED = 12
"""The largest matrix whose eigenvalues are written out: sweeps times rows times some twenty-five operators."""
_SWEEPS = 7


@tf_op("Qr")
class Qr:
    """Householder's reflections with Eigen's signs, which are LAPACK's."""

    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        m, n = f.shape()[-2:]
        least = min(m, n)
        if not 0 < least <= _WRITTEN_OUT or max(m, n) < 1:
            raise ValueError(f"Qr of a matrix of {m} x {n}; expected fixed sizes, the less at most {_WRITTEN_OUT}")
        table, mirrors = node.input[0], []
        for step in range(least):
            mirrors.append(_mirror(f, table, np.arange(m)[:, None], step))
            table = _mirrored(f, table, *mirrors[-1])
        count = m if f.flag("full_matrices") else least
        lead = f.part(f.op("Shape", node.input[0]), 0, 0, -2)
        lead = f.op("Concat", lead, f.constant([m, count]), axis=0)
        q = f.op("Expand", f.like(np.eye(m, count)), lead)
        for mirror in reversed(mirrors):
            q = _mirrored(f, q, *mirror)
        upper = f.part(table, -2, 0, count)
        f.end(q, f.op("Where", f.constant(np.triu(np.ones((count, n), bool)), np.bool_), upper, f.like(0)))


def _mirror(f: Form, table: str, rows: np.ndarray[Any, Any], step: int) -> tuple[str, str]:
    """The vector [m, 1] of a column's reflection, and its factor; a column without squares below is not reflected.

    Source: Eigen's ``makeHouseholder``, which TensorFlow calls; squares of scaled numbers neither overflow nor vanish.
    """
    zero, one, axis = f.like(0), f.like(1), f.constant([-2])
    column = f.op("Gather", table, f.constant([step]), axis=-1)
    head = f.op("Gather", column, f.constant([step]), axis=-2)
    below = f.op("Where", f.constant(rows > step, np.bool_), column, zero)
    largest = f.op("ReduceMax", f.op("Abs", below), axis, keepdims=1)
    least = f.like(np.finfo(f.numpy()).tiny)
    still = f.op("Not", f.op("Greater", f.op("ReduceSumSquare", below, axis, keepdims=1), least))
    scale = f.op("Where", still, one, f.op("Max", largest, f.op("Abs", head)))
    first, others = f.op("Div", head, scale), f.op("Div", below, scale)
    squares = f.op("Add", f.op("ReduceSumSquare", others, axis, keepdims=1), f.op("Mul", first, first))
    length = f.op("Sqrt", squares)
    turned = f.op("Where", f.op("Less", first, zero), length, f.op("Neg", length))
    share = f.op("Div", f.op("Sub", turned, first), f.op("Where", still, one, turned))
    tail = f.op("Div", others, f.op("Where", still, one, f.op("Sub", first, turned)))
    vector = f.op("Where", f.constant(rows == step, np.bool_), one, tail)
    return vector, f.op("Where", still, zero, share)


def _mirrored(f: Form, table: str, vector: str, factor: str) -> str:
    along = f.op("ReduceSum", f.op("Mul", vector, table), f.constant([-2]), keepdims=1)
    return f.op("Sub", table, f.op("Mul", f.op("Mul", vector, factor), along))


@tf_op("SelfAdjointEigV2")
class Eigenvalues:
    """Jacobi's rotations, as many at once as do not touch each other; only the lower half is read."""

    @classmethod
    def version_18(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        size = f.shape()[-1]
        if not 1 < size <= _TURNED:
            raise ValueError(f"SelfAdjointEigV2 of {size} x {size} matrices; expected a fixed size, at most {_TURNED}")
        lead = [0] * (len(f.shape()) - 2)
        swap = [*range(len(lead)), len(lead) + 1, len(lead)]
        half = np.tril(np.ones((size, size), bool))
        other = f.op("Transpose", node.input[0], perm=swap)
        matrix = f.op("Where", f.constant(half, np.bool_), node.input[0], other)
        vectors = f.op("Expand", f.like(np.eye(size)), f.op("Shape", matrix))
        for pairs in _rounds(size) * _SWEEPS:
            turn = _rotation(f, matrix, np.array(pairs), size, lead)
            matrix = f.op("MatMul", f.op("MatMul", f.op("Transpose", turn, perm=swap), matrix), turn)
            vectors = f.op("MatMul", vectors, turn)
        flat = f.op("Reshape", matrix, f.constant([*lead, size * size]))
        diagonal = f.op("Gather", flat, f.constant(np.arange(size) * (size + 1)), axis=-1)
        values, order = f.several(2, "TopK", diagonal, f.constant([size]), axis=-1, largest=0)
        places = f.op("Expand", f.op("Unsqueeze", order, f.constant([-2])), f.op("Shape", vectors))
        f.end(values, f.op("GatherElements", vectors, places, axis=-1))


def _rounds(size: int) -> list[list[tuple[int, int]]]:
    """Each row with each other once, in rounds of pairs that have no row in common."""
    ring = list(range(size + size % 2))
    found = []
    for _ in ring[1:]:
        pairs = [(ring[i], ring[-1 - i]) for i in range(len(ring) // 2)]
        found.append([(min(pair), max(pair)) for pair in pairs if max(pair) < size])
        ring = [ring[0], ring[-1], *ring[1:-1]]
    return found


def _rotation(f: Form, matrix: str, pairs: np.ndarray[Any, Any], size: int, lead: list[int]) -> str:
    """The rotation after which each pair's element is 0.

    Source: Golub and Van Loan, "Matrix Computations", the symmetric Schur decomposition of two rows.
    """
    one, zero, (p, q) = f.like(1), f.like(0), pairs.T
    flat = f.op("Reshape", matrix, f.constant([*lead, size * size]))
    pp, qq, pq = (f.op("Gather", flat, f.constant(a * size + b), axis=-1) for a, b in ((p, p), (q, q), (p, q)))
    none = f.op("Equal", pq, zero)
    ratio = f.op("Div", f.op("Sub", qq, pp), f.op("Where", none, one, f.op("Mul", pq, f.like(2))))
    root = f.op("Sqrt", f.op("Add", f.op("Mul", ratio, ratio), one))
    steep = f.op("Div", one, f.op("Add", f.op("Abs", ratio), root))
    tangent = f.op("Where", f.op("Less", ratio, zero), f.op("Neg", steep), steep)
    tangent = f.op("Where", none, zero, tangent)
    cosine = f.op("Div", one, f.op("Sqrt", f.op("Add", f.op("Mul", tangent, tangent), one)))
    sine = f.op("Mul", tangent, cosine)
    count = len(pairs)
    basis = np.zeros((2 * count, size, size))
    for place, (a, b) in enumerate(pairs):
        basis[place, a, a] = basis[place, b, b] = basis[count + place, a, b] = 1
        basis[count + place, b, a] = -1
    rest = np.eye(size) - basis[:count].sum(0)  # an odd row has no partner
    turned = f.op("MatMul", f.op("Concat", cosine, sine, axis=-1), f.like(basis.reshape(2 * count, -1)))
    return f.op("Add", f.op("Reshape", turned, f.constant([*lead, size, size])), f.like(rest))

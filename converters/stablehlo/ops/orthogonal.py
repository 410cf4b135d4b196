"""LAPACK's orthogonal factors, eigenvalues and singular values of small matrices, written out.

Eigenvalues and singular values are found by Jacobi's rotations, as many at once as do not touch each other.  The signs
of their vectors are not determined, so that they may differ from LAPACK's: verification then tells.
"""

from __future__ import annotations

import numpy as np
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.converters.stablehlo.builder import Builder
from convertkit.converters.stablehlo.mlir import shape_of
from convertkit.converters.stablehlo.ops.lapack import letter
from convertkit.converters.stablehlo.tensor import F32, F64, I32, Operand, Tensor, constant, splat
from convertkit.errors import Unsupported

_REFLECTED = 32
"""The most columns that are reflected; each is some twenty operators."""
_TURNED = 12
"""The most columns that are turned: a sweep has a round for each, a round some twenty operators."""
_SWEEPS = {1: 0, 2: 2, 3: 6, 4: 6}
_MOST_SWEEPS = 8
"""Over all pairs, by the number of columns: six reach float32's accuracy for 12."""


def _sides(a: Tensor, most: int, what: str) -> tuple[int, int]:
    """Rows and columns, of which the fewer are at most ``most``."""
    m, n = a.shape[-2:]
    if m is None or n is None or not 0 < min(m, n) <= most:
        raise Unsupported(f"{what} of a matrix of {m} x {n}; expected fixed sizes, the less from 1 to {most}")
    if a.dtype not in (F32, F64):
        raise Unsupported(f"{what} of a matrix that is not real")
    return m, n


def _swapped(b: Builder, a: Tensor) -> Tensor:
    return b.transpose(a, [*range(a.rank - 2), a.rank - 1, a.rank - 2])


def _like(a: Tensor, value: object) -> Tensor:
    return constant(np.asarray(value, a.dtype.numpy()))


def _all(b: Builder, op: str, x: Tensor, axis: int) -> Tensor:
    return b.reduce(op, x, [x.rank + axis], keepdims=True)  # type: ignore[arg-type]


def reflections(b: Builder, op: hlo.CustomCallOp, a: Tensor, *sizes: Tensor) -> tuple[Operand, ...]:
    """``geqrf``: the upper triangle, below it the vectors of the reflections, and their factors."""
    m, n = _sides(a, _REFLECTED, "the orthogonal factor")
    factors = []
    for step in range(min(m, n)):
        vector, head, factor = _mirror(b, a, step, m)
        reflected = _reflected(b, a, vector, factor)
        column = b.where(constant(np.arange(m)[:, None] > step), vector, b.where(
            constant(np.arange(m)[:, None] == step), head, a))  # fmt: skip
        ahead = constant(np.arange(n) > step)
        a = b.where(ahead, reflected, b.where(constant(np.arange(n) == step), column, a))
        factors.append(b.squeeze(factor, [a.rank - 2]))
    return a, b.concat(factors, a.rank - 2)


def _mirror(b: Builder, a: Tensor, step: int, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """The vector of a column's reflection (…, rows, 1), what the column's head becomes, and the factor (…, 1, 1).

    Source: LAPACK's ``slarfg``; squares of scaled numbers neither overflow nor vanish.
    """
    below = constant(np.arange(rows)[:, None] > step)
    column = b.take(a, a.rank - 1, step, step + 1)
    head, tail = b.take(column, a.rank - 2, step, step + 1), b.where(below, column, 0.0)
    largest = _all(b, "maximum", b.abs(tail), -2)
    still = b.equal(largest, 0.0)
    scale = b.where(still, 1.0, b.maximum(largest, b.abs(head)))
    first, others = b.div(head, scale), b.div(tail, scale)
    length = b.sqrt(b.add(_all(b, "add", b.mul(others, others), -2), b.mul(first, first)))
    turned = b.where(b.less(first, 0.0), length, b.neg(length))
    whole = b.where(still, 1.0, turned)
    factor = b.where(still, 0.0, b.div(b.sub(turned, first), whole))
    vector = b.div(others, b.where(still, 1.0, b.sub(first, turned)))
    return b.where(constant(np.arange(rows)[:, None] == step), 1.0, vector), b.where(
        still, head, b.mul(turned, scale)
    ), factor  # fmt: skip


def _reflected(b: Builder, a: Tensor, vector: Tensor, factor: Tensor) -> Tensor:
    along = _all(b, "add", b.mul(vector, a), -2)
    return b.sub(a, b.mul(b.mul(vector, factor), along))


def reflections_product(
    b: Builder, op: hlo.CustomCallOp, a: Tensor, factors: Tensor, *sizes: Tensor
) -> tuple[Operand, ...]:
    """``orgqr``: the first columns of the product of the reflections."""
    m, n = _sides(a, _REFLECTED, "the orthogonal factor")
    count = factors.shape[-1] or 0
    q = _like(a, np.eye(m, n))
    for step in range(count - 1, -1, -1):
        column, place = b.take(a, a.rank - 1, step, step + 1), np.arange(m)[:, None]
        vector = b.where(constant(place > step), column, _like(a, place == step))
        factor = b.unsqueeze(b.take(factors, factors.rank - 1, step, step + 1), [a.rank - 2])
        q = _reflected(b, q, vector, factor)
    return (q,)


def eigenvalues(b: Builder, op: hlo.CustomCallOp, a: Tensor, *sizes: Tensor) -> tuple[Operand, ...]:
    """``syevd``: the vectors as columns, the values in ascending order, and 0; one triangle is read."""
    n, _ = _sides(a, _TURNED, "the eigenvalues")
    half = np.tri(n, dtype=bool)
    table = b.where(constant(half if letter(op, "uplo") == "L" else half.T), a, _swapped(b, a))
    table, scale = _scaled(b, table)
    vectors = None
    for swap, first in _rounds(n):
        turn = _turn(b, table, swap, first)
        table = b.matmul(b.matmul(_swapped(b, turn), table), turn)
        vectors = turn if vectors is None else b.matmul(vectors, turn)
    vectors = vectors or _ones(b, table)
    values, order = b.top_k(_diagonal(b, table), n, a.rank - 2, largest=False)
    values = b.mul(values, b.squeeze(scale, [a.rank - 1]))
    return b.take_along(vectors, _spread(b, order, n), a.rank - 1), values, _success(op, 2)


def singular_values(b: Builder, op: hlo.CustomCallOp, a: Tensor, *sizes: Tensor) -> tuple[Operand, ...]:
    """``gesdd``: the matrix, its values in descending order, U, V transposed, and 0."""
    m, n = _sides(a, _TURNED, "the singular values")
    mode = letter(op, "mode")
    tall = a if m >= n else _swapped(b, a)
    left, values, right = _orthogonal_columns(b, tall, max(m, n) if mode == "A" else min(m, n), mode != "N")
    if mode == "N":
        nothing = [splat(0, shape_of(op.results[place].type), a.dtype) for place in (2, 3)]
        return a, values, *nothing, _success(op, 4)
    u, v = (left, right) if m >= n else (right, left)
    return a, values, u, _swapped(b, v), _success(op, 4)


def _orthogonal_columns(b: Builder, a: Tensor, columns: int, vectors: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U of so many columns, the values, and V of a tall matrix."""
    m, n = (int(size or 0) for size in a.shape[-2:])
    table, scale = _scaled(b, a)
    right = None
    for swap, first in _rounds(n):
        turn = _turn(b, b.matmul(_swapped(b, table), table), swap, first)
        table, right = b.matmul(table, turn), turn if right is None else b.matmul(right, turn)
    right = right or _ones(b, b.take(table, table.rank - 2, 0, 1))
    squares = b.reduce("add", b.mul(table, table), [a.rank - 2])
    values, order = b.top_k(b.sqrt(squares), n, a.rank - 2, largest=True)
    scaled = b.mul(values, b.squeeze(scale, [a.rank - 1]))
    if not vectors:
        return table, scaled, right
    table = b.take_along(table, _spread(b, order, m), a.rank - 1)
    right = b.take_along(right, _spread(b, order, n), a.rank - 1)
    return _completed(b, table, columns), scaled, right


def _completed(b: Builder, table: Tensor, columns: int) -> Tensor:
    """Columns at right angles, of descending length, made of length 1; those of length 0, and more, are found."""
    m, n = (int(size or 0) for size in table.shape[-2:])
    upper, mirrors = table, []
    for step in range(min(m, n)):
        vector, _, factor = _mirror(b, upper, step, m)
        mirrors.append((vector, factor))
        upper = _reflected(b, upper, vector, factor)
    q = _like(table, np.eye(m, columns))
    for vector, factor in reversed(mirrors):
        q = _reflected(b, q, vector, factor)
    signs = b.where(b.less(_diagonal(b, b.take(upper, upper.rank - 2, 0, n)), 0.0), -1.0, 1.0)
    signs = b.unsqueeze(signs, [table.rank - 2])
    if columns > n:
        signs = b.concat([signs, *[b.abs(b.take(signs, table.rank - 1, 0, 1))] * (columns - n)], table.rank - 1)
    return b.mul(q, signs)


def _scaled(b: Builder, a: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix by its largest element, so that squares neither overflow nor vanish, and that element (…, 1, 1)."""
    largest = _all(b, "maximum", _all(b, "maximum", b.abs(a), -1), -2)
    largest = b.where(b.equal(largest, 0.0), 1.0, largest)
    return b.div(a, largest), largest


def _diagonal(b: Builder, a: Tensor) -> Tensor:
    return b.reduce("add", b.where(constant(np.eye(a.shape[-1] or 0, dtype=bool)), a, 0.0), [a.rank - 1])


def _spread(b: Builder, order: Tensor, rows: int) -> Tensor:
    """The places of columns for each of so many rows."""
    order = b.unsqueeze(order, [order.rank - 1])
    return b.concat([order] * rows, order.rank - 2)


def _success(op: hlo.CustomCallOp, place: int) -> Tensor:
    return splat(0, shape_of(op.results[place].type), I32)


def _ones(b: Builder, x: Tensor) -> Tensor:
    """As large as ``x``, whose vectors of one element are not turned."""
    return b.add(b.mul(x, 0.0), 1.0)


def _rounds(n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pairs of 0 … n - 1 so that all meet once a sweep: a matrix that swaps the partners, and 1 or -1 for each.

    In round r those meet whose sum is r, modulo n; of two, none in round 0.
    """
    number = np.arange(n)
    apart = number - number[:, None]
    found = []
    for turn in range(1 if n == 2 else 0, n):
        swap = ((number + number[:, None]) % n == turn) & (apart != 0)
        found.append((swap, 1 - 2 * (swap & (apart < 0)).sum(-1)))
    return found * _SWEEPS.get(n, _MOST_SWEEPS)


def _turn(b: Builder, gram: Tensor, swap: np.ndarray, first: np.ndarray) -> Tensor:
    """The rotation of each pair that makes its element of a symmetric matrix zero.

    Source: Golub and Van Loan, *Matrix Computations*, 8.5.2, for both partners at once: the angle of one is minus that
    of the other.
    """
    n, last = len(swap), gram.rank - 1
    own, partner = _diagonal(b, gram), np.where(swap.any(-1), swap.argmax(-1), np.arange(n)).tolist()
    apart = b.sub(b.gather(own, partner, last - 1), own)
    once = b.reduce("add", b.where(constant(np.triu(swap)), gram, 0.0), [last])
    off = b.add(once, b.gather(once, partner, last - 1))  # rounded products are not symmetric
    still = b.equal(off, 0.0)
    ratio = b.div(apart, b.where(still, 1.0, b.mul(off, 2.0)))
    side = b.where(b.equal(ratio, 0.0), _like(gram, first), b.where(b.less(ratio, 0.0), _like(gram, -1), 1.0))
    size = b.abs(ratio)
    tangent = b.div(side, b.add(size, b.sqrt(b.add(b.mul(size, size), 1.0))))
    tangent = b.where(still, 0.0, tangent)
    cosine = b.div(_like(gram, 1), b.sqrt(b.add(b.mul(tangent, tangent), 1.0)))
    sine = b.mul(tangent, cosine)
    one = b.mul(b.unsqueeze(cosine, [last]), _like(gram, np.eye(n)))
    return b.add(one, b.mul(b.unsqueeze(sine, [last]), _like(gram, swap)))


ROUTINES = {
    f"lapack_{kind}{name}_ffi": routine
    for kind in "sd"
    for name, routine in (
        ("geqrf", reflections), ("orgqr", reflections_product), ("syevd", eigenvalues), ("gesdd", singular_values),
    )
}  # fmt: skip

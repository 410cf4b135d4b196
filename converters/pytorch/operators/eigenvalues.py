"""Eigenvalues of small symmetric matrices, singular values, and what is computed from those, written out.

Jacobi's method turns pairs of columns until all are orthogonal; all pairs of a round turn at once.  The signs of
vectors are not determined, so theirs may differ from LAPACK's: verification then tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.factors import qr
from convertkit.converters.pytorch.operators.linear_algebra import size_of
from convertkit.errors import Unsupported

_ATEN = torch.ops.aten
_MOST = 12
"""The most columns: a sweep has a round for each, a round some twenty operators."""
_SWEEPS = {1: 0, 2: 2, 3: 6, 4: 6}
_MOST_SWEEPS = 8
"""Over all pairs, by the number of columns: six reach float32's accuracy for 12."""
_TERMS = 13
_SQUARINGS = 24
"""Of the exponential: powers in the series of a matrix whose norm is at most 1, and how often it may be squared."""


def _columns(matrix: Tensor) -> int:
    """How many a matrix has on its shorter side."""
    least = min(size_of(matrix))
    if least > _MOST:
        raise Unsupported(f"eigenvalues or singular values of {least} columns; expected at most {_MOST}")
    return least


def _rounds(like: Tensor, n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of 0 … n - 1 so that all meet once a sweep: a matrix that swaps the partners, and 1 or -1 for each.

    In round r those meet whose sum is r, modulo n; of two, none in round 0.  Made of ranges, because a
    table of numbers is not traced.
    """
    number = torch.arange(n)
    apart = number - number.unsqueeze(-1)
    for turn in [each for _ in range(_SWEEPS.get(n, _MOST_SWEEPS)) for each in range(1 if n == 2 else 0, n)]:
        swap = ((number + number.unsqueeze(-1)) % n == turn) & (apart != 0)
        second = (swap & (apart < 0)).to(like.dtype).sum(-1)
        yield swap.to(like.dtype), 1 - 2 * second


def _turn(gram: Tensor, swap: Tensor, first: Tensor) -> Tensor:
    """The rotation of each pair that makes its element of a symmetric matrix zero.

    Source: Golub and Van Loan, *Matrix Computations*, 8.5.2, for both partners at once: the angle of one is minus that
    of the other.
    """
    one = torch.eye(gram.shape[-1], dtype=gram.dtype)
    own = (gram * one).sum(-1)
    apart = (swap @ own.unsqueeze(-1)).squeeze(-1) - own
    once = (gram * swap.triu()).sum(-1)
    off = once + (swap @ once.unsqueeze(-1)).squeeze(-1)  # rounded products are not symmetric
    still = off == 0
    ratio = apart / torch.where(still, 1.0, 2 * off)
    side = torch.where(ratio == 0, first, torch.sign(ratio))
    size = ratio.abs()
    tangent = torch.where(still, 0.0, side / (size + torch.sqrt(size * size + 1)))
    cosine = torch.rsqrt(tangent * tangent + 1)
    return one * cosine.unsqueeze(-1) + swap * (tangent * cosine).unsqueeze(-1)


def _scaled(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix by its largest element, so that squares neither overflow nor vanish, and that element."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    largest = torch.where(largest == 0, 1.0, largest)
    return matrix / largest, largest


def eigenvalues(matrix: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """``aten::_linalg_eigh``: ascending, and the vectors as columns; one triangle is read."""
    n = _columns(matrix)
    half = matrix.tril(-1) if uplo.upper() == "L" else matrix.triu(1)
    table, scale = _scaled(half + half.mT + matrix.tril().triu())
    vectors = torch.eye(n, dtype=matrix.dtype).expand(matrix.shape)
    for swap, first in _rounds(matrix, n):
        turn = _turn(table, swap, first)
        table, vectors = turn.mT @ table @ turn, vectors @ turn
    values, order = torch.sort(torch.diagonal(table, dim1=-2, dim2=-1), dim=-1)
    values = values * scale.squeeze(-1)
    if not compute_v:
        return values, torch.zeros(0, dtype=matrix.dtype)
    return values, torch.gather(vectors, -1, order.unsqueeze(-2).expand(matrix.shape))


def singular_values(
    matrix: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """``aten::_linalg_svd``: U, the values in descending order, and V transposed."""
    m, n = size_of(matrix)
    if m < n:
        v, values, turned = singular_values(matrix.mT, full_matrices, compute_uv)
        return turned.mT if compute_uv else turned, values, v.mT if compute_uv else v
    _columns(matrix)
    table, scale = _scaled(matrix)
    right = torch.eye(n, dtype=matrix.dtype).expand(*matrix.shape[:-2], n, n)
    for swap, first in _rounds(matrix, n):
        turn = _turn(table.mT @ table, swap, first)
        table, right = table @ turn, right @ turn
    values, order = torch.sort(torch.sqrt(table.square().sum(-2)), dim=-1, descending=True)
    scaled = values * scale.squeeze(-1)
    if not compute_uv:
        empty = torch.zeros(0, dtype=matrix.dtype)
        return empty, scaled, empty
    places = order.unsqueeze(-2)
    table = torch.gather(table, -1, places.expand(table.shape))
    right = torch.gather(right, -1, places.expand(right.shape))
    left, upper = qr(table, "complete" if full_matrices else "reduced")  # orthogonal where values are zero, too
    signs = torch.where(torch.diagonal(upper, dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(matrix.dtype)
    signs = torch.nn.functional.pad(signs, (0, left.shape[-1] - n), value=1.0)
    return left * signs.unsqueeze(-2), scaled, right.mT


def pseudoinverse(
    matrix: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """``aten::linalg_pinv``: values up to max(atol, rtol · the largest) count as zero."""
    if atol is None and rtol is None:
        rtol = torch.full((), max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps, dtype=matrix.dtype)
    if hermitian:
        values, left = eigenvalues(matrix)
        right = left.mT
    else:
        left, values, right = singular_values(matrix)
    size = values.abs()
    least = torch.zeros_like(size[..., :1])
    if rtol is not None:
        least = rtol.unsqueeze(-1) * size.amax(-1, keepdim=True)
    if atol is not None:
        least = torch.maximum(atol.unsqueeze(-1).to(size.dtype), least)
    kept = size > least
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    return (right.mT * inverse.unsqueeze(-2)) @ left.mT


def exponential(matrix: Tensor) -> Tensor:
    """``aten::linalg_matrix_exp``: the series of the matrix halved until its norm is 1, squared as often."""
    n = size_of(matrix)[-1]
    norm = matrix.abs().sum(-2, keepdim=True).amax(-1, keepdim=True)
    times = torch.ceil(torch.log2(norm.clamp(min=1.0))).clamp(max=_SQUARINGS)
    small = matrix * torch.exp2(-times)
    one = torch.eye(n, dtype=matrix.dtype)
    total = one + small / _TERMS
    for power in range(_TERMS - 1, 0, -1):
        total = one + small @ total / power
    for step in range(_SQUARINGS):
        total = torch.where(times > step, total @ total, total)
    return total


EIGENVALUES: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN._linalg_eigh.default: eigenvalues,
        _ATEN._linalg_svd.default: singular_values,
        _ATEN.linalg_pinv.atol_rtol_tensor: pseudoinverse,
        _ATEN.linalg_matrix_exp.default: exponential,
    }
)

"""Inverses, determinants and factors of small matrices, written out column by column.

Elimination looks for the largest pivot in each column, as LAPACK does, so that it loses no more digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.errors import Unsupported

_ATEN = torch.ops.aten
_MOST_COLUMNS = 24
"""Every column is some ten operators."""


def size_of(matrix: Tensor) -> tuple[int, int]:
    """Rows and columns of (…, m, n), of which the fewer are at most 24."""
    m, n = matrix.shape[-2:]
    if not (isinstance(m, int) and isinstance(n, int)) or min(m, n) > _MOST_COLUMNS:
        raise Unsupported(f"a matrix of {m} × {n}; expected fixed sizes, one of them at most {_MOST_COLUMNS}")
    if not matrix.is_floating_point():
        raise Unsupported("a matrix that is not real; expected floats")
    return m, n


def _columns(matrix: Tensor) -> int:
    """The size of square matrices (…, n, n)."""
    return size_of(matrix)[1]


def _eliminated(matrix: Tensor, right: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    """Gauss-Jordan of (…, n, n) and (…, n, k): the solution, the pivots, the sign of the row exchanges."""
    n = _columns(matrix)
    rows = torch.arange(n, device=matrix.device)
    table = torch.cat([matrix, right], -1)
    pivots, sign = [], torch.ones_like(matrix[..., 0, 0])
    for k in range(n):
        best = table[..., k:, k].abs().argmax(-1, keepdim=True) + k
        order = torch.where(rows == k, best, torch.where(rows == best, k, rows))
        table = torch.gather(table, -2, order.unsqueeze(-1).expand(table.shape))
        sign = torch.where(best.squeeze(-1) == k, sign, -sign)
        pivot = table[..., k : k + 1, k]
        pivots.append(pivot.squeeze(-1))
        row = table[..., k, :] / pivot
        others = table - table[..., k : k + 1] * row.unsqueeze(-2)
        table = torch.where((rows == k).unsqueeze(-1), row.unsqueeze(-2), others)
    return table[..., n:], pivots, sign


def no_error(matrix: Tensor) -> Tensor:
    """What LAPACK says of each matrix where nothing is wrong: 0."""
    return torch.zeros(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)


def inverse(matrix: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """``aten::linalg_inv_ex``."""
    one = torch.eye(_columns(matrix), dtype=matrix.dtype, device=matrix.device).expand(matrix.shape)
    return _eliminated(matrix, one)[0], no_error(matrix)


def solution(
    matrix: Tensor, right: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``aten::_linalg_solve_ex``: X of AX = B, or of XA = B; factors and row exchanges are not told (zeros)."""
    n = _columns(matrix)
    vector = right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1])
    if vector:
        right = right.unsqueeze(-1)
    a, b = (matrix, right) if left else (matrix.mT, right.mT)
    lead = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    found = _eliminated(a.expand(*lead, n, n), b.expand(*lead, *b.shape[-2:]))[0]
    found = found if left else found.mT
    unread = torch.zeros(matrix.shape[:-1], dtype=torch.int32, device=matrix.device)
    return found.squeeze(-1) if vector else found, torch.zeros_like(matrix), unread, no_error(matrix)


def sign_and_logarithm(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``aten::_linalg_slogdet``: of the determinant; factors and row exchanges are not told (zeros)."""
    _, pivots, sign = _eliminated(matrix, matrix[..., :0])
    logarithm = torch.zeros_like(sign)
    for pivot in pivots:
        sign, logarithm = sign * torch.sign(pivot), logarithm + torch.log(pivot.abs())
    unread = torch.zeros(matrix.shape[:-1], dtype=torch.int32, device=matrix.device)
    return sign, logarithm, torch.zeros_like(matrix), unread


def cholesky(matrix: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """``aten::linalg_cholesky_ex``; as LAPACK, it reads one triangle alone."""
    n = _columns(matrix)
    left, columns = matrix.mT if upper else matrix, []
    for k in range(n):
        column = left[..., :, :1] / torch.sqrt(left[..., :1, :1])
        left = left[..., 1:, 1:] - column[..., 1:, :] * column[..., 1:, :].mT
        columns.append(torch.nn.functional.pad(column, (0, 0, k, 0)))
    factor = torch.cat(columns, -1)
    return factor.mT if upper else factor, no_error(matrix)


def triangular_solution(
    matrix: Tensor, right: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """``aten::linalg_solve_triangular``: row by row."""
    if not left:
        return triangular_solution(matrix.mT, right.mT, upper=not upper, unitriangular=unitriangular).mT
    n = _columns(matrix)
    rows: dict[int, Tensor] = {}
    for k in reversed(range(n)) if upper else range(n):
        rest = right[..., k : k + 1, :]
        for other, row in rows.items():
            rest = rest - matrix[..., k : k + 1, other : other + 1] * row
        rows[k] = rest if unitriangular else rest / matrix[..., k : k + 1, k : k + 1]
    return torch.cat([rows[k] for k in range(n)], -2)


def _inverse(matrix: Tensor) -> Tensor:
    return inverse(matrix)[0]


def _tensor_inverse(x: Tensor, ind: int = 2) -> Tensor:
    """``aten::linalg_tensorinv``: of the matrix whose rows are the first ``ind`` axes."""
    rows, columns = x.shape[:ind], x.shape[ind:]
    return _inverse(x.reshape(math.prod(rows), math.prod(columns))).reshape(*columns, *rows)


def _solution(matrix: Tensor, right: Tensor, *, left: bool = True) -> Tensor:
    return solution(matrix, right, left=left)[0]


def _cholesky(matrix: Tensor, upper: bool = False) -> Tensor:
    return cholesky(matrix, upper=upper)[0]


def cholesky_solution(right: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    """``aten::cholesky_solve``: X of A X = B for a factor of A."""
    first = factor.mT if upper else factor
    half = triangular_solution(first, right, upper=False)
    return triangular_solution(first.mT, half, upper=True)


def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """``aten::cholesky_inverse``: of the matrix that this is a factor of."""
    one = torch.eye(_columns(factor), dtype=factor.dtype).expand(factor.shape)
    return cholesky_solution(one, factor, upper)


LINEAR_ALGEBRA: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN.linalg_inv.default: _inverse,  # these have checks of their own, which read what was computed
        _ATEN.inverse.default: _inverse,
        _ATEN.linalg_tensorinv.default: _tensor_inverse,
        _ATEN.linalg_solve.default: _solution,
        _ATEN.linalg_cholesky.default: _cholesky,
        _ATEN.cholesky.default: _cholesky,
        _ATEN.linalg_inv_ex.default: inverse,
        torch.ops.aten._linalg_solve_ex.default: solution,
        torch.ops.aten._linalg_slogdet.default: sign_and_logarithm,
        _ATEN.linalg_cholesky_ex.default: cholesky,
        _ATEN.cholesky_inverse.default: cholesky_inverse,
        _ATEN.cholesky_solve.default: cholesky_solution,
        _ATEN.linalg_solve_triangular.default: triangular_solution,
    }
)

"""Factors of small matrices as LAPACK computes them, written out column by column.

The signs and the order of rows are LAPACK's, so that the factors themselves can be compared, not only their product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.linear_algebra import no_error, size_of, triangular_solution

_ATEN = torch.ops.aten


def lu_factors(matrix: Tensor, pivot: bool = True) -> tuple[Tensor, Tensor]:
    """Both factors of (…, m, n) in one matrix, and the row that each row changed places with, from 0.

    Source: LAPACK's ``getf2``; a column of zeros below the diagonal is left as it is.
    """
    m, n = size_of(matrix)
    rows, columns = torch.arange(m).unsqueeze(-1), torch.arange(n)
    table, swaps = matrix, []
    for k in range(min(m, n)):
        best = torch.full_like(table[..., 0, :1], k, dtype=torch.int64)
        if pivot:
            best = table[..., k:, k].abs().argmax(-1, keepdim=True) + k
            table = _swapped(table, k, best)
        swaps.append(best)
        head = table[..., k : k + 1, k : k + 1]
        factor = table[..., k : k + 1] / torch.where(head == 0, 1.0, head)
        rest = torch.where(columns > k, table - factor * table[..., k : k + 1, :], table)
        table = torch.where(rows > k, torch.where(columns == k, factor, rest), table)
    return table, torch.cat(swaps, -1)


def _swapped(table: Tensor, k: int, other: Tensor) -> Tensor:
    """Row ``k`` and the row ``other`` (…, 1) in each other's places."""
    rows = torch.arange(table.shape[-2])
    order = torch.where(rows == k, other, torch.where(rows == other, k, rows))
    return torch.gather(table, -2, order.unsqueeze(-1).expand(table.shape))


def lu_factor(matrix: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """``aten::linalg_lu_factor_ex``: row exchanges count from 1."""
    table, swaps = lu_factors(matrix, pivot)
    return table, (swaps + 1).to(torch.int32), no_error(matrix)


def _lu_factor(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor]:
    return lu_factor(matrix, pivot=pivot)[:2]


def lu_unpacked(table: Tensor, pivots: Tensor, data: bool = True, order: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """``aten::lu_unpack``: the permutation, the lower and the upper factor."""
    m, n = size_of(table)
    least = min(m, n)
    lower = table[..., :least].tril(-1) + torch.eye(m, least, dtype=table.dtype)
    upper = table[..., :least, :].triu()
    return _permutation(pivots.to(torch.int64) - 1, table), lower, upper


def _permutation(swaps: Tensor, table: Tensor) -> Tensor:
    """P of A = P L U."""
    m = table.shape[-2]
    turned = torch.eye(m, dtype=table.dtype).expand(*table.shape[:-2], m, m)
    for k in range(swaps.shape[-1]):
        turned = _swapped(turned, k, swaps[..., k : k + 1])
    return turned.mT


def lu(matrix: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """``aten::linalg_lu``: without exchanges the permutation is empty."""
    table, swaps = lu_factors(matrix, pivot)
    order, lower, upper = lu_unpacked(table, swaps + 1)
    return order if pivot else torch.zeros(0, dtype=matrix.dtype), lower, upper


def lu_solution(table: Tensor, pivots: Tensor, right: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """``aten::linalg_lu_solve``: X of AX = B, of XA = B, or of the transposed A."""
    if not left:
        return lu_solution(table, pivots, right.mT, adjoint=not adjoint).mT
    size = table.shape[-1]
    lead = torch.broadcast_shapes(table.shape[:-2], right.shape[:-2])
    order = _permutation(pivots.to(torch.int64) - 1, table)
    table, right = table.expand(*lead, size, size), right.expand(*lead, *right.shape[-2:])
    if adjoint:
        half = triangular_solution(table.mT, right, upper=False)
        return order @ triangular_solution(table.mT, half, upper=True, unitriangular=True)
    half = triangular_solution(table, order.mT @ right, upper=False, unitriangular=True)
    return triangular_solution(table, half, upper=True)


def reflections(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """``aten::geqrf``: R above vectors of reflections of (…, m, n), and the factors of those.

    Source: LAPACK's ``geqr2`` and ``larfg``; a column of zeros below the diagonal is not reflected.
    """
    m, n = size_of(matrix)
    rows, columns = torch.arange(m), torch.arange(n)
    table, taus = matrix, []
    for k in range(min(m, n)):
        head = table[..., k, k].unsqueeze(-1)
        below = torch.where(rows > k, table[..., k], 0.0)
        largest = below.abs().amax(-1, keepdim=True)
        still = largest == 0
        scale = torch.where(still, 1.0, torch.maximum(largest, head.abs()))
        first, others = head / scale, below / scale  # whose squares neither overflow nor vanish
        length = torch.sqrt(others.square().sum(-1, keepdim=True) + first.square())
        turned_to = torch.where(first < 0, length, -length)
        beta = scale * turned_to
        tau = torch.where(still, 0.0, (turned_to - first) / torch.where(still, 1.0, turned_to))
        tail = others / torch.where(still, 1.0, first - turned_to)
        vector = torch.where(rows == k, 1.0, tail).unsqueeze(-1)
        turned = table - tau.unsqueeze(-1) * vector * (vector.mT @ table)
        stored = torch.where(rows > k, tail, torch.where(rows == k, torch.where(still, head, beta), table[..., k]))
        later = torch.where(columns > k, turned, table)
        table = torch.where(columns == k, stored.unsqueeze(-1), later)
        taus.append(tau)
    return table, torch.cat(taus, -1)


def _reflected(table: Tensor, taus: Tensor, other: Tensor, backwards: bool) -> Tensor:
    """Q, the product of the reflections in ``table``, times ``other``; its transpose where not ``backwards``."""
    rows = torch.arange(table.shape[-2])
    count = taus.shape[-1]
    for k in reversed(range(count)) if backwards else range(count):
        column = table[..., k]
        vector = torch.where(rows > k, column, torch.where(rows == k, 1.0, 0.0)).unsqueeze(-1)
        other = other - taus[..., k : k + 1].unsqueeze(-1) * vector * (vector.mT @ other)
    return other


def reflections_product(table: Tensor, taus: Tensor) -> Tensor:
    """``aten::linalg_householder_product``: the first columns of Q."""
    m, n = size_of(table)
    one = torch.eye(m, n, dtype=table.dtype).expand(*table.shape[:-2], m, n)
    return _reflected(table, taus, one, backwards=True)


def reflected(table: Tensor, taus: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """``aten::ormqr``: ``other`` times Q or its transpose, from the left or the right."""
    size_of(table)
    if left:
        return _reflected(table, taus, other, backwards=not transpose)
    return _reflected(table, taus, other.mT, backwards=transpose).mT


def qr(matrix: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """``aten::linalg_qr``."""
    m, n = size_of(matrix)
    table, taus = reflections(matrix)
    least = m if mode == "complete" else min(m, n)
    upper = table[..., :least, :].triu()
    if mode == "r":
        return torch.zeros(0, dtype=matrix.dtype), upper
    one = torch.eye(m, least, dtype=matrix.dtype).expand(*matrix.shape[:-2], m, least)
    return _reflected(table, taus, one, backwards=True), upper


def triangular_solve(
    right: Tensor, matrix: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """``aten::triangular_solve``: the solution, and the matrix as it came."""
    a, high = (matrix.mT, not upper) if transpose else (matrix, upper)
    lead = torch.broadcast_shapes(a.shape[:-2], right.shape[:-2])
    a, right = a.expand(*lead, *a.shape[-2:]), right.expand(*lead, *right.shape[-2:])
    found = triangular_solution(a, right, upper=high, unitriangular=unitriangular)
    return found, matrix.expand(*lead, *matrix.shape[-2:]).clone()


FACTORS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN.linalg_lu_factor.default: _lu_factor,  # it has a check of its own, which reads what was computed
        _ATEN.linalg_lu_factor_ex.default: lu_factor,
        _ATEN.linalg_lu.default: lu,
        _ATEN.lu_unpack.default: lu_unpacked,
        _ATEN.linalg_lu_solve.default: lu_solution,
        _ATEN.geqrf.default: reflections,
        _ATEN.linalg_qr.default: qr,
        _ATEN.linalg_householder_product.default: reflections_product,
        _ATEN.ormqr.default: reflected,
        _ATEN.triangular_solve.default: triangular_solve,
    }
)

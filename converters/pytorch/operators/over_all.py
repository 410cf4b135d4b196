"""Reductions over all axes, which torch's ONNX exporter has right where axes are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten


def names_none(node: Any) -> bool:
    """Whether a node reduces all axes of a tensor that has some, and keeps them, or is a mean."""
    place = 1 if node.target in _SECOND else 2
    dim, keepdim = (*node.args, None, None, None)[place : place + 2]
    return _all(dim) and bool(keepdim or node.target == _ATEN.mean.dim) and node.args[0].meta["val"].dim() > 0


def _all(dim: Sequence[int] | int | None) -> bool:
    return dim is None or dim == []


def mean(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """``aten::mean.dim``."""
    if not (_all(dim) and x.dim()):
        return NotImplemented
    return torch.mean(x, list(range(x.dim())), keepdim=keepdim, dtype=dtype)


def vector_norm(
    x: Tensor, order: float = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """``aten::linalg_vector_norm``."""
    if not (keepdim and _all(dim) and x.dim()):
        return NotImplemented
    return torch.linalg.vector_norm(x, order, list(range(x.dim())), keepdim=True, dtype=dtype)


def norm(
    x: Tensor, order: float | None = None, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """``aten::linalg_norm``; with an order it is that of a vector or a matrix."""
    return vector_norm(x, 2, dim, keepdim, dtype=dtype) if order is None else NotImplemented


def place_of(extreme: Any) -> Callable[..., Any]:
    """``aten::argmax`` and ``aten::argmin``, counted through all axes."""

    def function(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if not (keepdim and dim is None and x.dim()):
            return NotImplemented
        return extreme(x.reshape(-1), 0).reshape([1] * x.dim())

    return function


_SECOND = (_ATEN.mean.dim, _ATEN.argmax.default, _ATEN.argmin.default)
"""Those whose axes are the second operand; of the others they are the third."""
OVER_ALL: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN.mean.dim: mean,
        _ATEN.linalg_vector_norm.default: vector_norm,
        _ATEN.linalg_norm.default: norm,
        _ATEN.argmax.default: place_of(torch.argmax),
        _ATEN.argmin.default: place_of(torch.argmin),
    }
)
"""By overload; :func:`names_none` tells where they are needed."""

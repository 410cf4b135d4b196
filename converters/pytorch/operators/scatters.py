"""Scattered elements: torch's forms that ONNX's ScatterElements does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators import rankless

_ATEN = torch.ops.aten
_REDUCTIONS = MappingProxyType({"add": "sum", "multiply": "prod"})


def shortened(src: Tensor, index: Tensor) -> Tensor:
    """The elements of ``src`` that have a place in ``index``; torch leaves out those beyond its sizes."""
    for axis, (given, size) in enumerate(zip(src.shape, index.shape, strict=True)):
        if _differ(given, size):
            src = src.narrow(axis, 0, size)
    return src


def _differ(given: Any, size: Any) -> bool:
    """Of sizes that are known; dynamic ones are taken as equal."""
    return isinstance(given, int) and isinstance(size, int) and given != size


def is_longer(node: Any) -> bool:
    """Whether more elements are given than have a place."""
    index, src = (each.meta["val"].shape for each in node.args[2:4])
    return any(map(_differ, src, index))


def scatter(base: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """``aten::scatter.src``."""
    return _shorter(torch.scatter, base, dim, index, src)


def scatter_add(base: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    """``aten::scatter_add``."""
    return _shorter(torch.scatter_add, base, dim, index, src)


def _shorter(function: Callable[..., Tensor], base: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    fitting = shortened(src, index)
    return NotImplemented if fitting is src else function(base, dim, index, fitting)


def scatter_by(base: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    """``aten::scatter.reduce``: sums or products."""
    return torch.scatter_reduce(base, dim, index, shortened(src, index), _REDUCTIONS[reduce])


def scatter_value_by(base: Tensor, dim: int, index: Tensor, value: float, *, reduce: str) -> Tensor:
    """``aten::scatter.value_reduce``: one number in all places."""
    src = torch.full_like(index, value, dtype=base.dtype)
    return torch.scatter_reduce(base, dim, index, src, _REDUCTIONS[reduce])


def scattered(base: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """``aten::scatter_reduce`` in the form that ONNX has: what is there takes part, and nothing is a mean."""
    if base.dim() == 0:
        lifted = (base.reshape(1), 0, index.reshape(1), src.reshape(1), reduce)
        return torch.scatter_reduce(*lifted, include_self=include_self).reshape(())
    fitting = shortened(src, index)
    if include_self and reduce != "mean" and fitting is src:
        return NotImplemented
    if not include_self:
        base = base.scatter(dim, index, _neutral(reduce, base.dtype))
    if reduce != "mean":
        return torch.scatter_reduce(base, dim, index, fitting, reduce, include_self=True)
    own = torch.ones_like(base) if include_self else torch.ones_like(base).scatter(dim, index, 0)
    rounded = None if base.is_floating_point() else "floor"
    total, count = base.scatter_add(dim, index, fitting), own.scatter_add(dim, index, torch.ones_like(fitting))
    return torch.div(total, count, rounding_mode=rounded)


def index_reduced(
    base: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """``aten::index_reduce``: slices of ``src`` into those of ``base`` that an index names, scattered."""
    if base.dim() == 0:
        whole, one = base.reshape(1), src.reshape(1)
        return index_reduced(whole, 0, index.reshape(1), one, reduce, include_self=include_self).reshape(())
    view = [1] * src.dim()
    view[dim] = -1
    wide = index.reshape(view).expand(src.shape)
    found = scattered(base, dim, wide, src, reduce, include_self=include_self)
    return torch.scatter_reduce(base, dim, wide, src, reduce) if found is NotImplemented else found


def _neutral(reduce: str, dtype: torch.dtype) -> float:
    """What changes no result of this kind."""
    if reduce in ("sum", "mean", "prod"):
        return 1.0 if reduce == "prod" else 0.0
    limits = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return float(limits.min if reduce == "amax" else limits.max)


def is_reduced_otherwise(node: Any) -> bool:
    """Whether what is there stays out, a mean of floats is asked for, sizes differ, or there are no axes."""
    if rankless.is_rankless(node) or is_longer(node):
        return True
    mean = node.args[4] == "mean" and node.args[0].meta["val"].is_floating_point()
    return bool(mean or not node.kwargs.get("include_self", True))


def _has_axes(node: Any) -> bool:
    return not rankless.is_rankless(node)


SCATTERS: Mapping[Any, tuple[Callable[..., Any], Callable[[Any], bool]]] = MappingProxyType(
    {
        _ATEN.scatter.src: (scatter, is_longer),
        _ATEN.scatter_add.default: (scatter_add, is_longer),
        _ATEN.scatter.reduce: (scatter_by, _has_axes),
        _ATEN.scatter.value_reduce: (scatter_value_by, _has_axes),
        _ATEN.scatter_reduce.two: (scattered, is_reduced_otherwise),
    }
)
"""By overload: the function, and whether a node needs it."""

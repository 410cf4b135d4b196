"""Running results and choices along an axis that torch's ONNX exporter lacks, by operators that it has.

A running result over n elements takes log2(n) steps, each of which combines every element with the one 1, 2, 4, …
before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten

_STEPS = 31
"""As many as any size takes that is an int32."""


def _running(combine: Callable[[Tensor, Tensor], Tensor], x: Tensor, dim: int) -> Tensor:
    if x.dim() == 0:
        return x
    length = x.shape[dim]
    if not isinstance(length, int):
        return _running_over_any(combine, x, dim)
    reach = 1
    while reach < length:
        combined = combine(x.narrow(dim, reach, length - reach), x.narrow(dim, 0, length - reach))
        x = torch.cat([x.narrow(dim, 0, reach), combined], dim)
        reach *= 2
    return x


def _running_over_any(combine: Callable[[Tensor, Tensor], Tensor], x: Tensor, dim: int) -> Tensor:
    """Over a dynamic size: steps that reach beyond it change nothing."""
    places = torch.arange(x.shape[dim])
    shape = [1] * x.dim()
    shape[dim] = -1
    for step in range(_STEPS):
        before = places - 2**step
        combined = combine(x, x.index_select(dim, before.clamp(min=0)))
        x = torch.where((before >= 0).reshape(shape), combined, x)
    return x


def cumprod(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Tensor:
    """``aten::cumprod``, of complex numbers, too; integers become int64."""
    if dtype is None and not x.is_floating_point() and not x.is_complex():
        dtype = torch.int64
    return _running(torch.mul, x if dtype is None else x.to(dtype), dim)


def logcumsumexp(x: Tensor, dim: int) -> Tensor:
    """``aten::logcumsumexp``, pair by pair.

    torch's exporter takes the largest of all from each element, so that early sums far below it vanish.
    """
    return _running(torch.logaddexp, x, dim)


def _extremes(combine: Callable[[Tensor, Tensor], Tensor], x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Values, and where the last of the equal ones up to each place lies."""
    values = _running(combine, x, dim)
    shape = [1] * x.dim()
    if not shape:
        return values, torch.zeros_like(x, dtype=torch.int64)
    shape[dim] = -1
    places = torch.arange(x.shape[dim], device=x.device).view(shape)
    found = torch.where((x == values) | x.isnan(), places, 0)
    return values, _running(torch.maximum, found, dim)


def cummax(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """``aten::cummax``."""
    return _extremes(torch.maximum, x, dim)


def cummin(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """``aten::cummin``."""
    return _extremes(torch.minimum, x, dim)


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten::kthvalue``: the k-th smallest, and one place where it lies."""
    return _chosen(torch.topk(x, k, dim, largest=False, sorted=True), k - 1, dim, keepdim)


def _chosen(ordered: Sequence[Tensor], place: Any, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    value, found = (each.narrow(dim, place, 1) for each in ordered)
    return (value, found) if keepdim else (value.squeeze(dim), found.squeeze(dim))


def median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten::median.dim``: the lower of the two in the middle."""
    length = x.shape[dim]
    if isinstance(length, int):
        return kthvalue(x, (length - 1) // 2 + 1, dim, keepdim)
    return _chosen(torch.sort(x, dim), (length - 1) // 2, dim, keepdim)


def median_of_all(x: Tensor) -> Tensor:
    """``aten::median``."""
    return median(x.reshape(-1), 0)[0]


def nanmedian(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten::nanmedian.dim``: the lower of the two in the middle of what is not NaN."""
    missing = x.isnan()
    values, places = torch.sort(torch.where(missing, math.inf, x), dim)
    count = (~missing).to(torch.int64).sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp(min=0)
    value = torch.where(count == 0, math.nan, torch.gather(values, dim, middle))
    found = [value, torch.gather(places, dim, middle)]
    return (found[0], found[1]) if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


def nanmedian_of_all(x: Tensor) -> Tensor:
    """``aten::nanmedian``."""
    return nanmedian(x.reshape(-1), 0)[0]


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten::mode``: the smallest of the commonest values, and where the last of them lies."""
    last = x.movedim(dim, -1)
    often = (last.unsqueeze(-1) == last.unsqueeze(-2)).to(torch.int32).sum(-1)
    common = often == often.amax(-1, keepdim=True)
    limits = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
    values = torch.where(common, last, limits.max).amin(-1, keepdim=True)
    places = torch.where(last == values, torch.arange(last.shape[-1], device=x.device), 0).amax(-1, keepdim=True)
    results = [each.movedim(-1, dim) for each in (values, places)]
    return (results[0], results[1]) if keepdim else (results[0].squeeze(dim), results[1].squeeze(dim))


def searchsorted(
    ordered: Tensor,
    x: Tensor | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """``aten::searchsorted``: how many of the ordered values lie before each of ``x``; all of them before NaN."""
    if sorter is not None:
        ordered = torch.gather(ordered, -1, sorter)
    if not isinstance(x, Tensor):
        x = torch.full((), x, dtype=ordered.dtype)
    upto = right or side == "right"
    found = _searched(ordered, x, upto) if isinstance(ordered.shape[-1], int) else _counted(ordered, x, upto)
    return found.to(torch.int32 if out_int32 else torch.int64)


def _counted(ordered: Tensor, x: Tensor, upto: bool) -> Tensor:
    before, x = ordered if ordered.dim() == 1 else ordered.unsqueeze(-2), x.unsqueeze(-1)
    return (~(before > x if upto else before >= x)).to(torch.int32).sum(-1)


def _searched(ordered: Tensor, x: Tensor, upto: bool) -> Tensor:
    """Halved step by step as torch does it, so that values that are in no order give the same, too.

    Places are floats, which are exact here. Source: aten/src/ATen/native/Bucketization.cpp.
    """
    length = ordered.shape[-1]
    first = torch.zeros_like(x, dtype=torch.float32)
    behind = torch.full_like(x, length, dtype=torch.float32)
    for _ in range(length.bit_length()):
        middle = torch.floor((first + behind) * 0.5)
        place = middle.clamp(max=length - 1).to(torch.int64)
        value = ordered[place] if ordered.dim() == 1 else torch.gather(ordered, -1, place)
        lies_before = ~(value > x if upto else value >= x)
        first, behind = (
            torch.where(lies_before & (first < behind), middle + 1, first),
            torch.where(lies_before, behind, middle),
        )
    return first


def rrelu(x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, *_: Any) -> Any:
    """``aten::rrelu_with_noise_functional`` where nothing is drawn: the slope in the middle."""
    if training:
        return NotImplemented
    return torch.where(x >= 0, x, x * ((lower + upper) / 2)), noise


SCANS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN.cumprod.default: cumprod,
        _ATEN.cummax.default: cummax,
        _ATEN.cummin.default: cummin,
        _ATEN.kthvalue.default: kthvalue,
        _ATEN.median.dim: median,
        _ATEN.median.default: median_of_all,
        _ATEN.nanmedian.dim: nanmedian,
        _ATEN.nanmedian.default: nanmedian_of_all,
        _ATEN.mode.default: mode,
        _ATEN.searchsorted.Tensor: searchsorted,
        _ATEN.searchsorted.Scalar: searchsorted,
        _ATEN.rrelu_with_noise_functional.default: rrelu,
    }
)

"""Operators that order, compare, look up or place elements, where torch's ONNX exporter lacks a use of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.scans import searchsorted
from convertkit.errors import Unsupported

_ATEN = torch.ops.aten
_RANKS = {1: _ATEN.atleast_1d, 2: _ATEN.atleast_2d, 3: _ATEN.atleast_3d}


def at_least(rank: int) -> Callable[[Any], Any]:
    """``aten::atleast_1d``, ``2d`` and ``3d`` of one tensor or several: axes of size 1."""

    def lifted(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return [lifted(each) for each in x]
        if x.dim() == 0:
            return x.reshape([1] * rank)
        if x.dim() == 1 and rank > 1:
            x = x.unsqueeze(0)
        return x.unsqueeze(-1) if x.dim() == 2 and rank > 2 else x.clone()

    return lifted


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """``aten::column_stack``: numbers and vectors as columns, side by side with the columns of matrices."""
    return torch.cat([x.reshape(x.numel(), 1) if x.dim() < 2 else x for x in tensors], 1)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """``aten::dstack``: along the third axis, which is added where it lacks."""
    return torch.cat(at_least(3)(tensors), 2)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """``aten::hstack``: along the second axis, vectors along their only one."""
    lifted = at_least(1)(tensors)
    return torch.cat(lifted, 0 if lifted[0].dim() == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """``aten::vstack``: along the first axis, vectors as rows."""
    return torch.cat(at_least(2)(tensors), 0)


def bucketize(x: Tensor | float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """``aten::bucketize``: how many boundaries lie below each element, or up to it where ``right`` is set."""
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


def extremes(x: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """``aten::aminmax``: the smallest and the largest, along one axis or of all."""
    if x.dim() == 0:
        return x.clone(), x.clone()
    axes = list(range(x.dim())) if dim is None else [dim]
    return torch.amin(x, axes, keepdim), torch.amax(x, axes, keepdim)


def extreme_of_all(reduce: Callable[..., Tensor]) -> Callable[..., Any]:
    """``aten::amax`` or ``aten::amin`` over all axes, where none is named."""

    def reduced(x: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        if x.dim() == 0:
            return x.clone()
        if x.dtype == torch.bool:
            return reduce(x.to(torch.int32), list(dim or range(x.dim())), keepdim) != 0
        return NotImplemented if dim else reduce(x, list(range(x.dim())), keepdim)

    return reduced


def extreme_flag(reduce: Any) -> Callable[..., Any]:
    """``aten::max`` or ``aten::min`` of flags, of all or along an axis: as the numbers 0 and 1."""

    def reduced(x: Tensor, *axis: Any, **options: Any) -> Any:
        if x.dtype != torch.bool:
            return NotImplemented
        found = reduce(x.to(torch.int32), *axis, **options)
        return found != 0 if isinstance(found, Tensor) else (found[0] != 0, found[1])

    return reduced


def finds_its_axis(node: Any) -> bool:
    """Whether a cross product names no axis."""
    return len(node.args) < 3 or node.args[2] is None


def cross(x: Tensor, y: Tensor, dim: int | None = None) -> Tensor:
    """``aten::cross``: along the first axis of three elements, where none is named."""
    axis = dim if dim is not None else torch.broadcast_shapes(x.shape, y.shape).index(3)
    return torch.linalg.cross(x, y, dim=axis)


def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """``aten::diagonal_scatter``: ``src`` in the places of a diagonal, ``x`` elsewhere."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    if not (isinstance(rows, int) and isinstance(columns, int)):
        raise Unsupported("a diagonal of dynamic size; expected a fixed one")
    first = (max(0, -offset), max(0, offset))
    length = src.shape[-1]
    row = torch.arange(rows).unsqueeze(1)
    column = torch.arange(columns).unsqueeze(0)
    on = (column - row == offset) & (row >= first[0]) & (row < first[0] + length)
    along = (row - first[0]).clamp(0, max(length - 1, 0)).expand(rows, columns)
    spread = src.index_select(-1, along.reshape(-1)).reshape([*src.shape[:-1], rows, columns])
    last = [axis for axis in range(x.dim()) if axis not in (dim1 % x.dim(), dim2 % x.dim())]
    order = [*last, dim1 % x.dim(), dim2 % x.dim()]
    back = [order.index(axis) for axis in range(x.dim())]
    return torch.where(on, spread, x.permute(order)).permute(back)


def sort(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """``aten::sort.stable``, flags as the numbers 0 and 1.

    ONNX's TopK, which the exporter writes for ``aten::sort``, puts the first of equal elements first in both orders.
    """
    if x.dtype != torch.bool:
        return torch.sort(x, dim, descending)
    values, places = torch.sort(x.to(torch.int32), dim, descending)
    return values != 0, places


def sort_flags(x: Tensor, dim: int = -1, descending: bool = False) -> Any:
    """``aten::sort`` of flags."""
    return sort(x, dim=dim, descending=descending) if x.dtype == torch.bool else NotImplemented


def argsort(x: Tensor, *, stable: bool = True, dim: int = -1, descending: bool = False) -> Tensor:
    """``aten::argsort.stable``."""
    places: Tensor = sort(x, dim=dim, descending=descending)[1]
    return places


def greater(x: Tensor, y: Tensor) -> Tensor:
    """``aten::fmax``: the greater of two, and the other one of a NaN."""
    return _no_nan(torch.maximum, x, y)


def smaller(x: Tensor, y: Tensor) -> Tensor:
    """``aten::fmin``: the smaller of two, and the other one of a NaN."""
    return _no_nan(torch.minimum, x, y)


def _no_nan(choose: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> Tensor:
    """Integers have no NaN, and ONNX's IsNaN does not take them."""
    dtype = torch.result_type(x, y)
    x, y = x.to(dtype), y.to(dtype)
    if not dtype.is_floating_point:
        return choose(x, y)
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, choose(x, y)))


def masked_select(x: Tensor, mask: Tensor) -> Any:
    """``aten::masked_select``: as an index that is a mask."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return _ATEN.index.Tensor(x.expand(shape).reshape(-1), [mask.expand(shape).reshape(-1)])


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """``aten::put``: elements of the flattened tensor, counted from its end where an index is negative."""
    places = index.reshape(-1)
    places = torch.where(places < 0, places + x.numel(), places)
    flat, values = x.reshape(-1), source.reshape(-1)
    found = flat.scatter_add(0, places, values) if accumulate else flat.scatter(0, places, values)
    return found.reshape(x.shape)


def repeat_interleave(x: Tensor, repeats: Tensor, dim: int | None = None, *, output_size: int | None = None) -> Any:
    """``aten::repeat_interleave.self_Tensor`` of a known size: which element stands at each place."""
    if not isinstance(output_size, int):
        return NotImplemented
    x, dim = (x.reshape(-1), 0) if dim is None else (x, dim)
    ends = torch.cumsum(repeats.reshape(-1).expand(x.shape[dim]), 0)
    passed = ends.unsqueeze(0) <= torch.arange(output_size).unsqueeze(1)
    return x.index_select(dim, passed.to(torch.int64).sum(1))


def first_nonzero(x: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """``aten::nonzero_static``: the coordinates of the first ``size`` that are not zero, then ``fill_value``."""
    if not all(isinstance(each, int) for each in x.shape):
        raise Unsupported("nonzero_static over a dynamic size; expected a fixed one")
    if x.dim() == 0 or x.numel() == 0:
        return torch.full((size, x.dim()), fill_value, dtype=torch.int64)
    counted = torch.cumsum((x != 0).reshape(-1).to(torch.int64), 0)
    number = torch.arange(size)
    flat = (counted.unsqueeze(0) <= number.unsqueeze(1)).to(torch.int64).sum(1)
    coordinates = []
    for length in reversed(x.shape):
        coordinates.append(flat % length)
        flat = torch.div(flat, length, rounding_mode="floor")
    found = torch.stack(coordinates[::-1], 1)
    return torch.where((number < counted[-1]).unsqueeze(1), found, fill_value)


def summed_ellipsis(equation: str, operands: Sequence[Tensor], *, path: Any = None) -> Any:
    """``aten::einsum`` that sums over the axes of ``...``, which ONNX's Einsum does not."""
    inner, _, outer = equation.replace(" ", "").partition("->")
    if "->" not in equation or "..." in outer or "..." not in inner:
        return NotImplemented
    names = inner.split(",")
    lead = max(x.dim() - len(name.replace("...", "")) for x, name in zip(operands, names, strict=True) if "..." in name)
    kept = torch.einsum(f"{inner}->...{outer}", list(operands))
    return kept.sum(list(range(lead))) if lead else kept


def sums_ellipsis(node: Any) -> bool:
    """Whether a node of ``einsum`` names ``...`` before the arrow alone."""
    before, arrow, after = node.args[0].partition("->")
    return bool(arrow) and "..." in before and "..." not in after


def aligned_ellipsis(equation: str, operands: Sequence[Tensor], *, path: Any = None) -> Any:
    """``aten::einsum`` whose ``...`` stand for different numbers of axes, which ONNX has not: axes of size 1."""
    names = equation.replace(" ", "").partition("->")[0].split(",")
    counts = [x.dim() - len(name.replace("...", "")) for x, name in zip(operands, names, strict=True)]
    lead = max([count for count, name in zip(counts, names, strict=True) if "..." in name], default=0)
    wide = []
    for x, name, count in zip(operands, names, counts, strict=True):
        at = name.find("...")
        even = at < 0 or count == lead
        wide.append(x if even else x.reshape([*x.shape[:at], *[1] * (lead - count), *x.shape[at:]]))
    summed = summed_ellipsis(equation, wide)
    same = all(one is other for one, other in zip(wide, operands, strict=True))
    return summed if summed is not NotImplemented or same else torch.einsum(equation, wide)


def has_uneven_ellipsis(node: Any) -> bool:
    """Whether ``...`` stands for different numbers of axes in the operands of a node of ``einsum``."""
    names = node.args[0].replace(" ", "").partition("->")[0].split(",")
    ranks = [len(name.replace("...", "")) for name in names]
    shapes = [each.meta["val"].dim() for each in node.args[1]]
    counts = {dims - rank for dims, rank, name in zip(shapes, ranks, names, strict=True) if "..." in name}
    return len(counts) > 1


def has_known_size(node: Any) -> bool:
    """Whether a node of :func:`repeat_interleave` names the size of its result."""
    return isinstance(node.kwargs.get("output_size"), int)


def put_where(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """``aten::index_put`` where one mask selects axes behind others, which are moved to the end."""
    at, mask = _mask(indices)
    if mask is None or len(indices) == 1 or mask.dtype != torch.bool:
        return NotImplemented
    masked, first = list(range(at, at + mask.dim())), list(range(mask.dim()))
    missing = x.dim() - mask.dim() + 1 - values.dim()
    selected = values[(None,) * missing].movedim(at, 0) if missing else values.movedim(at, 0)
    return _ATEN.index_put.default(x.movedim(masked, first), [mask], selected, accumulate).movedim(first, masked)


def masks_inner_axes(node: Any) -> bool:
    """Whether a node of ``index_put`` has one mask, and axes that it leaves alone."""
    _, mask = _mask(node.args[1])
    return mask is not None and len(node.args[1]) > 1 and mask.meta["val"].dtype == torch.bool


def _mask(indices: Sequence[Any]) -> tuple[int, Any]:
    """The only one of the indices that selects something, and the first axis of it; None where there are several."""
    (at, found), *others = [(at, each) for at, each in enumerate(indices) if each is not None]
    return at, None if others else found


def copysign(x: Tensor, sign: float) -> Tensor:
    """``aten::copysign.Scalar``: the magnitudes of ``x`` with the sign of a number."""
    return torch.copysign(x, torch.full_like(x, sign))


ALWAYS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **{packet.default: at_least(rank) for rank, packet in _RANKS.items()},
        **{packet.Sequence: at_least(rank) for rank, packet in _RANKS.items()},
        _ATEN.column_stack.default: column_stack,
        _ATEN.dstack.default: dstack,
        _ATEN.hstack.default: hstack,
        _ATEN.vstack.default: vstack,
        _ATEN.bucketize.Tensor: bucketize,
        _ATEN.bucketize.Scalar: bucketize,
        _ATEN.aminmax.default: extremes,
        _ATEN.diagonal_scatter.default: diagonal_scatter,
        _ATEN.sort.stable: sort,
        _ATEN.argsort.stable: argsort,
        _ATEN.masked_select.default: masked_select,
        _ATEN.put.default: put,
        _ATEN.nonzero_static.default: first_nonzero,
        _ATEN.copysign.Scalar: copysign,
        _ATEN.fmax.default: greater,
        _ATEN.fmin.default: smaller,
    }
)
"""What is needed wherever a program has one of these."""

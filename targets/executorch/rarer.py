"""ONNX operators that XNNPACK does not take, as functions of PyTorch that ExecuTorch has kernels of its own for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, Literal

import torch
from torch import Tensor
from torch.nn import functional

from convertkit.torch_graph.operators import DTYPES

_BYTE: Final = 8


def _joined(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Of one operand or more, from the left."""

    def of(*values: Tensor) -> Tensor:
        made: Tensor = reduce(function, values)
        return made

    return of


def bit_shift(x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    """Of unsigned bytes, by products and quotients, as ExecuTorch has no shifts; what is shifted out is gone."""
    powers = torch.tensor([1 << place for place in range(_BYTE + 1)])[by.to(torch.int64).clamp(max=_BYTE)]
    wide = x.to(torch.int64)
    made = wide * powers if direction == "LEFT" else torch.div(wide, powers, rounding_mode="floor")
    return made.bitwise_and((1 << _BYTE) - 1).to(x.dtype)


def place_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Where an extreme is: of equal elements the first, or the last."""

    def found(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if not select_last_index:
            return function(x, axis, keepdim=bool(keepdims))
        return x.shape[axis] - 1 - function(x.flip(axis), axis, keepdim=bool(keepdims))

    return found


def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of channels become squares of pixels."""
    count, channels, height, width = x.shape
    left = channels // blocksize**2
    if mode == "DCR":
        parts, order = (count, blocksize, blocksize, left, height, width), (0, 3, 4, 1, 5, 2)
    else:
        parts, order = (count, left, blocksize, blocksize, height, width), (0, 1, 4, 2, 5, 3)
    return x.reshape(parts).permute(order).reshape(count, left, height * blocksize, width * blocksize)


def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Squares of pixels become blocks of channels."""
    count, channels, height, width = x.shape
    tall, wide = height // blocksize, width // blocksize
    parts = x.reshape(count, channels, tall, blocksize, wide, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(count, channels * blocksize**2, tall, wide)


def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """One where the first largest element is."""
    places = torch.arange(x.shape[axis]).reshape([-1 if each == axis % x.ndim else 1 for each in range(x.ndim)])
    return (places == x.argmax(axis, keepdim=True)).to(x.dtype)


def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """What has norm 0 stays 0."""
    norm = x.abs().sum(axis, keepdim=True) if p == 1 else (x * x).sum(axis, keepdim=True).sqrt()
    return x / torch.where(norm == 0, torch.ones_like(norm), norm)


def lrn(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    """Squares are summed over neighbouring channels; of an even size, one more behind."""
    before = (size - 1) // 2
    padding = [0, 0] * (x.ndim - 2) + [before, size - 1 - before]
    squares = functional.pad(x * x, padding)
    total = reduce(torch.add, [squares.narrow(1, place, x.shape[1]) for place in range(size)])
    return x / (bias + alpha / size * total) ** beta


def scatter_elements(
    x: Tensor, places: Tensor, updates: Tensor, *, axis: int = 0, reduction: Literal["none", "add"] = "none"
) -> Tensor:
    """Negative places count from the end."""
    counted = torch.where(places < 0, places + x.shape[axis], places).to(torch.int64)
    return (x.scatter_add if reduction == "add" else x.scatter)(axis, counted, updates)


def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: Literal["none", "add"] = "none") -> Tensor:
    """``x`` with slices of ``updates`` at the places that the last axis of ``indices`` tells."""
    return x.index_put(indices.unbind(-1), updates, accumulate=reduction == "add")


def trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    """One of the two triangles, with the diagonal ``k``."""
    diagonal = 0 if k is None else int(k)
    return x.triu(diagonal) if upper else x.tril(diagonal)


def cum_sum(x: Tensor, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    """Sums of what comes before, the element itself included unless ``exclusive``."""
    along = int(axis)
    turned = x.flip(along) if reverse else x
    if exclusive:  # not the sum less the element: of an infinite one that is not a number
        nothing = torch.zeros_like(turned.narrow(along, 0, 1))
        turned = torch.cat([nothing, turned.narrow(along, 0, x.shape[along] - 1)], along)
    made = turned.cumsum(along).to(x.dtype)
    return made.flip(along) if reverse else made


def bit_cast(x: Tensor, *, to: int) -> Tensor:
    """The same bits as another type."""
    return x.view(DTYPES[to])


def constant_of_shape(shape: Sequence[int], *, value: Any = None) -> Tensor:
    """Zeros of float32 without a value."""
    filled = torch.zeros(1) if value is None else torch.from_numpy(value.numpy().copy())
    return filled.reshape(()).expand(tuple(shape)).clone()


def lp_pool(
    x: Tensor, *, kernel_shape: Sequence[int], p: int = 2, strides: Sequence[int] = (), pads: Sequence[int] = (),
) -> Tensor:  # fmt: skip
    """Of one to three axes: the mean of powers times their number."""
    rank = len(kernel_shape)
    ends = [each for axis in reversed(range(rank)) for each in ((pads or (0,) * 2 * rank)[axis::rank])]
    powers = functional.pad(x.abs() ** p, ends)
    pool = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[rank - 1]
    number = 1
    for each in kernel_shape:
        number *= each
    mean: Tensor = pool(powers, tuple(kernel_shape), tuple(strides) or (1,) * rank)
    return (mean * number) ** (1 / p)


def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Slices of ``x`` at the places that the last axis of ``indices`` tells."""
    axes = range(batch_dims)
    leading = [
        torch.arange(x.shape[axis]).reshape([-1 if each == axis else 1 for each in range(indices.ndim - 1)])
        for axis in axes
    ]
    return x[(*leading, *indices.unbind(-1))]


def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """The infinite ones of the signs that are asked for."""
    ends = [end for end, asked in (("inf", detect_positive), ("-inf", detect_negative)) if asked]
    if len(ends) == 1:
        return x == float(ends[0])
    return x.abs() == float("inf") if ends else torch.zeros_like(x, dtype=torch.bool)


RARER: Mapping[str, Callable[..., Any]] = {
    "Max": _joined(torch.maximum), "Min": _joined(torch.minimum), "BitShift": bit_shift,
    "DepthToSpace": depth_to_space, "SpaceToDepth": space_to_depth, "Hardmax": hardmax,
    "LpNormalization": lp_normalization, "LRN": lrn, "ScatterElements": scatter_elements, "Trilu": trilu,
    "ConstantOfShape": constant_of_shape, "CumSum": cum_sum, "BitCast": bit_cast, "LpPool": lp_pool,
    "GatherND": gather_nd, "ScatterND": scatter_nd, "IsInf": is_inf, "IsNaN": lambda x: x.isnan(),
    "CastLike": lambda x, like: x.to(like.dtype),
    "Size": lambda x: torch.tensor(x.numel(), dtype=torch.int64),
    "ReduceProd": lambda x, axes=None, *, keepdims=1: _product(x, axes, keepdims),
}  # fmt: skip
"""Those that a graph has seldom."""


def _product(x: Tensor, axes: Sequence[int] | None, keepdims: int) -> Tensor:
    """Of the type of ``x``: PyTorch's products of int32 are int64."""
    for axis in sorted((each % x.ndim for each in (axes or range(x.ndim))), reverse=True):
        x = x.prod(axis, keepdim=bool(keepdims), dtype=x.dtype)
    return x

"""Pictures resized with a filter as wide as the reduction (``antialias=True``), as products with matrices of weights.

ONNX's Resize computes the same where sizes alone say how far apart samples lie; torch's exporter drops aligned corners
and given factors, with which torch places its filters elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.errors import Unsupported

_ATEN = torch.ops.aten
_CUBIC = -0.5
"""The coefficient of the cubic filter, as Pillow has it."""


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor) -> Tensor:
    x = x.abs()
    near = ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1
    far = ((x - 5) * x + 8) * x - 4
    return torch.where(x < 1, near, torch.where(x < 2, far * _CUBIC, 0.0))


def _weights(shape: Callable[[Tensor], Tensor], reach: float, sizes: tuple[int, int], scale: float) -> Tensor:
    """(out, in) in float64: each row a filter, of sum 1.

    Source: aten/src/ATen/native/cpu/UpSampleKernel.cpp, ``_compute_indices_min_size_weights_aa``.
    """
    before, after = sizes
    wide = max(scale, 1.0)
    support = reach * wide
    center = (torch.arange(after, dtype=torch.float64) + 0.5).unsqueeze(-1) * scale
    first = torch.floor(center - support + 0.5).clamp(min=0)
    end = torch.floor(center + support + 0.5).clamp(max=before)
    place = torch.arange(before, dtype=torch.float64)
    weight = shape((place - center + 0.5) / wide)
    weight = torch.where((place >= first) & (place < end), weight, 0.0)
    return weight / weight.sum(-1, keepdim=True)


def _scale(before: int, after: int, corners: bool, factor: float | None) -> float:
    """How far samples lie apart: ``area_pixel_compute_scale`` of aten/src/ATen/native/UpSample.h."""
    if corners:
        return (before - 1) / (after - 1) if after > 1 else 0.0
    return 1 / factor if factor is not None and factor > 0 else before / after


def _resized(shape: Callable[[Tensor], Tensor], reach: float) -> Callable[..., Tensor]:
    def function(
        x: Tensor, size: Sequence[int], corners: bool, down: float | None = None, across: float | None = None
    ) -> Tensor:
        if not all(isinstance(each, int) for each in (*size, *x.shape[-2:])):
            raise Unsupported("an antialiased resize of dynamic size by a factor; expected fixed sizes")
        for axis, factor in ((-2, down), (-1, across)):
            sizes = (x.shape[axis], size[axis])
            weights = _weights(shape, reach, sizes, _scale(*sizes, corners, factor)).to(x.dtype)
            x = weights @ x if axis == -2 else x @ weights.mT
        return x

    return function


def is_placed(node: Any) -> bool:
    """Whether corners are aligned, or a factor says how far apart samples lie and sizes do not."""
    x, size, corners, *factors = node.args
    if corners:
        return True
    given = [*factors, *node.kwargs.values(), None, None][:2]
    for before, after, factor in zip(x.meta["val"].shape[-2:], size, given, strict=True):
        if factor is not None and not (isinstance(before, int) and before * factor == after):
            return True
    return False


def _by_options(resize: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The overload that is given a size or factors."""

    def function(x: Tensor, size: Sequence[int] | None, corners: bool, factors: Sequence[float] | None) -> Tensor:
        if factors is None or size is not None:
            return resize(x, size or (), corners)
        pairs = zip(x.shape[-2:], factors, strict=True)
        return resize(x, [math.floor(float(length) * factor) for length, factor in pairs], corners, *factors)

    return function


def is_placed_by_options(node: Any) -> bool:
    """As :func:`is_placed`."""
    _, size, corners, factors = (*node.args, *node.kwargs.values(), None, None)[:4]
    return bool(corners) or (size is None and factors is not None)


_BILINEAR, _BICUBIC = _resized(_triangle, 1.0), _resized(_cubic, 2.0)
SMOOTHED: Mapping[Any, tuple[Callable[..., Any], Callable[[Any], bool]]] = MappingProxyType(
    {
        _ATEN._upsample_bilinear2d_aa.default: (_BILINEAR, is_placed),
        _ATEN._upsample_bicubic2d_aa.default: (_BICUBIC, is_placed),
        _ATEN._upsample_bilinear2d_aa.vec: (_by_options(_BILINEAR), is_placed_by_options),
        _ATEN._upsample_bicubic2d_aa.vec: (_by_options(_BICUBIC), is_placed_by_options),
    }
)

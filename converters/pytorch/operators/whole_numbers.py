"""Operators that torch computes of integers and flags, and whose forms in ONNX take floats alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators.rounded_down import floor_quotient

_ATEN = torch.ops.aten


def is_whole(node: Any) -> bool:
    """Whether the first operand holds integers or flags."""
    return _whole(node.args[0].meta["val"])


def _whole(x: Tensor) -> bool:
    return not x.is_floating_point() and not x.is_complex()


def is_byte(node: Any) -> bool:
    """Whether the first operand is uint8."""
    return bool(node.args[0].meta["val"].dtype == torch.uint8)


def rounded(x: Tensor, **options: Any) -> Any:
    """``aten::floor`` and its like: nothing to do."""
    return x.clone() if _whole(x) else NotImplemented


def is_missing(x: Tensor) -> Any:
    """``aten::isnan``, ``aten::isinf``: never."""
    return torch.ne(x, x) if _whole(x) else NotImplemented


def is_finite(x: Tensor) -> Any:
    """``aten::isfinite``: always."""
    return torch.eq(x, x) if _whole(x) else NotImplemented


def angle(x: Tensor) -> Any:
    """``aten::angle``: π of what is negative."""
    return torch.where(x < 0, math.pi, 0.0).to(torch.get_default_dtype()) if _whole(x) else NotImplemented


def any_byte(x: Tensor, *axis: Any, **options: Any) -> Any:
    """``aten::any`` of uint8, which is uint8."""
    return torch.ne(x, 0).any(*axis, **options).to(x.dtype) if x.dtype == torch.uint8 else NotImplemented


def all_bytes(x: Tensor, *axis: Any, **options: Any) -> Any:
    """``aten::all`` of uint8."""
    return torch.ne(x, 0).all(*axis, **options).to(x.dtype) if x.dtype == torch.uint8 else NotImplemented


def close_flags(x: Tensor, y: Tensor, *tolerances: Any, **options: Any) -> Any:
    """``aten::isclose`` of flags."""
    return torch.eq(x, y) if x.dtype == torch.bool else NotImplemented


def quotient(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    """``aten::div`` of integers that rounds to one: torch's exporter divides in float32, which ends at 24 digits."""
    dtype = torch.result_type(x, y)
    if rounding_mode is None or dtype.is_floating_point or dtype.is_complex:
        return floor_quotient(x, y, rounding_mode=rounding_mode)  # of a program that has both
    x, y = (each.to(dtype) if isinstance(each, Tensor) else torch.full((), each, dtype=dtype) for each in (x, y))
    below = torch.floor_divide(x, y)
    if rounding_mode == "floor":
        return below
    left = x - below * y
    return below + ((left != 0) & ((x < 0) != (y < 0))).to(dtype)  # towards zero


def remainder(x: Any, y: Any) -> Any:
    """``aten::fmod`` of integers: ONNX Runtime takes int64 as doubles, which end at 53 digits."""
    whole = quotient(x, y, rounding_mode="trunc")
    return NotImplemented if whole is NotImplemented else x - whole * y


def _in_its_type(overload: Any) -> Callable[..., Any]:
    """The operand as ``dtype`` first, which the exporter gives to the result alone."""

    def function(x: Tensor, *rest: Any, dtype: torch.dtype | None = None) -> Any:
        dims = [each for each in rest if not isinstance(each, torch.dtype)]
        dtype = next((each for each in rest if isinstance(each, torch.dtype)), dtype)
        return overload(x.to(dtype), *dims) if _whole(x) and dtype is not None else NotImplemented

    return function


def _shifted(step: Callable[[Tensor, int], Tensor], beyond: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """By the binary digits of how far, each a product with, or a quotient by, a power of two.

    ``beyond``: what is left by the width or more, or by less than none, as in ``BinaryOpsKernel.cpp``.
    """

    def function(x: Tensor, places: Tensor) -> Tensor:
        dtype = torch.result_type(x, places)
        wide = x.to(dtype) if dtype.itemsize >= 4 else x.to(torch.int32)
        far = places.to(wide.dtype)
        digit = 1
        while digit < wide.dtype.itemsize * 8:
            wide = torch.where(torch.div(far, digit, rounding_mode="floor") % 2 == 1, step(wide, digit), wide)
            digit *= 2
        return torch.where((far < 0) | (far >= dtype.itemsize * 8), beyond(x.to(dtype)), wide.to(dtype))

    return function


def _times(x: Tensor, places: int) -> Tensor:
    return x * (1 << places)


def _divided(x: Tensor, places: int) -> Tensor:
    return torch.div(x, 1 << places, rounding_mode="floor")


def _sign(x: Tensor) -> Tensor:
    return -(x < 0).to(x.dtype)


_LEFT, _RIGHT = _shifted(_times, torch.zeros_like), _shifted(_divided, _sign)
WHOLE: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **dict.fromkeys((_ATEN.floor.default, _ATEN.ceil.default, _ATEN.trunc.default, _ATEN.round.default), rounded),
        **dict.fromkeys((_ATEN.isnan.default, _ATEN.isinf.default), is_missing),
        _ATEN.isfinite.default: is_finite,
        **dict.fromkeys((_ATEN.any.default, _ATEN.any.dim, _ATEN.any.dims), any_byte),
        **dict.fromkeys((_ATEN.all.default, _ATEN.all.dim, _ATEN.all.dims), all_bytes),
        _ATEN.isclose.default: close_flags,
        _ATEN.div.Tensor_mode: quotient,
        _ATEN.div.Scalar_mode: quotient,
        _ATEN.fmod.Tensor: remainder,
        _ATEN.fmod.Scalar: remainder,
        _ATEN.angle.default: angle,
        _ATEN.softmax.int: _in_its_type(_ATEN.softmax.int),
        _ATEN.log_softmax.int: _in_its_type(_ATEN.log_softmax.int),
        _ATEN.mean.default: _in_its_type(_ATEN.mean.default),
        _ATEN.mean.dim: _in_its_type(_ATEN.mean.dim),
        _ATEN.__lshift__.Tensor: _LEFT,
        _ATEN.bitwise_left_shift.Tensor: _LEFT,
        _ATEN.__rshift__.Tensor: _RIGHT,
        _ATEN.bitwise_right_shift.Tensor: _RIGHT,
    }
)
"""By overload; :func:`is_whole` tells where they are needed."""

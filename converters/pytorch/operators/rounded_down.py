"""Quotients of floats that are rounded down, and what they leave, by C's remainder, which is exact.

torch's ONNX exporter rounds the quotient first: 1.0 // 0.1 is 10 there and 9 in torch, and 1.0 % 0.1 is 0 and not 0.1.
Source: ``div_floor_floating`` in c10/util/generic_math.h; ``remainder_kernel`` in BinaryOpsKernel.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ATEN = torch.ops.aten
_EXACT = (torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)


def remainder(x: Any, y: Any) -> Any:
    """``aten::remainder``, with the sign of ``y``."""
    dtype = _type_of(x, y)
    if isinstance(y, torch.SymInt):
        y = torch.full((), y, dtype=dtype)
        if dtype not in _EXACT:
            return torch.remainder(x, y)
    if dtype not in _EXACT or not _is_inexact(y):
        return NotImplemented
    divisor = y
    x, y = _tensor(x, dtype), _tensor(y, dtype)
    rest = torch.fmod(x, y)
    return torch.where(_points_away(rest, divisor), rest + y, rest)


def floor_quotient(x: Any, y: Any, *, rounding_mode: str | None = "floor") -> Any:
    """``aten::floor_divide``, and ``aten::div`` with that mode; torch computes halves in float32."""
    dtype = _type_of(x, y)
    if rounding_mode != "floor":
        return NotImplemented
    if isinstance(y, torch.SymInt) and dtype.is_floating_point:
        y = torch.full((), y, dtype=dtype)
    if not isinstance(x, Tensor) and not dtype.is_floating_point:
        return torch.floor_divide(torch.full((), x, dtype=dtype), y)
    if dtype not in (*_EXACT, *_HALVES) or not _is_inexact(y):
        return NotImplemented
    wide = torch.float32 if dtype in _HALVES else dtype
    divisor = y
    x, y = _tensor(x, wide), _tensor(y, wide)
    rest = torch.fmod(x, y)
    whole = (x - rest) / y
    found = torch.round(torch.where(_points_away(rest, divisor), whole - 1, whole))
    found = torch.where(y == 0, x / y, found) if isinstance(divisor, Tensor) else found
    return found.to(dtype)


def rounds(node: Any) -> bool:
    """Whether a node's quotient of floats may be rounded before it is rounded down, or has a number or dynamic size.

    A look at what number a dynamic size is would fix it to that of the example.
    """
    x, y = (each.meta["val"] if hasattr(each, "meta") else each for each in node.args[:2])
    if node.kwargs.get("rounding_mode", "floor") != "floor":
        return False
    if not isinstance(x, Tensor) or isinstance(y, torch.SymInt):
        return True
    return torch.result_type(x, y) in (*_EXACT, *_HALVES) and _is_inexact(y)


def _type_of(x: Any, y: Any) -> torch.dtype:
    return torch.result_type(*(1 if isinstance(each, torch.SymInt) else each for each in (x, y)))


def _is_inexact(y: Any) -> bool:
    """A quotient by a power of two is exact, and one by 0 nobody means."""
    return isinstance(y, Tensor) or (abs(math.frexp(y)[0]) != 0.5 and y != 0)


def _tensor(value: Any, dtype: torch.dtype) -> Tensor:
    """An operand of this type; numbers of float64 as a sum, since torch's ONNX exporter keeps 24 digits of each."""
    if isinstance(value, Tensor):
        return value.to(dtype)
    if dtype != torch.float64 or not isinstance(value, float):
        return torch.full((), value, dtype=dtype)
    total, left = None, value
    while left != 0 or total is None:
        part = float(np.float32(left))
        term = torch.full((), part, dtype=dtype)
        total, left = term if total is None else total + term, left - part
    return total


def _points_away(rest: Tensor, y: Any) -> Tensor:
    """Where what is left has the sign that the divisor has not."""
    if not isinstance(y, Tensor):
        return rest < 0 if y > 0 else rest > 0
    return (rest != 0) & ((rest < 0) != (y < 0))


ROUNDED_DOWN: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN.remainder.Tensor: remainder,
        _ATEN.remainder.Scalar: remainder,
        _ATEN.remainder.Scalar_Tensor: remainder,
        _ATEN.floor_divide.default: floor_quotient,
        _ATEN.floor_divide.Scalar: floor_quotient,
        _ATEN.div.Tensor_mode: floor_quotient,
        _ATEN.div.Scalar_mode: floor_quotient,
    }
)
"""By overload; :func:`rounds` tells where they are needed."""

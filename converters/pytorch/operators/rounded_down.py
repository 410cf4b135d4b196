"""Quotients of floats that are rounded down, and what they leave, by C's remainder, which is exact.

torch's ONNX exporter rounds the quotient first: 1.0 // 0.1 is 10 there and 9 in torch, and 1.0 % 0.1 is 0 and not 0.1.
Source: ``div_floor_floating`` in c10/util/generic_math.h; ``remainder_kernel`` in BinaryOpsKernel.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten
_EXACT = (torch.float32, torch.float64)


def remainder(x: Any, y: Any) -> Any:
    """``aten::remainder``, with the sign of ``y``."""
    if not _is_inexact(x, y):
        return NotImplemented
    rest = torch.fmod(x, y)
    return torch.where(_points_away(rest, y), rest + y, rest)


def floor_quotient(x: Any, y: Any, *, rounding_mode: str | None = "floor") -> Any:
    """``aten::floor_divide``, and ``aten::div`` with that mode."""
    if rounding_mode != "floor" or not _is_inexact(x, y):
        return NotImplemented
    rest = torch.fmod(x, y)
    whole = (x - rest) / y
    found = torch.round(torch.where(_points_away(rest, y), whole - 1, whole))
    return torch.where(y == 0, x / y, found) if isinstance(y, Tensor) else found


def rounds(node: Any) -> bool:
    """Whether a node's quotient of floats may be rounded before it is rounded down."""
    given = [each.meta["val"] if hasattr(each, "meta") else each for each in node.args[:2]]
    return node.kwargs.get("rounding_mode", "floor") == "floor" and _is_inexact(*given)


def _is_inexact(x: Any, y: Any) -> bool:
    """A quotient by a power of two is exact, and one by 0 nobody means."""
    if not isinstance(x, Tensor) or torch.result_type(x, y) not in _EXACT:
        return False
    return isinstance(y, Tensor) or (abs(math.frexp(y)[0]) != 0.5 and y != 0)


def _points_away(rest: Tensor, y: Any) -> Tensor:
    """Where what is left has the sign that the divisor has not."""
    if not isinstance(y, Tensor):
        return rest < 0 if y > 0 else rest > 0
    return (rest != 0) & ((rest < 0) != (y < 0))


ROUNDED_DOWN: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        _ATEN.remainder.Tensor: remainder,
        _ATEN.remainder.Scalar: remainder,
        _ATEN.floor_divide.default: floor_quotient,
        _ATEN.floor_divide.Scalar: floor_quotient,
        _ATEN.div.Tensor_mode: floor_quotient,
        _ATEN.div.Scalar_mode: floor_quotient,
    }
)
"""By overload; :func:`rounds` tells where they are needed."""

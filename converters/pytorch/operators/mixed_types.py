"""Operands of several types, where torch's ONNX exporter finds no form of the operator.

Its promotion of types makes the integers of ``1.0 - mask`` real and then looks for a subtraction of a tensor from a
number, and it makes a tensor of one bound of ``clamp(x, 0, 0.5)`` alone: torch has no operators for these.  A sum of
flags is an "or" in torch, and ONNX adds no flags.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten


def from_number(x: Tensor, number: complex, alpha: complex = 1) -> Any:
    """``aten::rsub.Scalar`` of integers or flags: ``number - alpha * x`` in the type that torch promotes to."""
    dtype = torch.result_type(x, number)
    wide = x.to(dtype)
    return torch.full((), number, dtype=dtype) - (wide if alpha == 1 else wide * alpha)


def difference(number: Any, x: Tensor, *, alpha: complex = 1) -> Any:
    """``aten::sub.Tensor`` as it stands in a program that was decomposed before, its first operand a number."""
    return NotImplemented if isinstance(number, Tensor) else from_number(x, number, alpha)


def is_real_from_integers(node: Any) -> bool:
    """Whether a node of ``rsub`` takes integers from a real number."""
    return _is_mixed(node.args[1], node.args[0])


def is_number_first(node: Any) -> bool:
    """Whether a node of ``sub`` takes integers from a real number."""
    return _is_mixed(*node.args[:2])


def _is_mixed(number: Any, x: Any) -> bool:
    return isinstance(number, float) and not x.meta["val"].dtype.is_floating_point


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Any:
    """``aten::clamp`` with an integer and a real number as bounds: both in the type that torch promotes to."""
    if not _differ(min, max):
        return NotImplemented
    dtype = torch.result_type(x, float(min))
    return torch.clamp(x.to(dtype), float(min), float(max))


def has_mixed_bounds(node: Any) -> bool:
    """Whether a node of ``clamp`` has an integer and a real number as bounds."""
    bounds = [*node.args[1:], *(node.kwargs.get(name) for name in ("min", "max")[len(node.args) - 1 :])]
    return _differ(*bounds)


def _differ(low: Any, high: Any) -> bool:
    return {type(low), type(high)} in ({int, float}, {bool, float})


def flags_added(x: Any, y: Any, *, alpha: complex = 1) -> Any:
    """``aten::add`` of flags, which is "or"."""
    flags = all(isinstance(each, Tensor) and each.dtype == torch.bool for each in (x, y))
    return torch.logical_or(x, y) if flags and alpha == 1 else NotImplemented


def adds_flags(node: Any) -> bool:
    """Whether a node of ``add`` takes flags alone."""
    values = [getattr(each, "meta", {}).get("val") for each in node.args[:2]]
    return all(getattr(value, "dtype", None) == torch.bool for value in values)


def stacked(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    """``aten::stack`` of several types."""
    return torch.stack(_promoted(tensors), dim) if _are_mixed(tensors) else NotImplemented


def stacks_types(node: Any) -> bool:
    """Whether a node of ``stack`` takes tensors of several types."""
    return _are_mixed([each.meta["val"] for each in node.args[0]])


def summed_products(equation: str, tensors: Sequence[Tensor], *, path: Any = None) -> Any:
    """``aten::einsum`` of several types: positions times frequencies."""
    return torch.einsum(equation, _promoted(tensors)) if _are_mixed(tensors) else NotImplemented


def multiplies_types(node: Any) -> bool:
    """Whether a node of ``einsum`` takes tensors of several types."""
    return _are_mixed([each.meta["val"] for each in node.args[1]])


def power(x: Tensor, exponent: Tensor) -> Any:
    """``aten::pow`` of integers by reals: ONNX gives the result the type of ``x``."""
    return torch.pow(*_promoted((x, exponent))) if _is_real_power(x, exponent) else NotImplemented


def raises_integers(node: Any) -> bool:
    """Whether a node of ``pow`` raises integers to real exponents."""
    return _is_real_power(*(each.meta["val"] for each in node.args[:2]))


def _is_real_power(x: Tensor, exponent: Tensor) -> bool:
    return exponent.dtype.is_floating_point and not x.dtype.is_floating_point


def _are_mixed(tensors: Sequence[Tensor]) -> bool:
    return len({each.dtype for each in tensors}) > 1


def _promoted(tensors: Sequence[Tensor]) -> list[Tensor]:
    """All in the type that torch promotes to; a number of no axes counts only where it is of a higher kind."""
    pairs = (torch.result_type(one, other) for one, other in itertools.combinations(tensors, 2))
    dtype = functools.reduce(torch.promote_types, pairs)
    return [each.to(dtype) for each in tensors]


MIXED: Mapping[Any, tuple[Callable[..., Any], Callable[[Any], bool]]] = MappingProxyType(
    {
        _ATEN.rsub.Scalar: (from_number, is_real_from_integers),
        _ATEN.sub.Tensor: (difference, is_number_first),
        _ATEN.clamp.default: (clamp, has_mixed_bounds),
        _ATEN.add.Tensor: (flags_added, adds_flags),
        _ATEN.stack.default: (stacked, stacks_types),
        _ATEN.pow.Tensor_Tensor: (power, raises_integers),
        _ATEN.einsum.default: (summed_products, multiplies_types),
    }
)
"""A function for an operator, and whether a node of it needs that."""


def _alias(overload: Any) -> Callable[..., Any]:
    def function(*operands: Any, **options: Any) -> Any:
        return overload(*operands, **options)

    return function


_OTHER_NAMES = {
    "divide": "div", "multiply": "mul", "subtract": "sub", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "not_equal": "ne",
}  # fmt: skip
ALIASES: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        getattr(getattr(_ATEN, name), overload): _alias(getattr(getattr(_ATEN, same), overload))
        for name, same in _OTHER_NAMES.items()
        for overload in ("Tensor", "Scalar")
    }
)
"""Second names of operators, whose operands of two types the exporter brings together under the first name alone."""

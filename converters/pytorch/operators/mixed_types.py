"""A real number minus integers, where torch's ONNX exporter finds no form of the operator.

Its promotion of types makes the integers real and then looks for a subtraction of a tensor from a number, which torch
has no operator for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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

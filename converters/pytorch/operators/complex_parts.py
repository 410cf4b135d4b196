"""Real and imaginary parts of complex tensors, and what computes each part alike or multiplies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def is_complex(value: Any) -> bool:
    """Whether a tensor or a number is complex, or one of a list or tuple of them."""
    if isinstance(value, (list, tuple)):
        return any(is_complex(each) for each in value)
    return value.is_complex() if isinstance(value, Tensor) else isinstance(value, complex)


def joined(real: Tensor, imaginary: Tensor) -> Tensor:
    """The complex tensor of two parts, broadcast against each other."""
    return torch.view_as_complex(torch.stack(torch.broadcast_tensors(real, imaginary), -1))


def part(value: Any, place: int) -> Any:
    """The real part (0) or the imaginary one (1); of real tensors and numbers, that is zero."""
    if isinstance(value, (list, tuple)):
        return [part(each, place) for each in value]
    if not isinstance(value, Tensor):
        return (value.real, value.imag)[place] if value is not None else None
    if value.is_complex():
        return torch.view_as_real(value).select(-1, place)
    return value if place == 0 else torch.zeros_like(value)


def parts(z: Any) -> tuple[Any, Any]:
    """Real and imaginary part; None where there is no imaginary one."""
    return part(z, 0), part(z, 1) if is_complex(z) else None


def linear(overload: Any, values: tuple[int, ...], *operands: Any, **options: Any) -> Any:
    """Both parts alike; ``values`` are the operands that hold numbers, the others are sizes, places and masks."""
    if not any(is_complex(operands[place]) for place in values if place < len(operands)):
        return NotImplemented
    real, imaginary = (
        overload(*(part(each, which) if n in values else each for n, each in enumerate(operands)), **options)
        for which in (0, 1)
    )
    if isinstance(real, (list, tuple)):
        return [joined(*pair) for pair in zip(real, imaginary, strict=True)]
    return joined(real, imaginary)


def product(multiply: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """``(a + bi)(c + di)`` for any bilinear ``multiply``."""
    if not is_complex((x, y)):
        return NotImplemented
    (a, b), (c, d) = parts(x), parts(y)
    if b is None:
        return joined(multiply(a, c), multiply(a, d))
    if d is None:
        return joined(multiply(a, c), multiply(b, c))
    return joined(multiply(a, c) - multiply(b, d), multiply(a, d) + multiply(b, c))

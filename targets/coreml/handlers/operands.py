"""What handlers ask of their operands."""

from __future__ import annotations

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.tensor import Tensor

MOVES = (13, 14, 16, 19, 21, 23, 24, 25)
"""Versions of operators that move data, which differ in their element types only."""


def known(x: Tensor | None, what: str) -> Array:
    """The numbers of a constant; ``Unsupported`` where they are only known when the model runs."""
    if x is None or x.array is None:
        raise Unsupported(f"{what} computed at run time")
    return x.array


def integers(x: Tensor | None, what: str) -> tuple[int, ...]:
    """A constant's integers."""
    return tuple(int(each) for each in known(x, what).reshape(-1))


def only_float(x: Tensor, what: str) -> None:
    """Refuse integers where MIL's operation has floats only."""
    if not x.is_float:
        raise Unsupported(f"{what} of integers: MIL has it for floats only")


def in_float(b: Builder, x: Tensor) -> Tensor:
    """Integers and booleans as float32, floats as they are."""
    return x if x.is_float else b.cast(x, "float32")


def flat_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Axes counted from the front."""
    return tuple(axis % rank for axis in axes)

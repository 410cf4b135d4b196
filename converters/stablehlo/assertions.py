"""What a module asserts of the sizes of its inputs, as ``jax.export`` writes it for symbolic dimensions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.mlir import constant_of, element, integer, text
from convertkit.converters.stablehlo.module import walk
from convertkit.converters.stablehlo.tensor import Tensor

Sizes = Sequence[Sequence[int | None]]
"""Of each input the sizes, None for those that are not told."""


def _quotient(left: int, right: int) -> int | None:
    """Rounded to zero, as StableHLO divides."""
    if right == 0:
        return None
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int | None:
    quotient = _quotient(left, right)
    return None if quotient is None else left - right * quotient


_SAME = frozenset(("convert", "reshape", "broadcast_in_dim"))
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = MappingProxyType(
    {
        "EQ": operator.eq,
        "NE": operator.ne,
        "LT": operator.lt,
        "LE": operator.le,
        "GT": operator.gt,
        "GE": operator.ge,
    }
)
_PAIRS: Mapping[str, Callable[[int, int], int | None]] = MappingProxyType(
    {
        "add": operator.add,
        "subtract": operator.sub,
        "multiply": operator.mul,
        "maximum": max,
        "minimum": min,
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "divide": _quotient,
        "remainder": _remainder,
    }
)
_ALONE: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"negate": operator.neg, "abs": abs, "sign": lambda value: (value > 0) - (value < 0)}
)


def is_assertion(op: Any) -> bool:
    """Whether an operator asserts something of sizes."""
    return bool(
        op.operation.name == "stablehlo.custom_call"
        and text(op.operation.attributes["call_target_name"]) == "shape_assertion"
    )


@dataclass(frozen=True, slots=True)
class _Step:
    """A scalar: its operands by their places among the steps, and what it is of them."""

    operands: tuple[int, ...]
    compute: Callable[[Sequence[int]], int | None]


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of an axis of an input."""

    place: int
    axis: int


class Assertions:
    """The assertions of one function, whose calls are inlined."""

    def __init__(self, function: Any) -> None:
        self._arguments = list(function.regions[0].blocks[0].arguments)
        self._steps: list[_Step | _Size] = []
        self._places: dict[Any, int] = {}
        self._asserted = [self._place(op.operands[0]) for op in walk(function.operation) if is_assertion(op)]

    def refused(self, sizes: Sizes) -> bool:
        """Whether inputs of these sizes are refused; what depends on sizes that are not told refuses nothing."""
        numbers: list[int | None] = []
        for step in self._steps:
            if isinstance(step, _Size):
                numbers.append(sizes[step.place][step.axis])
            else:
                told = [number for each in step.operands if (number := numbers[each]) is not None]
                numbers.append(step.compute(told) if len(told) == len(step.operands) else None)
        return any(numbers[place] == 0 for place in self._asserted)

    def _place(self, value: Any) -> int:
        """Where a scalar stands among the steps, which end with it where it is new."""
        if value not in self._places:
            step = self._step(value)
            self._steps.append(step)
            self._places[value] = len(self._steps) - 1
        return self._places[value]

    def _step(self, value: Any) -> _Step | _Size:
        if isinstance(value.owner, mlir.Block):
            return _UNTOLD
        op, name = value.owner, value.owner.name.removeprefix("stablehlo.")
        if name == "constant":
            known = _constant(op)
            return _Step((), lambda _: known)
        if name == "get_dimension_size":
            sized = op.operands[0]
            axis = integer(op.attributes["dimension"])
            return _Size(self._arguments.index(sized), axis) if sized in self._arguments else _UNTOLD
        return _Step(tuple(self._place(each) for each in op.operands), _arithmetic(op, name))


_UNTOLD = _Step((), lambda _: None)


def _constant(op: Any) -> int | None:
    value = constant_of(op)
    return None if not isinstance(value, Tensor) or value.scalar is None else int(value.scalar)


def _arithmetic(op: Any, name: str) -> Callable[[Sequence[int]], int | None]:
    """What an operator makes of its operands; None of them where it is not one of sizes."""
    if name in _SAME:
        return lambda numbers: numbers[0]
    if name == "not":
        return (lambda numbers: 1 - numbers[0]) if element(op.results[0].type) == "i1" else lambda numbers: ~numbers[0]
    if name in _ALONE:
        return lambda numbers: _ALONE[name](numbers[0])
    if name in _PAIRS:
        return lambda numbers: _PAIRS[name](numbers[0], numbers[1])
    if name == "compare":
        compared = _COMPARISONS[text(op.attributes["comparison_direction"])]
        return lambda numbers: int(compared(numbers[0], numbers[1]))
    if name == "select":
        return lambda numbers: numbers[1] if numbers[0] else numbers[2]
    return lambda _: None

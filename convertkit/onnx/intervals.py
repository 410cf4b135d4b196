"""Intervals through elementwise operators: what results may be, and what an operand must be for a result to be right.

Both are estimates on the safe side.  A result's interval holds every value that it can take; an operand's is one that
suffices, where it is known, and everything where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convertkit.artifact import Array

Interval = tuple[float, float]
"""The least and the greatest value, both included; infinite where there is none."""

INF = math.inf
ALL: Interval = (-INF, INF)
POSITIVE: Interval = (0.0, INF)
Forward = Callable[[Sequence[Interval]], Interval]
Backward = Callable[[Interval, Sequence[Interval], int], Interval]

MOVES = frozenset(
    {
        "Identity", "Cast", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Expand", "Gather",
        "GatherND", "GatherElements", "Tile", "Split", "Dropout", "DepthToSpace", "SpaceToDepth", "ReduceMean",
        "ReduceMax", "ReduceMin", "MaxPool", "GlobalMaxPool", "GlobalAveragePool",
    }
)  # fmt: skip
"""Operators whose results lie in the interval of the first operand."""


def inside(inner: Interval, outer: Interval) -> bool:
    """Whether nothing of ``inner`` lies outside ``outer``."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def meet(one: Interval, other: Interval) -> Interval:
    """What lies in both; empty where the first end is greater than the second."""
    return max(one[0], other[0]), min(one[1], other[1])


def join(parts: Sequence[Interval]) -> Interval:
    """The least interval that holds all ``parts``."""
    return min(low for low, _ in parts), max(high for _, high in parts)


def _product(one: Interval, other: Interval) -> Interval:
    ends = [0.0 if 0.0 in (a, b) else a * b for a in one for b in other]
    return min(ends), max(ends)


def _quotient(one: Interval, other: Interval) -> Interval:
    if other[0] <= 0.0 <= other[1]:
        return POSITIVE if one[0] >= 0.0 and other[0] >= 0.0 else ALL
    return _product(one, (1 / other[1], 1 / other[0]))


def _magnitude(x: Interval) -> Interval:
    return (0.0, max(-x[0], x[1])) if x[0] <= 0.0 <= x[1] else (min(map(abs, x)), max(map(abs, x)))


def _mapped(function: Callable[[float], float]) -> Forward:
    """A rising function, end by end."""
    return lambda x: (function(x[0][0]), function(x[0][1]))


def _exp(x: float) -> float:
    return math.exp(min(x, 709.0)) if x < 710.0 else INF


FORWARD: Mapping[str, Forward] = {
    "Add": lambda x: (x[0][0] + x[1][0], x[0][1] + x[1][1]),
    "Sub": lambda x: (x[0][0] - x[1][1], x[0][1] - x[1][0]),
    "Mul": lambda x: _product(x[0], x[1]),
    "Div": lambda x: _quotient(x[0], x[1]),
    "Neg": lambda x: (-x[0][1], -x[0][0]),
    "Abs": lambda x: _magnitude(x[0]),
    "Exp": _mapped(_exp),
    "Relu": _mapped(lambda x: max(x, 0.0)),
    "Clip": lambda x: (
        min(max(x[0][0], x[1][0]), x[2][1]) if len(x) > 2 else max(x[0][0], x[1][0]),
        max(min(x[0][1], x[2][1]), x[1][0]) if len(x) > 2 else max(x[0][1], x[1][0]),
    ),
    "Max": lambda x: (max(low for low, _ in x), max(high for _, high in x)),
    "Min": lambda x: (min(low for low, _ in x), min(high for _, high in x)),
    "Concat": join,
    "Where": lambda x: join(x[1:]),
    "Sqrt": lambda x: (math.sqrt(max(x[0][0], 0.0)), math.sqrt(max(x[0][1], 0.0))),
    "Reciprocal": lambda x: _quotient((1.0, 1.0), x[0]),
    "ReduceSum": lambda x: (0.0 if x[0][0] >= 0.0 else -INF, 0.0 if x[0][1] <= 0.0 else INF),
} | {
    name: lambda _, ends=ends: ends
    for name, ends in {
        "Sigmoid": (0.0, 1.0), "HardSigmoid": (0.0, 1.0), "Softmax": (0.0, 1.0), "Tanh": (-1.0, 1.0),
        "Erf": (-1.0, 1.0), "Sin": (-1.0, 1.0), "Cos": (-1.0, 1.0), "Softplus": POSITIVE, "Softsign": (-1.0, 1.0),
        "ReduceL1": POSITIVE, "ReduceL2": POSITIVE, "ReduceSumSquare": POSITIVE, "Acos": (0.0, math.pi),
        "Acosh": POSITIVE, "Cosh": (1.0, INF), "Size": POSITIVE, "Shape": POSITIVE, "Hardmax": (0.0, 1.0),
    }.items()
}  # fmt: skip
"""The interval of a result from those of its operands."""


def _add_needs(need: Interval, x: Sequence[Interval], place: int) -> Interval:
    """An operand of unknown size leaves the other one half of the way."""
    low, high = x[1 - place]
    return (
        need[0] - low if math.isfinite(low) else need[0] / 2,
        need[1] - high if math.isfinite(high) else need[1] / 2,
    )


def _sub_needs(need: Interval, x: Sequence[Interval], place: int) -> Interval:
    if place == 0:
        return _add_needs(need, [x[0], (-x[1][1], -x[1][0])], 0)
    low, high = _add_needs(need, [x[0], (-x[1][1], -x[1][0])], 1)
    return -high, -low


def _mul_needs(need: Interval, x: Sequence[Interval], place: int) -> Interval:
    low, high = x[1 - place]
    if low < 0.0 and high <= 0.0:
        a, b = _mul_needs(need, [(-high, -low)] * 2, 0)
        return -b, -a
    if low > 0.0 and math.isfinite(high):
        a, b = need
        return a / (high if a <= 0.0 else low), b / (high if b >= 0.0 else low)
    return POSITIVE if need[0] == 0.0 and need[1] == INF else ALL


def _div_needs(need: Interval, x: Sequence[Interval], place: int) -> Interval:
    low, high = x[1 - place]
    if place == 0 and not low <= 0.0 <= high:
        return _mul_needs(need, [(1 / high, 1 / low)] * 2, 0)
    return POSITIVE if need[0] == 0.0 and need[1] == INF else ALL


def _abs_needs(need: Interval, _: Sequence[Interval], __: int) -> Interval:
    return (-need[1], need[1]) if need[0] <= 0.0 else need


def _clip_needs(need: Interval, x: Sequence[Interval], _: int) -> Interval:
    least = x[1][0] if len(x) > 1 else -INF
    greatest = x[2][1] if len(x) > 2 else INF
    return need[0] if least < need[0] else -INF, need[1] if greatest > need[1] else INF


def _max_needs(need: Interval, x: Sequence[Interval], place: int) -> Interval:
    others = max(low for each, (low, _) in enumerate(x) if each != place)
    return need[0] if others < need[0] else -INF, need[1]


def _min_needs(need: Interval, x: Sequence[Interval], place: int) -> Interval:
    others = min(high for each, (_, high) in enumerate(x) if each != place)
    return need[0], need[1] if others > need[1] else INF


def _log(x: float) -> float:
    return -INF if x <= 0.0 else math.log(x) if x < INF else INF


BACKWARD: Mapping[str, Backward] = {
    "Add": _add_needs,
    "Sub": _sub_needs,
    "Mul": _mul_needs,
    "Div": _div_needs,
    "Abs": _abs_needs,
    "Clip": _clip_needs,
    "Max": _max_needs,
    "Min": _min_needs,
    "Concat": lambda need, _, __: need,
    "Where": lambda need, _, place: need if place else ALL,
    "Neg": lambda need, _, __: (-need[1], -need[0]),
    "Exp": lambda need, _, __: (_log(need[0]), _log(need[1])),
    "Log": lambda need, _, __: (_exp(need[0]), _exp(need[1])),
    "Sqrt": lambda need, _, __: (max(need[0], 0.0) ** 2, need[1] ** 2 if need[1] > 0.0 else 0.0),
    "Relu": lambda need, _, __: (need[0] if need[0] > 0.0 else -INF, need[1]),
    "Reciprocal": lambda need, x, _: _div_needs(need, [(1.0, 1.0), x[0]], 1),
    "ReduceSum": lambda need, _, place: POSITIVE if need == POSITIVE and place == 0 else ALL,
}
"""The interval of one operand (by its place) that suffices for a result in ``need``, from the operands' own."""


def squared_needs(need: Interval) -> Interval:
    """The operand of ``x * x``; a lower bound holds on either side of a gap and is not asked for."""
    root = math.sqrt(need[1]) if need[1] > 0.0 else 0.0
    return -root, root


def of_numbers(values: Array) -> Interval:
    """The interval of a constant; everything where it is empty or not finite."""
    numbers = values.astype(np.float64)
    return (float(numbers.min()), float(numbers.max())) if numbers.size and np.isfinite(numbers).all() else ALL

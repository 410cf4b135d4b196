"""Inputs whose values lie on a grid, as recorded integers, pixels and bits do: integers can hold them exactly.

A range from least to greatest value divides what was recorded in steps of 0.58 into steps of 0.57, and rounds every
value.  Steps of the grid, or whole parts of them, round none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.calibrate.range_dependencies import same_numbers
from convertkit.quantization.calibrate.ranges import Range
from convertkit.stage import Feed

_SAMPLES = 64
"""So many tell of all: one value between two steps is enough to see that there is no grid."""
_LATER = 1 << 16
"""Values that are looked at in each sample behind the first one."""
_MOST, _FEWEST = 256, 3
"""Different values: more do not fit into 8 bits, and two lie on a grid in any case."""
_PARTS = 4
"""The least distance of two values may be so many steps, where none are neighbours."""
_OFF = 1e-3
"""Of a step, by which float32 may have moved a value."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Values are whole multiples of ``step``; ``odd``: odd ones alone, so that zero lies between two of them."""

    step: float
    odd: bool = False

    def fits(self, scale: float) -> bool:
        """Whether integers of this scale hold the grid: its step is a whole number of theirs."""
        parts = self.step / scale
        return round(parts) >= 1 and abs(parts - round(parts)) < _OFF

    def range(self, low: float, high: float, levels: int, symmetric: bool) -> Range | None:
        """The range from ``low`` to ``high`` or wider whose integers hold the grid; None where there are too few.

        Of a grid without zero it is one without ties.
        ``levels`` are steps between the least and the greatest integer.
        """
        first, last = round(min(low, 0.0) / self.step), round(max(high, 0.0) / self.step)
        if symmetric:
            most = levels // 2
            parts = most // max(-first, last, 1)
            return (-most * self.step / parts, most * self.step / parts) if parts else None
        start, count = first * self.step, max(last - first, 1)
        if parts := levels // count:
            return start, start + levels * self.step / parts
        # Pixels from -1 to 1: integers hold zero, so that all values would lie on ties between two of them.
        return (start, start + levels * count * self.step / (levels - 1)) if self.odd and count <= 2 * levels else None


def grids(graph: ir.Graph, feeds: Iterable[Feed]) -> Mapping[str, Grid]:
    """The grids of inputs, by the names of all values that hold their numbers."""
    values = _values([str(value.name) for value in graph.inputs], feeds)
    found = {name: grid for name, seen in values.items() if (grid := grid_of(seen)) is not None}
    by_input = {value: found[str(value.name)] for value in graph.inputs if value.name in found}
    everywhere = (*graph.inputs, *(value for node in graph for value in node.outputs))
    return {str(value.name): by_input[origin] for value in everywhere if (origin := same_numbers(value)) in by_input}


def _values(names: Iterable[str], feeds: Iterable[Feed]) -> dict[str, Array]:
    """What differs among the values of float32 inputs, sorted; of few enough, sample by sample."""
    found = dict.fromkeys(names, np.zeros(0, np.float32))
    for place, feed in enumerate(islice(feeds, _SAMPLES)):
        given = {name: feed.get(name) for name in found}
        found = {name: np.union1d(found[name], array if place == 0 else _some(array)) for name, array in given.items()
                 if array is not None and array.dtype == np.float32}  # fmt: skip
        found = {name: seen for name, seen in found.items() if seen.size <= _MOST}
        if not found:
            break
    return found


def _some(array: Array) -> Array:
    return array.ravel()[:: max(1, array.size // _LATER) | 1]


def grid_of(values: Array) -> Grid | None:
    """The grid on which sorted values lie, and the zero."""
    if not _FEWEST <= values.size <= _MOST or not np.isfinite(values).all():
        return None
    exact = values.astype(np.float64)
    for step in _steps(exact):
        steps = exact / step
        whole = np.rint(steps)
        if np.abs(steps - whole).max() < _OFF:
            return Grid(step, odd=bool((whole % 2 == 1).all()))
    return None


def _steps(values: Array) -> Iterator[float]:
    """What the step may be: the least distance or a part of it, measured over the whole range."""
    least, reach = np.diff(values).min(), values[-1] - values[0]
    for parts in range(1, _PARTS + 1):
        yield float(reach / np.rint(reach / least * parts))

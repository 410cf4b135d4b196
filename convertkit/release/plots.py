"""Geometry of the trade-off plots: what a cell keeps of the answers, against its size and its latency.

All lengths are SVG user units, y grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from convertkit.release.result import CellResult
from convertkit.text import size_text

WIDTH, HEIGHT = 460, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 14, 40
_LETTER, _LINE = 6.4, 14
"""Width and height of a label's letter."""
_LEAST_SPAN = 1e-3
"""Of values that are all but the same, relative to their size: else a plot magnifies the last digit."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One cell; its label begins, or with the anchor ``end`` ends, at ``label_x``."""

    x: float
    y: float
    label: str
    title: str
    passed: bool
    anchor: str
    label_x: float = 0.0
    label_y: float = 0.0

    @property
    def box(self) -> tuple[float, float]:
        """Where the label begins and ends, about."""
        width = _LETTER * len(self.label)
        return (self.label_x - width, self.label_x) if self.anchor == "end" else (self.label_x, self.label_x + width)


@dataclass(frozen=True, slots=True)
class Tick:
    """A value on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Dots with both axes; ``x_title`` and ``y_title`` name them."""

    x_title: str
    y_title: str
    dots: tuple[Dot, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    bottom: int = HEIGHT - _BOTTOM


Value = Callable[[CellResult], float | None]


def plots(cells: Sequence[CellResult]) -> tuple[Plot, ...]:
    """Of one model's cells: quality against latency and against size; none where there is nothing to weigh."""
    quality = _quality(cells)
    if quality is None:
        return ()
    title, value = quality
    axes: tuple[tuple[str, Value, Callable[[float], str]], ...] = (
        ("latency of a call, ms", lambda cell: cell.latency_ms, lambda ms: f"{ms:.3g}"),
        ("size", lambda cell: cell.size_bytes, lambda size: size_text(int(size))),
    )
    made = (_plot(cells, name, title, across, value, text) for name, across, text in axes)
    return tuple(each for each in made if each is not None)


def _quality(cells: Sequence[CellResult]) -> tuple[str, Value] | None:
    """What most cells can be compared by: accuracy, else agreement with float32, else signal over noise."""
    kinds: tuple[tuple[str, Value], ...] = (
        (next((cell.metric for cell in cells if cell.metric), None) or "", lambda cell: cell.accuracy),
        ("agreement with float32, %", lambda cell: None if cell.agreement is None else 100 * cell.agreement),
        ("signal over noise, dB", lambda cell: _finite(cell.snr_db)),
    )
    return next(((title, value) for title, value in kinds if sum(value(cell) is not None for cell in cells) > 1), None)


def _finite(value: float | str | None) -> float | None:
    """A number that can be drawn; JSON has text for infinity."""
    return None if value is None or not math.isfinite(float(value)) else float(value)


def _plot(
    cells: Sequence[CellResult], x_title: str, y_title: str, across: Value, up: Value, text: Callable[[float], str]
) -> Plot | None:
    points = [(cell, x, y) for cell in cells if (x := across(cell)) and (y := up(cell)) is not None]
    if len(points) < 2:
        return None
    x_axis = _Axis([math.log10(x) for _, x, _ in points], _LEFT, WIDTH - _RIGHT)
    y_axis = _Axis([y for _, _, y in points], HEIGHT - _BOTTOM, _TOP)
    dots = []
    for cell, x, y in points:
        place = x_axis.at(math.log10(x))
        label = f"{cell.target} {cell.precision}"
        told = f"{label}: {y_title} {y:.4g}, {x_title} {text(x)}"
        anchor = "end" if place > WIDTH * 0.6 else "start"
        dots.append(Dot(place, y_axis.at(y), label, told, cell.passed, anchor))
    placed = _labelled(dots)
    x_ticks = tuple(Tick(x_axis.at(value), text(10**value)) for value in x_axis.ends)
    y_ticks = tuple(Tick(y_axis.at(value), f"{value:.4g}") for value in y_axis.ends)
    return Plot(x_title, y_title, placed, x_ticks, y_ticks)


def _labelled(dots: Sequence[Dot]) -> tuple[Dot, ...]:
    """The dots with labels that do not lie on each other: above, else below, and further away."""
    placed = list[Dot]()
    for dot in dots:
        side = 8 if dot.anchor == "start" else -8
        at = (replace(dot, label_x=dot.x + side, label_y=dot.y + off) for off in _OFFSETS)
        free = (
            each for each in at if _TOP <= each.label_y <= HEIGHT - _BOTTOM and not any(_meet(each, o) for o in placed)
        )
        placed.append(next(free, replace(dot, label_x=dot.x + side, label_y=dot.y - 7)))
    return tuple(placed)


_OFFSETS = tuple(side * (7 + _LINE * step) + (4 if side > 0 else 0) for step in range(8) for side in (-1, 1))


def _meet(one: Dot, other: Dot) -> bool:
    return abs(one.label_y - other.label_y) < _LINE and one.box[0] < other.box[1] and other.box[0] < one.box[1]


class _Axis:
    """From values to places, with a tenth of the span left free at both ends."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        low, high = min(values), max(values)
        span = max(high - low, _LEAST_SPAN * max(abs(low), abs(high), 1.0))
        self.ends = (low, high) if high - low >= span else (low,)
        self._low, self._span = (low + high) / 2 - 0.6 * span, 1.2 * span
        self._first, self._last = first, last

    def at(self, value: float) -> float:
        """The place of a value."""
        return round(self._first + (self._last - self._first) * (value - self._low) / self._span, 1)

"""Geometry of the report's pictures: numbers in, places of boxes and bars out; page.html draws them.

All lengths are SVG user units, y grows downwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

_PLOT_WIDTH, _PLOT_HEIGHT = 300, 84
_CURVE_WIDTH, _CURVE_HEIGHT = 520, 220


@dataclass(frozen=True, slots=True)
class Box:
    """One artifact of the pipeline; ``verdict`` and ``label`` tell of the step to it, None and empty for the source."""

    title: str
    format: str
    runtime: str
    bytes: int
    seconds: float | None = None
    verdict: bool | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bin: ``share`` (0 to 1) of all elements lies between ``low`` and ``high``."""

    x: float
    y: float
    width: float
    height: float
    low: float
    high: float
    share: float


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram with a logarithmic count axis, so that single outliers stay visible; ``marks`` are places on it."""

    width: int
    height: int
    bars: tuple[Bar, ...]
    low: float
    high: float
    marks: tuple[float, ...] = ()

    @property
    def peak(self) -> float:
        """The middle of the fullest bin."""
        fullest = max(self.bars, key=lambda bar: bar.share)
        return (fullest.low + fullest.high) / 2


@dataclass(frozen=True, slots=True)
class Point:
    """One candidate of a trade-off."""

    x: float
    y: float
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """A trade-off: cost to the right, what is kept upwards; bounds in data units."""

    width: int
    height: int
    points: tuple[Point, ...]
    x_bounds: tuple[float, float]
    y_bounds: tuple[float, float]

    @property
    def line(self) -> str:
        """The points as an SVG polyline's ``points``, by cost."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in sorted(self.points, key=lambda point: point.x))


def pipeline(report: Mapping[str, Any]) -> tuple[Box, ...]:
    """The source and every step's artifact, each with its verification against the one before."""
    source = report["source"]
    boxes = [Box("source", source["format"], source.get("runtime", ""), source["bytes"])]
    for step in report["steps"]:
        made, parity = step["artifact"], step["parity"]["versus_previous"]
        runtime = made.get("runtime", "")
        passed, label = parity["passed"], headline(parity)
        label = f"max rel. error {label}" if "e" in label and label != "equal" and parity["tensors"] else label
        boxes.append(Box(step["stage"], made["format"], runtime, made["bytes"], step["seconds"], passed, label))
    return tuple(boxes)


def headline(parity: Mapping[str, Any]) -> str:
    """The one number of a comparison: SNR for steps that change numerics, LSB for integers, else relative."""
    tensors = parity["tensors"]
    if not tensors:
        return "nothing to compare"
    tolerance = parity["tolerance"]
    if tolerance.get("lossy"):
        worst_db = min(number(tensor["snr_db"]) for tensor in tensors)
        return "equal" if worst_db == math.inf else f"{worst_db:.1f} dB"
    lsb = [number(tensor["lsb"]) for tensor in tensors if tensor["lsb"] is not None]
    if tolerance.get("lsb") is not None and lsb:
        return f"{max(lsb):.2g} LSB"
    worst = max(number(tensor["relative"]) for tensor in tensors)
    return "equal" if worst == 0 else f"{worst:.1e}".replace("-", "−")


def bars(histogram: Mapping[str, Any]) -> Bars | None:
    """Places of a histogram's bars; None where it counted nothing."""
    edges, counts = [number(edge) for edge in histogram["edges"]], histogram["counts"]
    total = sum(counts)
    if not counts or not total or not all(map(math.isfinite, edges)):
        return None
    step = _PLOT_WIDTH / len(counts)
    tallest = math.log1p(max(counts))
    placed = []
    for index, count in enumerate(counts):
        height = _PLOT_HEIGHT * math.log1p(count) / tallest
        place = (index * step, _PLOT_HEIGHT - height, step * 0.86, height)
        placed.append(Bar(*place, low=edges[index], high=edges[index + 1], share=count / total))
    return Bars(_PLOT_WIDTH, _PLOT_HEIGHT, tuple(placed), edges[0], edges[-1])


def values(tensor: Mapping[str, Any]) -> Bars | None:
    """The histogram of a quantized tensor, whose bars have equal width over its range, zero included."""
    if tensor["range"] is None or not tensor["histogram"]:
        return None
    low, high = min(number(tensor["range"][0]), 0.0), max(number(tensor["range"][1]), 0.0)
    count = len(tensor["histogram"])
    edges = [low + (high - low) * index / count for index in range(count + 1)]
    plot = bars({"edges": edges, "counts": tensor["histogram"]})
    # What lies beyond a mark is clipped; ends that cover everything need none.
    ends = [number(end) for end in tensor.get("quantized_range", ()) if low < number(end) < high]
    return plot and replace(plot, marks=tuple(_PLOT_WIDTH * (end - low) / (high - low) for end in ends))


def curve(diagnosis: Mapping[str, Any]) -> Curve | None:
    """The trade-off of a search: cost to the right, SNR upwards; None with less than two finite points."""
    points = [point for point in diagnosis.get("curve", ()) if all(map(math.isfinite, _place(point)))]
    if len(points) < 2:
        return None
    x_bounds = _bounds([_place(point)[0] for point in points])
    y_bounds = _bounds([_place(point)[1] for point in points])
    score = diagnosis.get("score", {})
    placed = tuple(
        Point(
            _CURVE_WIDTH * _share(_place(point)[0], x_bounds),
            _CURVE_HEIGHT * (1 - _share(_place(point)[1], y_bounds)),
            f"{point['float_nodes']} nodes in float: {_place(point)[1]:.1f} dB",
            chosen=bool(score) and all(point.get(key) == value for key, value in score.items()),
        )
        for point in points
    )
    return Curve(_CURVE_WIDTH, _CURVE_HEIGHT, placed, x_bounds, y_bounds)


def _place(point: Mapping[str, Any]) -> tuple[float, float]:
    """Cost in microseconds and SNR in dB."""
    return number(point["cost_ns"]) / 1000, number(point["snr_db"])


def number(value: float | str) -> float:
    """A number of report.json, where ``"inf"``, ``"-inf"`` and ``"nan"`` stand for what JSON cannot write."""
    return float(value)


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _share(value: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return (value - low) / (high - low) if high > low else 0.5

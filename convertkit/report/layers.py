"""Where a model's size, work, time and noise lie: operators of report.json as rows and points of pictures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convertkit.report.charts import number

_ROWS = 12
_WIDTH, _HEIGHT = 520, 160
_LOW_DB = 20.0
_ABOVE_DB = 5.0
"""What is exact stands this far above the highest level of the picture."""


@dataclass(frozen=True, slots=True)
class Row:
    """One layer of a bar chart; ``share`` (0 to 1) is of the largest."""

    name: str
    kind: str
    share: float
    amount: str


@dataclass(frozen=True, slots=True)
class Chart:
    """The largest layers by one measure, the rest as one row."""

    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class PrecisionRow:
    """The operators that compute in one precision; ``macs_share`` is None where nothing is multiplied at all."""

    precision: str
    count: int
    macs_share: float | None
    weight_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """One value along the model."""

    x: float
    y: float
    label: str
    low: bool


@dataclass(frozen=True, slots=True)
class Depth:
    """Signal over noise from the first operator to the last; ``bounds`` in dB."""

    width: int
    height: int
    values: tuple[Place, ...]
    bounds: tuple[float, float]

    @property
    def line(self) -> str:
        return " ".join(f"{place.x:.1f},{place.y:.1f}" for place in self.values)


def precisions(operators: Sequence[Mapping[str, Any]]) -> tuple[PrecisionRow, ...]:
    """What computes in what, the most work first."""
    counts, macs, sizes = Counter[str](), Counter[str](), Counter[str]()
    for each in operators:
        name = each["precision"] or "whole numbers"
        counts[name] += 1
        macs[name] += each["macs"]
        sizes[name] += each["weight_bytes"]
    total = macs.total()
    rows = [PrecisionRow(name, counts[name], macs[name] / total if total else None, sizes[name]) for name in counts]
    return tuple(sorted(rows, key=lambda row: (-(row.macs_share or 0), -row.count, row.precision)))


def shown_devices(report: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Those whose estimates a page shows."""
    return tuple(each for each in (report["estimates"] or {"devices": ()})["devices"] if each["shown"])


def timed_devices(report: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Those of :func:`shown_devices` whose single operators are estimated, too."""
    return tuple(each for each in shown_devices(report) if each["layers_ms"])


def with_times(report: Mapping[str, Any]) -> tuple[tuple[Mapping[str, Any], tuple[float, ...]], ...]:
    """Each operator with its estimated milliseconds on each of :func:`timed_devices`."""
    each = [device["layers_ms"] for device in timed_devices(report)]
    return tuple(
        (operator, tuple(times[place] for times in each)) for place, operator in enumerate(report["operators"])
    )


def charts(report: Mapping[str, Any], size: Callable[[int], str]) -> tuple[Chart, ...]:
    """Bars by layer: bytes, multiply-adds, and milliseconds where the runtime tells them."""
    operators = report["operators"]
    made = [
        _chart("Weights by layer", operators, "weight_bytes", lambda value: size(round(value))),
        _chart("Multiply-adds by layer", operators, "macs", _count),
    ]
    if report["times"]:
        made.append(
            _chart("Time by node, as ONNX Runtime fuses them", report["times"], "ms", lambda value: f"{value:.3g} ms")
        )
    made += [_estimated(report["operators"], device) for device in timed_devices(report)[:1]]
    if not report["times"] and report["runs_here"]:
        made[1] = Chart(made[1].title + " (this runtime does not tell times)", made[1].rows)
    return tuple(chart for chart in made if chart.rows)


def _estimated(operators: Sequence[Mapping[str, Any]], device: Mapping[str, Any]) -> Chart:
    times = [{**each, "ms": ms} for each, ms in zip(operators, device["layers_ms"], strict=True)]
    return _chart(f"Time by layer, estimated for {device['device']}", times, "ms", lambda value: f"{value:.3g} ms")


def _chart(title: str, items: Sequence[Mapping[str, Any]], key: str, told: Callable[[float], str]) -> Chart:
    ranked = sorted((item for item in items if item[key]), key=lambda item: -item[key])
    if not ranked:
        return Chart(title, ())
    largest, rest = ranked[0][key], ranked[_ROWS:]
    rows = [Row(item["name"], item["kind"], item[key] / largest, told(item[key])) for item in ranked[:_ROWS]]
    if rest:
        left = sum(item[key] for item in rest)
        rows.append(Row(f"{len(rest)} more", "", min(1.0, left / largest), told(left)))
    return Chart(title, tuple(rows))


def _count(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f}"


def depth(levels: Sequence[Mapping[str, Any]]) -> Depth | None:
    """Points from left to right; None with less than two finite ones."""
    figures = [(each, number(each["snr_db"])) for each in levels]
    finite = [level for _, level in figures if math.isfinite(level)]
    if len(finite) < 2:
        return None
    top = max(finite) + _ABOVE_DB
    known = [(each, min(level, top)) for each, level in figures if level > -math.inf]
    low, high = min(level for _, level in known), max(level for _, level in known)
    high = high if high > low else low + 1
    step = _WIDTH / (len(known) - 1)
    places = [
        Place(index * step, _HEIGHT * (1 - (level - low) / (high - low)), _label(each, level), level < _LOW_DB)
        for index, (each, level) in enumerate(known)
    ]
    return Depth(_WIDTH, _HEIGHT, tuple(places), (low, high))


def _label(level: Mapping[str, Any], shown: float) -> str:
    exact = number(level["snr_db"]) == math.inf
    return f"{level['name']} ({level['kind']}): {'equal' if exact else f'{shown:.1f} dB'}"

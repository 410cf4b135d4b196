"""A device's cost table of operators, from what chains of them and single ones were measured to take.

Rows that nothing measures have the costs of the operator whose kernel they share or resemble, or else the committed
ones of x86 at the device's pace.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.kernel_costs import DenseShape
from convertkit.targets.forms.fitting import nonnegative
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.costs.measured.clock import Clock
from convertkit.targets.tflite.costs.measured.rows import MERGED, Near, Say, measured
from convertkit.targets.tflite.costs.measured.rows import chain as row_chain
from convertkit.targets.tflite.costs.measured.tiles import Timed, chain
from convertkit.targets.tflite.tensor import DType, Tensor


@dataclass(frozen=True, slots=True)
class Caches:
    """An image that the near caches do not hold in float32, and of how many elements they do; None as ``x86.toml``."""

    far: tuple[int, ...]
    near_elements: int | None = None


USUAL = Caches((1, 56, 56, 64))
_LARGE = (1, 112, 112, 64)
LOADED = Timed(DenseShape(1, 1024, 1024))
"""A layer whose every weight is loaded for one product."""
_LAYERS = 2
_LINE = 64
_ALIKE: Mapping[str, tuple[str, ...]] = {
    "GlobalAveragePool": ("ReduceMean", "ReduceSum", "GlobalMaxPool", "ReduceMax", "ReduceMin"),
    "Transpose": ("DepthToSpace", "SpaceToDepth"),
}
_COPIES: Mapping[str, tuple[str, ...]] = {"Slice": ("Gather", "Expand", "Tile")}
"""Near the caches, and far: the memory is read and written once."""
_PLAIN_WINDOW = 9.0
"""Multiply-adds for an element of the usual depthwise convolution."""
_NO_WORK = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
_ON_THE_FLY = "DynamicQuantizeLinear"
_MAY_BE_FREE = frozenset((*_NO_WORK, _ON_THE_FLY))
_DTYPES: tuple[DType, ...] = ("float32", "int8")
_TYPES = (("float32", 4), ("int8", 1))
_CALLS = ("float32_call", "int8_call")
_SMALL_IMAGE, _SIDE = (1, 64, 64, 32), 128

Row = Mapping[str, float]
Pair = tuple[float, float]
"""In float32 and in int8."""


@dataclass(frozen=True, slots=True)
class Found:
    """What was measured: rows ``near`` the caches, ``far`` from them per unit of work, and ``on_the_fly``.

    ``line_ns`` bounds what an operator waits that moves over a tensor in steps, for each line that it reads or writes,
    where the clock's prefetchers do not follow strides as a processor's do; None for a clock that needs no bound.
    """

    near: Mapping[str, Row]
    far: Mapping[str, Pair]
    on_the_fly: Row
    line_ns: float | None = None


def caches_of(second_level: int) -> Caches:
    """Where so many bytes hold the usual image, read and written in float32, a larger one is beyond them."""
    in_and_out = 2 * np.dtype(np.float32).itemsize
    return Caches(_LARGE, second_level // in_and_out) if second_level > in_and_out * np.prod(USUAL.far) else USUAL


def with_near(table: Mapping[str, Any], caches: Caches) -> Mapping[str, Any]:
    """The table with what these caches hold."""
    if caches.near_elements is None:
        return table
    rows, near = table["ns_per_unit"], caches.near_elements
    depthwise = rows["Conv.depthwise"] | {"near_elements": int(_PLAIN_WINDOW) * near}
    return {**table, "near_elements": near, "ns_per_unit": {**rows, "Conv.depthwise": depthwise}}


def far_rows(clock: Clock, say: Say, shape: tuple[int, ...] = USUAL.far) -> dict[str, Pair]:
    """Nanoseconds of a unit of work in float32 and in int8 beyond the near caches, by kind."""
    elements, found = float(np.prod(shape)), dict[str, Pair]()
    for kind, rows in measured(clock, (shape,), say).items():
        row, times = next((each for each in rows if each[0].work == _PLAIN_WINDOW), rows[0])
        real, whole = (max(float(each), 0.0) / (row.work * elements) for each in times[0])
        found |= dict.fromkeys((kind, *MERGED.get(kind, ()), *_ALIKE.get(kind, ())), (real, whole))
    return found


def on_the_fly(sizes: Sequence[tuple[int, int, int]], more_ns: Sequence[float]) -> Row:
    """What products of rows, columns and columns of the result take more that quantize what they read, fitted.

    Nothing, where they have the faster kernels.
    """
    terms = [[rows * deep, rows, rows * wide] for rows, deep, wide in sizes]
    read, call, written = (float(each) for each in nonnegative(np.array(terms, float), np.array(more_ns)))
    return {"float32": read, "int8": 0.0, "float32_call": call, "float32_element": written}


def resized(alone: Clock) -> Pair:
    """Nanoseconds of an element of an image that is made twice as large by interpolating."""
    twice = Near("", _twice, start=lambda b, x: x)
    with tempfile.TemporaryDirectory() as name:
        paths = [row_chain(twice, _SMALL_IMAGE, 1, dtype, Path(name) / f"{dtype}.tflite") for dtype in _DTYPES]
        real, whole = alone.nanoseconds(paths)
    elements = _SIDE * _SIDE * _SMALL_IMAGE[-1]
    return real / elements, whole / elements


def _twice(b: Builder, x: Tensor, first: Tensor) -> Tensor:
    size = (_SIDE, _SIDE)
    return b.resize_bilinear(x, b.ints(size), size, align_corners=False, half_pixel_centers=True)


def loading(alone: Clock, products: Pair) -> Pair:
    """Nanoseconds that it takes to load a weight, beside its product, where all weights are more than caches hold.

    ``products`` is what a product takes where each weight is used for many rows.
    """
    with tempfile.TemporaryDirectory() as name:
        paths = [chain(LOADED, _LAYERS, dtype, Path(name) / f"{dtype}.tflite") for dtype in _DTYPES]
        times = alone.nanoseconds(paths)
    each = [time / (2 * _LAYERS * LOADED.work) - product for time, product in zip(times, products, strict=True)]
    return max(each[0], 0.0), max(each[1], 0.0)


def costs(found: Found, committed: Mapping[str, Any]) -> dict[str, Any]:
    """The table of all rows that the ``committed`` one has.

    Of integers and their own sigmoid XNNPACK makes one look-up, which is the sigmoid's: their product is free.
    """
    rows: dict[str, dict[str, float]] = {}
    for kind in committed["ns_per_unit"]:
        near = found.near.get(kind, {})
        # Far from the caches a difference of two times may be lost in the clock's noise.
        pair = found.far.get(kind, (0.0, 0.0))
        far = {name: each or near.get(f"{name}_near", 0.0) for name, each in zip(_DTYPES, pair, strict=True)}
        rows[kind] = far | dict(near)
    if found.line_ns is not None:
        _bound(rows, found.line_ns)
    depthwise = rows["Conv.depthwise"]
    for name, _ in _TYPES:
        depthwise[name] = max(depthwise[name] - 2 * depthwise[f"{name}_element"] / _PLAIN_WINDOW, 0.0)
    for kind, others in _COPIES.items():
        rows |= {other: dict(rows[kind]) for other in others}
    rows["Resize"] |= {name: rows["Pad"][name] for name in _CALLS if name in rows["Pad"]}
    rows |= {kind: {"float32": 0.0, "int8": 0.0, "float32_call": 1.0, "int8_call": 1.0} for kind in _NO_WORK}
    rows["Gelu"] = {name: 5 * value for name, value in rows["Gelu.part"].items()}
    rows["Mul.gated"] = rows["Mul"] | {"int8": 0.0, "int8_near": 0.0, "int8_call": 1.0}
    rows[_ON_THE_FLY] = dict(found.on_the_fly)
    calls = [row["float32_call"] for kind, row in found.near.items() if kind in rows and row["float32_call"] > 1]
    return {
        "call_ns": float(np.median(calls)) if calls else 1.0,
        "near_elements": committed["near_elements"],
        "ns_per_unit": _at_pace(rows, committed["ns_per_unit"]),
    }


def _bound(rows: dict[str, dict[str, float]], line_ns: float) -> None:
    for kind, others in _ALIKE.items():
        for name, size in _TYPES:
            most = rows[kind][f"{name}_near"] + 2 * size * line_ns / _LINE
            for each in (kind, *others):
                rows[each][name] = min(rows[each][name], most)


def _at_pace(rows: dict[str, dict[str, float]], committed: Mapping[str, Row]) -> dict[str, Row]:
    """``rows``, and in place of those that nothing measures the committed ones, by how much slower this device is."""
    known = {kind: row for kind, row in rows.items() if row.get("float32", 0.0) > 0}
    pace = float(np.median([row["float32"] / committed[kind]["float32"] for kind, row in known.items()
                            if committed[kind]["float32"] > 0]))  # fmt: skip
    return {
        kind: known.get(kind)
        or (row if kind in _MAY_BE_FREE else {name: pace * v for name, v in committed[kind].items()})
        for kind, row in rows.items()
    }

"""The cost tables of the machine at hand, measured in well below a minute: the device ``this``."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.kernel_costs import DenseShape
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.costs.measured import rows, tiles
from convertkit.targets.tflite.costs.measured.assembled import (
    Found,
    Pair,
    caches_of,
    costs,
    far_rows,
    loading,
    on_the_fly,
    resized,
    with_near,
)
from convertkit.targets.tflite.costs.measured.clock import Clock, Here
from convertkit.targets.tflite.costs.measured.rows import Near, chain, depthwise, near_rows
from convertkit.targets.tflite.costs.measured.tiles import Say, Timed
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.handlers.depthwise import wide_depthwise
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor
from convertkit.targets.tflite.writer import Signature, write_model

_COMMITTED = Path(__file__).parents[1] / "x86.toml"
_SECOND_LEVEL = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
_WITHIN = Here(sweeps=3, rounds=3)
"""Within chains: what counts is a difference of two times."""
_ALONE = Here(sweeps=2, rounds=5)
_LARGE = 2e7
"""Multiply-adds of the largest layer of a chain: larger ones cost what smaller ones tell."""
_SHAPES = rows.SHAPES[::2]
_PRODUCTS = ((64, 512, 128), (64, 128, 128), (64, 128, 512), (197, 192, 192), (197, 192, 768))
"""Rows, columns and columns of the result of what is quantized on the fly."""
_WINDOW = 7
"""Of a depthwise convolution that has no fast kernel."""
_LAYER = Timed(DenseShape(197, 768, 768))
_TOKENS = (1, 12, 197, 64)
_SCORES = (1, 12, 197, 197)
_DTYPES: tuple[DType, ...] = ("float32", "int8")
_PLAIN = QuantParams.per_tensor(0.05, -3)
_OF_SOFTMAX = QuantParams.per_tensor(1 / 256, -128)


def measured_tables(say: Say = lambda line: None, within: Clock = _WITHIN, alone: Clock = _ALONE) -> Mapping[str, Any]:
    """What the files ``NAME.toml`` and ``NAME.kernels.toml`` of other devices hold, as one value that JSON takes."""
    committed, caches = tomllib.loads(_COMMITTED.read_text()), caches_of(_second_level())
    far = far_rows(within, say, caches.far) | single(alone) | {"Resize": resized(alone)}
    found = Found(near_rows(within, _SHAPES, say), far, _quantizing(alone))
    table = with_near(costs(found, committed), caches)
    product = table["ns_per_unit"]["Gemm"]
    weights = loading(alone, (product["float32"], product["int8"]))
    row = table["ns_per_unit"]["DynamicQuantizeLinear"]["float32_call"]
    return {**table, "kernels": _kernels(within, alone, row, say) | {"weights": dict(zip(_DTYPES, weights))}}


def _second_level() -> int:
    """Bytes of the second level of caches, as Linux tells them; 0 where nothing does."""
    try:
        told = _SECOND_LEVEL.read_text().strip()
    except OSError:
        return 0
    return int(told.removesuffix("K")) << 10 if told.removesuffix("K").isdigit() else 0


def _kernels(within: Clock, alone: Clock, row: float, say: Say) -> dict[str, Any]:
    """The tiles of each kind, and what stands between floats."""
    found: dict[str, Any] = {}
    for suffix, every in (("", tiles.STEPS), ("_pointwise", tiles.POINTWISE), ("_dense", tiles.DENSE)):
        layers = [each for each in every if each.work <= _LARGE]
        for dtype in _DTYPES:
            kind = f"{dtype}{suffix}"
            apart = None if suffix == "_dense" else alone
            found[kind] = [asdict(tiles.best_within(kind, layers, dtype, within, say, apart))]
    for dtype in _DTYPES:
        kind = f"{dtype}_transposed"
        times = tiles.timings(tiles.STRIDED, dtype, dtype, alone)
        found[kind] = [asdict(tiles.best_alone(kind, tiles.STRIDED, times, say))]
    images = [each for each in tiles.STEPS if each.work <= _LARGE]
    whole, mixed = (tiles.timings(images, given, "int8", alone) for given in ("int8", "float32"))
    between = {"read": tiles.between_floats(images, whole, mixed), "row": row, "start": 0.0}
    return found | {"between_floats": between}


def single(clock: Clock) -> dict[str, Pair]:
    """Nanoseconds of a unit of work, in float32 and in int8, of what no chain holds."""
    taps = float(_WINDOW**2)
    parts: Sequence[tuple[str, Near, tuple[int, ...], float]] = (
        ("Softmax", _one(_softmax), _SCORES, float(np.prod(_SCORES))),
        ("Conv.depthwise_large", _one(_large_window), (1, 56, 56, 64), taps * 56 * 56 * 64),
        ("MatMul.dynamic", _one(_scores), _TOKENS, float(np.prod(_SCORES)) * _TOKENS[-1]),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [
            chain(step, shape, 1, dtype, folder / f"{kind}.{dtype}.tflite")
            for kind, step, shape, _ in parts
            for dtype in _DTYPES
        ]
        paths += [tiles.chain(_LAYER, 1, dtype, folder / f"{dtype}.tflite") for dtype in _DTYPES]
        times = np.array(clock.nanoseconds(paths)).reshape(-1, 2)
    units = [*(work for *_, work in parts), 2 * _LAYER.work]
    pairs = [(float(real) / work, float(whole) / work) for (real, whole), work in zip(times, units, strict=True)]
    return dict(zip((kind for kind, *_ in parts), pairs)) | {"Gemm": pairs[-1], "MatMul": pairs[-1]}


def _one(step: Callable[[Builder, Tensor, Tensor], Tensor]) -> Near:
    """A model of one operator alone."""
    return Near("", step, start=lambda b, x: x)


def _large_window(b: Builder, x: Tensor, first: Tensor) -> Tensor:
    """A depthwise convolution of 7 × 7, in float as it is written: as a sum of windows that have fast kernels."""
    if x.dtype != "float32":
        return depthwise(_WINDOW)(b, x, first)
    channels = x.shape[3]
    weight = np.random.default_rng(0).normal(0, 0.1, (channels, 1, _WINDOW, _WINDOW)).astype(np.float32)
    return wide_depthwise(b, x, b.constant(weight), b.constant(np.zeros(channels, np.float32)))


def _softmax(b: Builder, x: Tensor, first: Tensor) -> Tensor:
    """Its int8 kernel prescribes the result's parameters."""
    b.results = (_OF_SOFTMAX,) if x.dtype == "int8" else (_PLAIN,)
    return b.softmax(x)


def _scores(b: Builder, x: Tensor, first: Tensor) -> Tensor:
    """Every row with every other, as attention compares them."""
    return b.batch_matmul(x, first, adj_y=True)


def _quantizing(clock: Clock) -> Mapping[str, float]:
    """What a product takes more that quantizes what it reads."""
    with tempfile.TemporaryDirectory() as name:
        pairs = [
            (
                _product(size, "int8", Path(name) / f"{place}.int8.tflite"),
                _product(size, "float32", Path(name) / f"{place}.float32.tflite"),
            )
            for place, size in enumerate(_PRODUCTS)
        ]
        return on_the_fly(_PRODUCTS, clock.longer(pairs))


def _product(size: tuple[int, int, int], given: str, path: Path) -> Path:
    """A dense layer of int8 weights, of integers or of floats."""
    rows_, deep, wide = size
    rng, program = np.random.default_rng(0), Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder, whole = Builder(program, subgraph), given == "int8"
    x = Tensor("x", (rows_, deep), "int8" if whole else "float32", None, _PLAIN if whole else None)
    subgraph.inputs = [x]
    builder.results = (_PLAIN,)
    params = QuantParams((0.01,) * wide, (0,) * wide, 0)
    weight = builder.constant(rng.integers(-127, 128, (wide, deep)).astype(np.int8), params)
    y = builder.fully_connected(x, weight, None)
    subgraph.outputs = [y]
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path

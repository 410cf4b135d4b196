"""Convolutions and dense layers in chains, and the kernel's tile that explains what they take best.

All but the transposed ones are timed within a model: as the difference of a long and a short chain of them.  The tile
is the one of a few likely ones with which
``call + rounded pixels * rounded filters * (output + taps * rounded channels * product)`` fits best.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.kernel_costs import ConvShape, DenseShape, Shape, Tile, TransposedShape
from convertkit.targets.forms.fitting import nonnegative
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.costs.measured.clock import Clock
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor
from convertkit.targets.tflite.writer import Signature, write_model

WINDOWS = (
    *((side, 3, width, width) for side in (4, 7, 14) for width in (8, 16, 24, 32, 48, 64, 128)),
    (28, 3, 8, 8), (28, 3, 16, 16), (28, 3, 24, 24),
    (12, 3, 12, 12), (28, 5, 1, 8), (28, 5, 8, 16), (64, 3, 3, 16), (64, 3, 3, 32), (64, 3, 16, 32), (56, 3, 64, 64),
    (28, 3, 128, 128), (14, 3, 256, 256),
)  # fmt: skip
POINTS = (
    *((side, 1, width, width) for side in (4, 7, 14, 28) for width in (8, 16, 24, 32, 48, 64, 128)),
    (7, 1, 16, 64), (14, 1, 24, 96), (28, 1, 8, 32), (4, 1, 128, 256), (7, 1, 96, 128), (7, 1, 40, 40), (9, 1, 80, 80),
    (20, 1, 20, 20), (14, 1, 112, 672), (56, 1, 24, 144), (56, 1, 16, 96), (28, 1, 32, 192), (7, 1, 192, 192),
    (7, 1, 96, 576),
)  # fmt: skip
"""Elements of a side, of the window's, channels and filters."""
TRANSPOSED = ((16, 2, 128, 64), (32, 3, 64, 32), (14, 2, 256, 128), (8, 4, 32, 16), (56, 2, 64, 32), (28, 3, 16, 8),
              (64, 2, 32, 16), (28, 4, 128, 64), (12, 5, 48, 48))  # fmt: skip
"""Elements of a side, of the window's, channels and filters; the stride is 2."""
LIKELY = tuple(itertools.product((1, 4, 8, 16, 32, 64), (8, 16, 32, 64)))
_INPUT = QuantParams.per_tensor(0.05, -3)


@dataclass(frozen=True, slots=True)
class Timed:
    """A convolution of a square image, or a dense layer."""

    shape: Shape
    side: int = 0
    window: int = 0

    @property
    def work(self) -> float:
        return self.shape.pixels * self.shape.taps * self.shape.channels * self.shape.filters

    @property
    def read(self) -> int:
        return self.side * self.side * self.shape.channels


def _plain(side: int, window: int, channels: int, filters: int) -> Timed:
    return Timed(ConvShape(side * side, side, (window, window), 1, channels, filters), side, window)


STEPS = tuple(_plain(*sizes) for sizes in WINDOWS)
POINTWISE = tuple(_plain(*sizes) for sizes in POINTS)
STRIDED = tuple(
    Timed(TransposedShape((2 * side - 2 + window) ** 2, window * window / 4, channels, filters), side, window)
    for side, window, channels, filters in TRANSPOSED
)


DENSE = tuple(
    Timed(DenseShape(rows, deep, wide))
    for rows, deep, wide in (
        (1, 16, 16), (1, 32, 32), (1, 64, 64), (1, 64, 128), (1, 128, 128), (4, 32, 32), (8, 64, 16), (16, 32, 32),
        (16, 64, 64), (34, 16, 16), (34, 34, 16), (34, 64, 64), (64, 32, 64), (64, 128, 128), (128, 64, 32),
        (4, 64, 64), (16, 128, 64), (1, 48, 48), (1, 96, 40), (1, 24, 96), (1, 100, 10), (1, 256, 64), (6, 48, 32),
    )
)  # fmt: skip
LARGE = 6e7
"""Multiply-adds of the largest layer that is emulated: it takes seconds, and costs what smaller ones tell."""
ROWS = (1, 4, 6, 7, 8, 16)
"""That a kernel may round up to."""
Say = Callable[[str], None]
"""Is told what was measured."""
TINY = 1e-30
"""Is counted as a cost of its own, and costs nothing."""
SAMPLES = 5
"""For each cost that is fitted."""
ALIKE = 1.1
"""Times the least error: tiles that explain chains about as well."""
SHORT, LONG = 1, 5
"""Layers of two chains, there and back: their difference is free of what a call of the whole model costs."""


def chain(layer: Timed, layers: int, dtype: DType, path: Path) -> Path:
    """A model of convolutions or dense layers, to ``filters`` and back to ``channels``, ``layers`` times."""
    rng = np.random.default_rng(0)
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder, whole = Builder(program, subgraph), dtype == "int8"
    builder.results = (_INPUT,)
    shape = layer.shape
    dense = isinstance(shape, DenseShape)
    given = (shape.pixels, shape.channels) if dense else (1, layer.side, layer.side, shape.channels)
    window = () if dense else (layer.window, layer.window)
    x = y = Tensor("x", given, dtype, None, _INPUT if whole else None)
    subgraph.inputs = [x]
    for wide, deep in ((shape.filters, shape.channels), (shape.channels, shape.filters)) * layers:
        size = (wide, *window, deep)
        scales, points = (0.01,) * wide, (0,) * wide
        if whole:
            weight = builder.constant(rng.integers(-127, 128, size).astype(np.int8), QuantParams(scales, points, 0))
            params = QuantParams((0.0005,) * wide, points, 0)
            bias = builder.constant(rng.integers(0, 9, wide).astype(np.int32), params)
        else:
            weight = builder.constant(rng.normal(0, 0.1, size).astype(np.float32))
            bias = builder.constant(rng.normal(0, 0.1, wide).astype(np.float32))
        y = builder.fully_connected(y, weight, bias) if dense else builder.conv_2d(y, weight, bias, padding="SAME")
    subgraph.outputs = [y]
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def within(layers: Sequence[Timed], dtype: DType, clock: Clock) -> list[float]:
    """Nanoseconds of one layer each within a model, the mean of there and back."""
    with tempfile.TemporaryDirectory() as name:
        lengths = (SHORT, SHORT + 1 if clock.exact else LONG)
        pairs = [
            (
                chain(each, lengths[0], dtype, Path(name) / f"{place}.short.tflite"),
                chain(each, lengths[1], dtype, Path(name) / f"{place}.long.tflite"),
            )
            for place, each in enumerate(layers)
        ]
        return [more / (2 * (lengths[1] - SHORT)) for more in clock.longer(pairs)]


def both_ways(layer: Timed) -> tuple[Shape, Shape]:
    """The two shapes of a chain."""
    there = layer.shape
    return there, replace(there, channels=there.filters, filters=there.channels)


def best_within(
    kind: str, layers: Sequence[Timed], dtype: DType, clock: Clock, say: Say, alone: Clock | None = None
) -> Tile:
    """The best tile of what is timed within a model, with what a call costs.

    There and back, channels and filters change places: a tile of 16 and 8 may explain a chain as well as one of 8 and
    16.  So ``alone`` times those one way whose channels are not as many as their filters, and of tiles that explain
    chains about as well the one is taken that explains these best.
    """
    told = zip(layers, within(layers, dtype, clock), strict=True)
    known = [(both_ways(layer), each) for layer, each in told if each > 0]  # a difference of two chains may be less
    both, times = [pair for pair, _ in known], [each for _, each in known]
    found = [each for sizes in itertools.product(LIKELY, ROWS) for each in fitted_within(*sizes, both, times)]
    least, _ = min(found, key=lambda each: each[0])
    near = [each for each in sorted(found, key=lambda each: each[0]) if each[0] <= ALIKE * least]
    error, tile = near[0] if alone is None else best_one_way(near, layers, one_way(layers, dtype, alone))
    for pair, each in zip(both, times, strict=True):
        say(f"{kind} {pair[0]}: {each:.0f} ns, by the tile {_mean(tile, pair):.0f}")
    say(f"{kind}: mean error {100 * error:.0f} %")
    return tile


def _uneven(layers: Sequence[Timed]) -> list[Timed]:
    """Those that are other layers where channels and filters change places."""
    return [each for each in layers if each.shape.channels != each.shape.filters]


def one_way(layers: Sequence[Timed], dtype: DType, alone: Clock) -> list[float]:
    """Nanoseconds of each layer whose channels are not as many as its filters, which is a model of its own."""
    return timings(_uneven(layers), dtype, dtype, alone)


def best_one_way(
    near: Sequence[tuple[float, Tile]], layers: Sequence[Timed], times: Sequence[float]
) -> tuple[float, Tile]:
    """Of tiles with their errors the one that explains such times best; of equals the first."""
    shapes = [each.shape for each in _uneven(layers)]

    def error(tile: Tile) -> float:
        return sum(abs(tile.nanoseconds(shape) / time - 1) for shape, time in zip(shapes, times, strict=True))

    return min(near, key=lambda each: error(each[1]))


def fitted_within(
    sizes: tuple[int, int], rows: int, both: Sequence[tuple[Shape, Shape]], times: Sequence[float]
) -> list[tuple[float, Tile]]:
    """Tiles of these sizes that explain the times best, each with its mean relative error: plain, with pairs,
    with one pixel apart.

    No cost is below 0.  A form that makes no sense is left out, or that few samples would fit anyhow; one with
    more to choose counts as worse than it is.
    """
    found = []
    for units, handicap in _forms(sizes, rows, alone=any(shape.pixels == 1 for pair in both for shape in pair)):
        scaled = np.array([[_mean(unit, pair) for unit in units] for pair in both]) / np.array(times)[:, None]
        costs = nonnegative(scaled, np.ones(len(times)))
        error = handicap * float(np.abs(scaled @ costs - 1).mean())
        fixed, each, product = (float(cost) for cost in costs[:3])
        other = float(costs[3]) if len(costs) > 3 else 0.0
        paired, single = (0.0, other) if len(units) > 3 and units[3].single > TINY else (other, 0.0)
        makes_sense = product + other > 0 and paired <= product and (not single or single >= product)
        if makes_sense and SAMPLES * len(costs) <= len(times) and (len(costs) == 3 or other):
            found.append((error, Tile(*sizes, product, each, rows, fixed, paired, single)))
    return found


def _forms(sizes: tuple[int, int], rows: int, *, alone: bool) -> list[tuple[tuple[Tile, ...], float]]:
    """Tiles each of which costs one thing alone, and by which factor what they explain counts as worse."""
    call, output = Tile(*sizes, 0.0, 0.0, rows, call=1.0), Tile(*sizes, 0.0, 1.0, rows)
    many = Tile(*sizes, 1.0, 0.0, rows)
    found: list[tuple[tuple[Tile, ...], float]] = [((call, output, many), 1.0)]
    others = Tile(*sizes, 1.0, 0.0, rows, paired=TINY), Tile(*sizes, 0.0, 0.0, rows, paired=1.0)
    found.append(((call, output, *others), 1.2))
    if alone:
        others = Tile(*sizes, 1.0, 0.0, rows, single=TINY), Tile(*sizes, 0.0, 0.0, rows, single=1.0)
        found.append(((call, output, *others), 1.2))
    return found


def _mean(tile: Tile, pair: tuple[Shape, Shape]) -> float:
    return float(np.mean([tile.nanoseconds(shape) for shape in pair]))


def artifact(timed: Timed, given: DType, stored: DType, path: Path) -> Path:
    """A model of one convolution, of images of type ``given`` with weights of type ``stored``."""
    rng = np.random.default_rng(0)
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder, filters = Builder(program, subgraph), timed.shape.filters
    size = (filters, timed.window, timed.window, timed.shape.channels)
    x = Tensor("x", (1, timed.side, timed.side, size[3]), given, None, _INPUT if given == "int8" else None)
    subgraph.inputs = [x]
    builder.results = (_INPUT,)
    points = (0,) * filters
    if stored == "int8":
        weight = builder.constant(
            rng.integers(-127, 128, size).astype(np.int8), QuantParams((0.01,) * filters, points, 0)
        )
    else:
        weight = builder.constant(rng.normal(0, 1, size).astype(np.float32))
    if given == "int8":
        bias = builder.constant(np.zeros(filters, np.int32), QuantParams((0.0005,) * filters, points, 0))
    else:
        bias = builder.constant(np.zeros(filters, np.float32))
    if isinstance(timed.shape, TransposedShape):
        side = 2 * timed.side - 2 + timed.window
        wanted = (1, side, side, filters)
        y = builder.transpose_conv(
            x, weight, bias, sizes=builder.ints(wanted), shape=wanted, padding="VALID", strides=(2, 2)
        )
    else:
        y = builder.conv_2d(x, weight, bias, padding="SAME")
    subgraph.outputs = [y]
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def fitted(all_timed: Sequence[Timed], times: Sequence[float]) -> tuple[Tile, float]:
    """The likely tile that explains the times best, and its mean relative error; no cost is below 0."""
    found = []
    for channels, filters in LIKELY:
        parts = [[tile.nanoseconds(timed.shape) for timed in all_timed] for tile in _units(channels, filters)]
        rows = np.array(parts).T / np.array(times)[:, None]
        product, output = nonnegative(rows, np.ones(len(rows)))
        if product > 0:
            error = float(np.abs(rows @ (product, output) - 1).mean())
            found.append((error, Tile(channels, filters, float(product), float(output))))
    error, tile = min(found, key=lambda each: each[0])
    return tile, error


def _units(channels: int, filters: int) -> tuple[Tile, Tile]:
    """A tile of which only products cost something, and one of which only outputs do."""
    return Tile(channels, filters, 1.0, 0.0), Tile(channels, filters, 0.0, 1.0)


def timings(all_timed: Sequence[Timed], given: DType, stored: DType, clock: Clock) -> list[float]:
    """Nanoseconds of each."""
    with tempfile.TemporaryDirectory() as name:
        paths = [
            artifact(timed, given, stored, Path(name) / f"{place}.tflite") for place, timed in enumerate(all_timed)
        ]
        return clock.nanoseconds(paths)


def best_alone(kind: str, all_timed: Sequence[Timed], times: Sequence[float], say: Say) -> Tile:
    """The best tile of what is a model of its own."""
    tile, error = fitted(all_timed, times)
    for timed, each in zip(all_timed, times, strict=True):
        say(f"{kind} {timed.shape}: {each / 1e3:.1f} us, by the tile {tile.nanoseconds(timed.shape) / 1e3:.1f}")
    say(f"{kind}: mean error {100 * error:.0f} %")
    return tile


def between_floats(all_timed: Sequence[Timed], whole: Sequence[float], mixed: Sequence[float]) -> float:
    """What an element that is read costs more than in integers throughout; writing floats is no dearer."""
    read = np.array([timed.read for timed in all_timed]) / np.array(mixed)
    more = (np.array(mixed) - np.array(whole)) / np.array(mixed)
    return max(float(read @ more / (read @ read)), 0.0)


def rendered(kind: str, tile: Tile) -> str:
    """A table of the file of kernel costs; numbers have three digits."""
    lines = [f"[[{kind}]]", f"channels = {tile.channels}", f"filters = {tile.filters}"]
    lines += [f"pixels = {tile.pixels}"] if not kind.endswith("_transposed") else []
    for name in ("product", "paired", "single", "output", "call"):
        if getattr(tile, name) or name in ("product", "output"):
            lines.append(f"{name} = {getattr(tile, name):.3g}")
    return "\n".join((*lines, "", ""))

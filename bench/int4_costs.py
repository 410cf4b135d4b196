"""Measure what kernels with 4-bit weights take between floats: ``python bench/int4_costs.py``.

Prints ``targets/tflite/costs/int4.toml``.  Each form that such a weight takes stands in a short and in a long chain
(see
``tile_costs.py``); to their differences ``call + product * multiply-adds + element * elements read and written +
unrolled * elements of the windows of all pixels + row * rows + weight * weights`` is fitted, no cost below 0.  Times
are brought to the clock of ``x86.kernels.toml`` by float32 kernels of the same shapes: convolutions, those of one
element,
and dense layers apart.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import ml_dtypes
import numpy as np
from scipy.optimize import nnls
from tile_costs import HERE, LONG, SHORT

from convertkit.kernel_costs import ConvShape, DenseShape
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.costs.tables import tables
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import QuantParams, Tensor
from convertkit.targets.tflite.writer import Signature, write_model

Weights = Literal["float32", "int4", "made real"]
COSTS = ("call", "product", "element", "unrolled", "row", "weight")


@dataclass(frozen=True, slots=True)
class Layer:
    """A dense layer of ``side`` rows (``window`` 0), or a convolution of a square image; depthwise without filters."""

    side: int
    window: int
    channels: int
    filters: int = 0

    def work(self) -> list[float]:
        """What the costs are of, in their order; of the two layers there and back the mean."""
        pixels = self.side if not self.window else self.side**2
        taps, wide = max(self.window, 1) ** 2, self.filters or self.channels
        products = pixels * taps * self.channels * (self.filters or 1)
        unrolled = pixels * taps * (self.channels + wide) / 2 if self.window and self.filters else 0.0
        rows = 0.0 if self.window else float(pixels)
        weights = taps * self.channels * (self.filters or 1)
        return [1.0, products, pixels * (self.channels + wide), unrolled, rows, weights]

    def float_ns(self) -> float:
        """By the committed table of kernels, the mean of there and back."""
        ways = ((self.channels, self.filters), (self.filters, self.channels))
        shapes = [
            ConvShape(self.side**2, self.side, (self.window, self.window), 1, *way)
            if self.window
            else DenseShape(self.side, *way)
            for way in ways
        ]
        return float(np.mean([tables(()).kernel_costs.times(shape)[1] for shape in shapes]))


CONVOLUTIONS = tuple(
    Layer(*sizes)
    for sizes in (
        (14, 3, 16, 16), (28, 3, 16, 16), (7, 3, 16, 16), (28, 3, 16, 32), (14, 3, 32, 32), (7, 3, 64, 64),
        (14, 3, 64, 64), (28, 3, 64, 64), (56, 3, 64, 64), (14, 3, 128, 128), (7, 3, 256, 256), (20, 5, 16, 32),
        (10, 5, 32, 32), (28, 3, 24, 24), (4, 3, 128, 128), (7, 3, 128, 256), (16, 7, 16, 16), (7, 3, 512, 512),
    )
)  # fmt: skip
NARROW = tuple(
    Layer(*sizes)
    for sizes in (
        (28, 3, 8, 16), (28, 3, 8, 8), (14, 3, 3, 16), (14, 5, 8, 16), (32, 3, 3, 32), (7, 3, 8, 8), (28, 5, 4, 8),
        (14, 3, 16, 16), (7, 3, 32, 32), (14, 3, 32, 32),
    )
)  # fmt: skip
DEPTHWISE = tuple(
    Layer(*sizes)
    for sizes in ((14, 3, 32), (28, 3, 64), (7, 3, 128), (14, 5, 96), (28, 3, 16), (7, 3, 32), (14, 3, 192))
)
DENSE = tuple(
    Layer(rows, 0, deep, wide)
    for rows, deep, wide in (
        (1, 16, 16), (1, 32, 32), (1, 64, 64), (1, 64, 128), (1, 128, 128), (1, 256, 256), (1, 512, 512),
        (1, 1024, 1024), (16, 32, 32), (16, 64, 64), (16, 128, 128), (16, 256, 256), (64, 64, 64), (64, 128, 128),
        (64, 256, 256), (34, 16, 16), (64, 32, 64), (8, 32, 32), (4, 64, 64), (128, 16, 16), (196, 32, 64),
    )
)  # fmt: skip

PIXELS = tuple(
    Layer(*sizes)
    for sizes in (
        (14, 1, 32, 64), (28, 1, 16, 64), (7, 1, 128, 128), (7, 1, 96, 128), (14, 1, 24, 96), (16, 1, 32, 32),
        (8, 1, 64, 64), (28, 1, 8, 32), (14, 1, 112, 112), (7, 1, 40, 40), (16, 1, 64, 64), (28, 1, 32, 32),
    )
)  # fmt: skip
AS_ROWS = tuple(Layer(each.side**2, 0, each.channels, each.filters) for each in PIXELS)


def chain(layer: Layer, layers: int, weights: Weights, path: Path) -> Path:
    """A model of layers there and back, ``layers`` times."""
    rng = np.random.default_rng(0)
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder = Builder(program, subgraph)
    given = (1, layer.side, layer.side, layer.channels) if layer.window else (layer.side, layer.channels)
    x = y = Tensor("x", given, "float32")
    subgraph.inputs = [x]
    depthwise = not layer.filters
    ways: tuple[tuple[int, int], ...] = ((layer.filters, layer.channels), (layer.channels, layer.filters))
    ways = ((1, layer.channels),) * 2 if depthwise else ways
    for wide, deep in ways * layers:
        size = (wide, *((layer.window,) * 2 if layer.window else ()), deep)
        axis = len(size) - 1 if depthwise else 0
        scales = QuantParams((0.01,) * size[axis], (0,) * size[axis], axis)
        if weights == "float32":
            weight = builder.constant(rng.normal(0, 0.1, size).astype(np.float32))
        else:
            weight = builder.constant(rng.integers(-7, 8, size).astype(ml_dtypes.int4), scales)
            weight = builder.dequantize(weight) if weights == "made real" else weight
        bias = builder.constant(np.zeros(size[axis], np.float32))
        if depthwise:
            y = builder.depthwise_conv_2d(y, weight, bias, padding="SAME")
        elif layer.window:
            y = builder.conv_2d(y, weight, bias, padding="SAME")
        else:
            y = builder.fully_connected(y, weight, bias)
    subgraph.outputs = [y]
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def within(layers: Sequence[Layer], weights: Weights) -> np.ndarray:
    """Nanoseconds of one layer each within a model, the mean of there and back."""
    with tempfile.TemporaryDirectory() as name:
        pairs = [(each, many) for each in layers for many in (SHORT, LONG)]
        paths = [chain(*pair, weights, Path(name) / f"{place}.tflite") for place, pair in enumerate(pairs)]
        times = np.array(HERE.nanoseconds(paths)).reshape(-1, 2)
    return (times[:, 1] - times[:, 0]) / (2 * (LONG - SHORT))


def table(name: str, layers: Sequence[Layer], weights: Weights, clock: float) -> None:
    """Print what fits best; what was measured goes to stderr."""
    times = clock * within(layers, weights)
    work = np.array([layer.work() for layer in layers])
    costs, _ = nnls(work / times[:, None], np.ones(len(layers)))
    for layer, time, fitted in zip(layers, times, work @ costs, strict=True):
        print(f"{name} {layer}: {time:.0f} ns, by the table {fitted:.0f}", file=sys.stderr)
    print(f"{name}: mean error {100 * np.abs(work @ costs / times - 1).mean():.0f} %", file=sys.stderr)
    print(f"[{name}]")
    print("\n".join(f"{cost} = {value:.3g}" for cost, value in zip(COSTS, costs, strict=True) if value > 0), end="\n\n")


def clock(layers: Sequence[Layer]) -> float:
    """How much longer than here a float32 layer takes by ``x86.kernels.toml``, the median."""
    return float(np.median([layer.float_ns() for layer in layers] / within(layers, "float32")))


def main() -> None:
    """Print the table."""
    convolutions, dense = clock(CONVOLUTIONS), clock(DENSE)
    print(f"clock: {convolutions:.2f} of convolutions, {dense:.2f} of dense layers", file=sys.stderr)
    table("dense", DENSE, "int4", dense)
    table("pointwise", AS_ROWS, "int4", clock(PIXELS))
    table("convolution", CONVOLUTIONS, "int4", convolutions)
    table("made_real", NARROW, "made real", convolutions)
    table("made_real_depthwise", DEPTHWISE, "made real", convolutions)


if __name__ == "__main__":
    main()

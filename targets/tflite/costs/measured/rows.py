"""What operators cost within a model whose tensors the caches hold.

Each operator stands in a short and in a long chain, in float32 and in int8; their difference is free of what a call of
the whole model costs.  An operator that a runtime merges with its like has an addition behind it, whose time is taken
off.  Over several sizes, what an operator takes is then fitted by ``call + work * near``.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.costs.measured.clock import Clock
from convertkit.targets.tflite.graph import Program
from convertkit.targets.tflite.tensor import DType, QuantParams, Tensor
from convertkit.targets.tflite.writer import Signature, write_model

SHAPES = ((1, 4, 4, 32), (1, 7, 7, 48), (1, 14, 14, 48), (1, 14, 14, 96), (1, 28, 28, 64))
EXACT_SHAPES = (SHAPES[0], SHAPES[2], SHAPES[4])
"""Enough for a line, where nothing disturbs the clock."""
SHORT, LONG = 2, 8
_PLAIN = QuantParams.per_tensor(0.05, -3)
_SIGMOID, _TANH = QuantParams.per_tensor(1 / 256, -128), QuantParams.per_tensor(1 / 128, 0)

Times = npt.NDArray[np.float64]
Say = Callable[[str], None]
"""Is told what was measured."""
Step = Callable[[Builder, Tensor, Tensor], Tensor]
"""From the last result and the model's input to the next result, of the same shape."""


@dataclass(frozen=True, slots=True)
class Near:
    """An operator: one ``step`` of a chain, its work there for each element of the input, and what is in there beside.

    ``start`` makes of the input what the chain begins with.  The table counts ``parts`` operators for the one.
    """

    kind: str
    step: Step
    work: float = 1.0
    beside: tuple[str, ...] = ()
    start: Callable[[Builder, Tensor], Tensor] = lambda b, x: b.add(x, x)
    parts: int = 1


def added(step: Callable[[Builder, Tensor], Tensor]) -> Step:
    """``step`` with an addition behind it."""
    return lambda b, x, first: b.add(step(b, x), first)


def fixed(name: str, params: QuantParams) -> Step:
    """A function whose int8 kernel prescribes its result's parameters."""

    def step(b: Builder, x: Tensor) -> Tensor:
        b.results = (params,) if x.dtype == "int8" else (_PLAIN,)
        y = {"Sigmoid": b.logistic, "Tanh": b.tanh}[name](x)
        b.results = (_PLAIN,)
        return y

    return added(step)


def positive(b: Builder, x: Tensor) -> Tensor:
    """Not below 0, as integers are compared."""
    return b.relu(x) if x.dtype == "float32" else b.maximum(x, b.constant(np.array(-3, np.int8), _PLAIN))


def depthwise(window: int) -> Step:
    """A square window for each channel."""

    def step(b: Builder, x: Tensor, first: Tensor) -> Tensor:
        rng, channels = np.random.default_rng(0), x.shape[3]
        size = (1, window, window, channels)
        if x.dtype == "int8":
            scales, points = (0.01,) * channels, (0,) * channels
            weight = b.constant(rng.integers(-127, 128, size).astype(np.int8), QuantParams(scales, points, 3))
            bias = b.constant(np.zeros(channels, np.int32), QuantParams((0.0005,) * channels, points, 0))
        else:
            weight = b.constant(rng.normal(0, 0.1, size).astype(np.float32))
            bias = b.constant(np.zeros(channels, np.float32))
        return b.depthwise_conv_2d(x, weight, bias, padding="SAME")

    return step


def curved(b: Builder, x: Tensor) -> Tensor:
    """GELU, which between integers is one table."""
    if x.dtype == "float32":
        return b.gelu(x, approximate=False)
    return b.quantize(b.gelu(b.dequantize(x), approximate=False), "int8", _PLAIN)


def shuffled(b: Builder, x: Tensor) -> Tensor:
    """Channels of two groups in turns."""
    _, height, width, channels = x.shape
    return b.reshape(b.transpose(b.reshape(x, (1, height, width, 2, channels // 2)), (0, 1, 2, 4, 3)), x.shape)


def turned(b: Builder, x: Tensor) -> Tensor:
    """Channels first, as if they were last."""
    return b.reshape(b.transpose(x, (0, 3, 1, 2)), x.shape)


def half(b: Builder, x: Tensor, start: int = 0) -> Tensor:
    """Half of the channels."""
    return b.slice(x, (0, 0, 0, start), (*x.shape[:3], x.shape[3] // 2))


def pieces(b: Builder, x: Tensor, first: Tensor) -> Tensor:
    """Both halves of the input, added."""
    one, other = b.split(first, 3, (first.shape[3] // 2,) * 2)
    return b.add(b.add(x, one), other)


def padded(b: Builder, x: Tensor, first: Tensor) -> Tensor:
    """The maximum of 3 × 3 elements, with a border of one pixel that is made first."""
    zero = b.constant(np.array(-3, np.int8), _PLAIN) if x.dtype == "int8" else None
    return b.max_pool_2d(
        b.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), zero), window=(3, 3), strides=(1, 1), padding="VALID"
    )


def converted(b: Builder, x: Tensor, first: Tensor) -> Tensor:
    """An addition of floats; between integers, with three conversions."""
    if x.dtype == "float32":
        return b.add(x, first)
    return b.quantize(b.add(b.dequantize(x), b.dequantize(first)), "int8", _PLAIN)


def averaged(b: Builder, x: Tensor) -> Tensor:
    """The mean of each channel."""
    return b.mean(x, (1, 2), keep_dims=True)


ROWS = (
    Near("Add", lambda b, x, first: b.add(x, first)),
    Near("channel", lambda b, x, first: b.add(x, b.slice(first, (0, 0, 0, 0), (1, 1, 1, x.shape[3])))),
    Near("Sub", lambda b, x, first: b.sub(x, first)),
    Near("Mul", lambda b, x, first: b.mul(x, first)),
    Near("Max", lambda b, x, first: b.maximum(x, first)),
    Near("Relu", added(positive), beside=("Add",)),
    Near("Sigmoid", fixed("Sigmoid", _SIGMOID), beside=("Add",)),
    Near("Tanh", fixed("Tanh", _TANH), beside=("Add",)),
    Near("HardSwish", added(lambda b, x: b.hard_swish(x)), beside=("Add",)),
    Near("LeakyRelu", added(lambda b, x: b.leaky_relu(x, alpha=0.1)), beside=("Add",)),
    *(Near("Conv.depthwise", depthwise(window), work=float(window**2)) for window in (1, 3, 5)),
    Near("Gelu.part", added(curved), beside=("Add",), parts=5),
    Near("MaxPool", lambda b, x, first: b.max_pool_2d(x, window=(2, 2), strides=(1, 1), padding="SAME"), work=4.0),
    Near(
        "AveragePool", lambda b, x, first: b.average_pool_2d(x, window=(2, 2), strides=(1, 1), padding="SAME"), work=4.0
    ),
    Near("GlobalAveragePool", lambda b, x, first: b.add(first, averaged(b, x)), beside=("channel",)),
    Near("Transpose", added(turned), beside=("Add",)),
    Near("Transpose.shuffle", added(shuffled), beside=("Add",)),
    Near("half add", lambda b, x, first: b.add(x, x), start=half),
    Near("Slice", lambda b, x, first: b.add(x, half(b, first, x.shape[3])), beside=("half add",), start=half),
    Near("Split", pieces, beside=("half add", "half add"), start=half),
    Near("Concat", lambda b, x, first: half(b, b.concatenation([x, x], 3)), beside=("Slice",), start=half),
    Near("pool", lambda b, x, first: b.max_pool_2d(x, window=(3, 3), strides=(1, 1), padding="SAME")),
    Near("Pad", padded, beside=("pool",)),
    Near("QuantizeLinear", converted, work=3.0),
)
"""Each after those that it has beside it; what the table does not name is only there for others."""
MERGED = {"GlobalAveragePool": ("ReduceMean",), "Max": ("Min",), "Relu": ("Clip",),
          "QuantizeLinear": ("DequantizeLinear",)}  # fmt: skip
"""Others that the same kernel serves."""


def chain(row: Near, shape: tuple[int, ...], length: int, dtype: DType, path: Path) -> Path:
    """A model of ``length`` steps."""
    program = Program()
    subgraph = program.subgraphs[program.new_subgraph("main")]
    builder = Builder(program, subgraph)
    builder.results = (_PLAIN,)
    x = Tensor("x", shape, dtype, None, _PLAIN if dtype == "int8" else None)
    subgraph.inputs = [x]
    y = row.start(builder, x)
    for _ in range(length):
        y = row.step(builder, y, x)
    subgraph.outputs = [y]
    write_model(program, Signature({"x": x}, {"y": y}), path, metadata={}, description="")
    return path


def steps(clock: Clock, shapes: Sequence[tuple[int, ...]]) -> dict[int, Times]:
    """Nanoseconds of a step of each row by shape, in float32 and in int8."""
    dtypes: tuple[DType, ...] = ("float32", "int8")
    lengths = (SHORT, SHORT + 2 if clock.exact else LONG)
    with tempfile.TemporaryDirectory() as name:
        grid = list(itertools.product(ROWS, shapes, dtypes))
        pairs = [
            (
                chain(row, shape, lengths[0], dtype, Path(name) / f"{place}.short.tflite"),
                chain(row, shape, lengths[1], dtype, Path(name) / f"{place}.long.tflite"),
            )
            for place, (row, shape, dtype) in enumerate(grid)
        ]
        times = np.array(clock.longer(pairs)).reshape(len(ROWS), len(shapes), len(dtypes))
    return dict(enumerate(times / (lengths[1] - SHORT)))


def columns(work: Times, elements: Times, times: Times) -> Mapping[str, float]:
    """What a call and a unit of work cost, as the table names them; and an element where work alone does not tell."""
    terms = {"near": work, "call": np.ones_like(work)}
    if len(set(work / elements)) > 1:
        terms["element"] = elements
    found: dict[str, float] = {}
    for place, name in enumerate(("float32", "int8")):
        own = np.maximum(times[:, place], 1.0)
        costs = np.linalg.lstsq(np.stack(list(terms.values()), 1) / own[:, None], np.ones(len(work)))[0]
        least = {"call": 1.0}
        found |= {
            f"{name}_{term}": max(float(cost), least.get(term, 0.0)) for term, cost in zip(terms, costs, strict=True)
        }
    return found


def measured(clock: Clock, shapes: Sequence[tuple[int, ...]], say: Say) -> Mapping[str, list[tuple[Near, Times]]]:
    """The rows of each kind with the times of the operator alone."""
    known: dict[str, list[tuple[Near, Times]]] = {}
    found = steps(clock, shapes)
    for place, row in enumerate(ROWS):
        times = found[place]
        for name in row.beside:
            times = times - known[name][0][1]
        if row.kind == "QuantizeLinear":
            times = times[:, 1:] - times[:, :1] + np.zeros((1, 2))
        times = times / row.parts
        known.setdefault(row.kind, []).append((row, times))
        shown = ", ".join(f"{real:.0f} {whole:.0f}" for real, whole in times)
        say(f"{row.kind}: {shown} ns")
    return known


def near_rows(clock: Clock, shapes: Sequence[tuple[int, ...]], say: Say) -> dict[str, Mapping[str, float]]:
    """Columns of the table by operator, those that the same kernel serves included."""
    elements = np.array([float(np.prod(shape)) for shape in shapes])
    made: dict[str, Mapping[str, float]] = {}
    for kind, rows in measured(clock, shapes, say).items():
        work = np.concatenate([row.work * elements for row, _ in rows])
        touched = np.concatenate([2 * elements for _ in rows])
        found = columns(work, touched, np.concatenate([times for _, times in rows]))
        made |= dict.fromkeys((kind, *MERGED.get(kind, ())), found)
    return made

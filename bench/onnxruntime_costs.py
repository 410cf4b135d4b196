"""ONNX Runtime's cost tables: ``python bench/onnxruntime_costs.py > targets/onnxruntime/costs/x86.toml``.

``--core arm64-a76 --book FILE`` emulates that core instead of taking times here (``arm_costs.py``, whose root has to
have ONNX Runtime's wheel, too); each row is a line of FILE, and what is in there is not done again.  Rows of the table
of x86 that no chain measures are taken from it, at the core's median pace.

What an operator costs depends on its neighbours: integers are laid out channels-last, float32 in blocks of channels,
and both are converted at the borders.  So every operator is measured in chains of two lengths, in float32 and in QDQ
with uint8 activations as it is delivered; the difference is the operator, what is left of the shorter chain the
borders.  Over several sizes ``call + work * rate + elements * element`` is fitted (see ``convertkit.profile.OpCost``).
Times are those of the thread, so other processes on the machine disturb them little.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import onnxruntime
from arm.clock import Emulated
from arm.cores import Core, cores
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Array: TypeAlias = npt.NDArray[np.float64]
OF_X86 = Path(__file__).parents[1] / "targets" / "onnxruntime" / "costs" / "x86.toml"

SHORT, LONG = 2, 6
ROUNDS = 25
SCALE = 0.02
LEAST_NS = 100.0
"""Of what is found as a difference of times."""
MOST_EMULATED = 30e6
"""Work of an operator: larger ones take minutes under emulation, and the pace of a multiply-add is known by then."""
TOGETHER = 12
"""Rows of one start of the emulator."""
MATRIX = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
HEADER = """\
# Nanoseconds on ONNX Runtime 1.31, one thread, {device}: call + work * rate + elements * element, where work is
# a multiply-add for Conv, ConvTranspose, Gemm and MatMul, else an element.  Regenerate with
# bench/onnxruntime_costs.py{how}."""
HERE = {"device": "x86-64 with VNNI", "how": " on the machine that matters"}


@dataclass(frozen=True, slots=True)
class Row:
    """One operator at one size: the shape that it keeps, its weight, and what it reads besides.

    ``beside`` stands behind it in every link of the chain: a convolution, which brings integers channels-last, or what
    restores the shape.  A Sigmoid makes the gate that a Mul multiplies its own input with.
    """

    kind: str
    op: str
    shape: tuple[int, ...]
    weight: tuple[int, ...] = ()
    axis: int = 0
    bias: bool = False
    second: bool = False
    attributes: tuple[tuple[str, object], ...] = ()
    beside: Literal["", "Conv", "Mul", "Slice", "Sigmoid"] = ""

    @property
    def elements(self) -> float:
        """Elements read and written."""
        return float(np.prod(self.shape)) * (3 if self.second else 2)

    @property
    def work(self) -> float:
        """Multiply-adds of a matrix operator, else elements."""
        if self.op == "Concat":
            return 2 * float(np.prod(self.shape))
        if not self.weight:
            return float(np.prod(self.shape)) * (self.shape[-1] if self.op == "MatMul" else 1)
        if self.op in ("Conv", "ConvTranspose"):
            return float(np.prod(self.shape[2:])) * float(np.prod(self.weight))
        return float(np.prod(self.shape)) * self.weight[0]


def conv(kind: str, channels: int, size: int, kernel: int, group: int = 1) -> Row:
    """A convolution that keeps its map."""
    weight = (channels, channels // group, kernel, kernel)
    attributes = (("pads", [kernel // 2] * 4), ("group", group))
    return Row(kind, "Conv", (1, channels, size, size), weight, bias=True, attributes=attributes)


def transposed(channels: int, size: int, kernel: int) -> Row:
    """A transposed convolution that keeps its map: its stride is 1."""
    attributes = (("pads", [kernel // 2] * 4),)
    weight = (channels, channels, kernel, kernel)
    return Row("ConvTranspose", "ConvTranspose", (1, channels, size, size), weight, 1, bias=True, attributes=attributes)


MAPS = ((16, 56), (24, 28), (64, 56), (72, 28), (96, 14), (240, 14), (576, 7), (144, 28))
LARGE = ((16, 112), (32, 112), (96, 112))
"""Maps that no cache next to a core holds."""
ROWS: tuple[Row, ...] = (
    *(conv("Conv", c, s, 3) for c, s in ((8, 28), (32, 28), (64, 28), (128, 14), (256, 7), (64, 56), *LARGE[:2])),
    *(conv("Conv.pointwise", c, s, 1) for c, s in (*MAPS, *LARGE)),
    *(conv("Conv.depthwise", c, s, k, c) for (c, s), k in itertools.product((*MAPS, *LARGE), (3, 5))),
    *(conv("Conv.depthwise_large", c, s, 7, c) for c, s in MAPS),
    *(conv("Conv.grouped", c, s, 3, 4) for c, s in MAPS[1:6]),
    *(transposed(c, s, 3) for c, s in ((8, 28), (32, 28), (64, 28), (128, 14), (64, 56))),
    *(Row("Gemm", "Gemm", (m, k), (k, k), 0, bias=True, attributes=(("transB", 1),))
      for m, k in ((1, 64), (1, 256), (1, 1024), (16, 128), (64, 256), (197, 192), (128, 512))),
    *(Row("MatMul", "MatMul", (1, m, k), (k, k), 1)
      for m, k in ((1, 64), (1, 256), (16, 128), (64, 256), (197, 192), (128, 512))),
    *(Row("MatMul.dynamic", "MatMul", (h, t, t), second=True)
      for h, t in ((1, 32), (4, 32), (3, 64), (4, 128), (3, 197))),
    *(Row(op, op, (1, c, s, s)) for op in ("Sigmoid", "LeakyRelu") for c, s in (*MAPS, *LARGE)),
    *(Row(op, op, (1, c, s, s), second=True) for op in ("Add", "Mul") for c, s in (*MAPS, *LARGE)),
    *(Row("Mul.gated", "Mul", (1, c, s, s), beside="Sigmoid") for c, s in (*MAPS, *LARGE)),
    *(Row(op, op, (1, c, s, s), attributes=(("kernel_shape", [3, 3]), ("pads", [1] * 4)), beside="Conv")
      for op in ("MaxPool", "AveragePool") for c, s in MAPS),
    *(Row("GlobalAveragePool", "GlobalAveragePool", (1, c, s, s), beside="Mul") for c, s in MAPS),
    *(Row("Concat", "Concat", (1, c, s, s), second=True, attributes=(("axis", 1),), beside="Slice") for c, s in MAPS),
)  # fmt: skip
BORDERS = "QuantizeLinear"
NO_LAYOUT = frozenset({"Sigmoid", "LeakyRelu", "Add", "Mul", "MatMul"})
"""Chains of these have nothing but conversions at their ends."""


class Chain:
    """Builds the operator several times in a row; in integers with a pair between each two."""

    def __init__(self, row: Row, *, integer: bool) -> None:
        self._row, self._integer = row, integer
        self._rng = np.random.default_rng(0)
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, TensorProto] = {}

    def model(self, length: int, *, beside_alone: bool = False) -> ModelProto:
        """``length`` links; ``beside_alone`` leaves the measured operator out of them."""
        row = self._row
        value = first = self._pair("x")
        for place in range(length):
            before = value
            if row.beside == "Sigmoid":
                value = self._gated(value, place, beside_alone=beside_alone)
            elif not beside_alone:
                operands = [
                    *([first] if row.second else []),
                    *self._weight(f"w{place}", row.weight, row.axis, row.bias),
                ]
                value = self._link(row.op, [value, *operands], f"y{place}", dict(row.attributes))
            if row.beside == "Conv":
                weight = self._weight(f"v{place}", (row.shape[1],) * 2 + (1, 1), 0, True)
                value = self._link("Conv", [value, *weight], f"z{place}", {})
            elif row.beside == "Mul":
                value = self._link("Mul", [before, value], f"z{place}", {})
            elif row.beside == "Slice":
                ends = [
                    self._constant(n, np.array([v], np.int64)) for n, v in (("0", 0), ("c", row.shape[1]), ("1", 1))
                ]
                value = self._link("Slice", [value, *ends], f"z{place}", {})
        graph = helper.make_graph(
            self._nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, row.shape)],
            [helper.make_tensor_value_info(value, TensorProto.FLOAT, row.shape)],
            list(self._constants.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)

    def _gated(self, value: str, place: int, *, beside_alone: bool) -> str:
        gate = self._link("Sigmoid", [value], f"g{place}", {})
        return gate if beside_alone else self._link(self._row.op, [value, gate], f"y{place}", {})

    def _link(self, op: str, inputs: list[str], name: str, attributes: dict[str, object]) -> str:
        self._nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return self._pair(name)

    def _constant(self, name: str, array: npt.NDArray[np.generic]) -> str:
        self._constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def _pair(self, value: str) -> str:
        if not self._integer:
            return value
        parameters = [
            self._constant("scale", np.asarray(np.float32(SCALE))),
            self._constant("zero", np.asarray(np.uint8(128))),
        ]
        self._nodes.append(helper.make_node("QuantizeLinear", [value, *parameters], [f"{value}_q"]))
        self._nodes.append(helper.make_node("DequantizeLinear", [f"{value}_q", *parameters], [f"{value}_d"]))
        return f"{value}_d"

    def _weight(self, name: str, shape: tuple[int, ...], axis: int, with_bias: bool) -> list[str]:
        if not shape:
            return []
        real = self._rng.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape).astype(np.float32)
        channels = shape[axis]
        bias = self._rng.normal(0, 0.1, channels).astype(np.float32)
        if not self._integer:
            return [self._constant(name, real), *([self._constant(f"{name}_b", bias)] if with_bias else [])]
        scales = np.full(channels, np.abs(real).max() / 127, np.float32)
        made = [self._constant(f"{name}_i", np.rint(real / scales[0]).astype(np.int8))]
        made += [self._constant(f"{name}_s", scales), self._constant(f"{name}_z", np.zeros(channels, np.int8))]
        self._nodes.append(helper.make_node("DequantizeLinear", made, [name], axis=axis))
        if not with_bias:
            return [name]
        steps = self._constant(f"{name}_bi", np.rint(bias / (scales * SCALE)).astype(np.int32))
        sizes = self._constant(f"{name}_bs", (scales * SCALE).astype(np.float32))
        self._nodes.append(helper.make_node("DequantizeLinear", [steps, sizes], [f"{name}_b"], axis=0))
        return [name, f"{name}_b"]


Found: TypeAlias = tuple[float, float, float]
"""Nanoseconds of an operator in float32 and in int8, and of both borders of a chain of integers."""


def models_of(row: Row) -> list[ModelProto]:
    """Chains of two lengths in float32 and in integers; then the same of what stands beside the operator, alone."""
    alone = [False, True] if row.beside in ("Conv", "Sigmoid") else [False]
    return [Chain(row, integer=integer).model(length, beside_alone=without)
            for without in alone for integer in (False, True) for length in (SHORT, LONG)]  # fmt: skip


def found_of(times: Sequence[float]) -> Found:
    """What the times of a row's models say of its operator."""
    real, whole = ((b - a) / (LONG - SHORT) for a, b in (times[:2], times[2:4]))
    borders = (times[2] - SHORT * whole) - (times[0] - SHORT * real)
    if len(times) > len((False, True)) * len((SHORT, LONG)):
        real -= (times[5] - times[4]) / (LONG - SHORT)
        whole -= (times[7] - times[6]) / (LONG - SHORT)
    return max(real, LEAST_NS), max(whole, LEAST_NS), borders


def measured(rows: Sequence[Row]) -> list[Found]:
    """Here."""
    return [found_of(nanoseconds(models_of(row), row.shape)) for row in rows]


def emulated(core: Core) -> Callable[[Sequence[Row]], list[Found]]:
    """On a core that is not here: all rows by one start of the emulator."""

    def of(rows: Sequence[Row]) -> list[Found]:
        each = [models_of(row) for row in rows]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{place}.onnx" for place in range(sum(map(len, each)))]
            for path, model in zip(paths, itertools.chain(*each), strict=True):
                path.write_bytes(model.SerializeToString())
            times = iter(Emulated(core).nanoseconds(paths))
        return [found_of(list(itertools.islice(times, len(models)))) for models in each]

    return of


def nanoseconds(models: Sequence[ModelProto], shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> list[float]:
    """A quarter of the calls of each model are faster than this; measured in turns on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    sessions = [onnxruntime.InferenceSession(model.SerializeToString(), options) for model in models]
    feed = {"x": np.random.default_rng(1).normal(0, 1, shape).astype(dtype)}
    times: list[list[float]] = [[] for _ in sessions]
    for turn in range(ROUNDS + 3):
        for own, session in zip(times, sessions, strict=True):
            start = time.thread_time_ns()
            for _ in range(3):
                session.run(None, feed)
            if turn > 2:  # the first calls plan memory
                own.append((time.thread_time_ns() - start) / 3)
    return [float(np.percentile(own, 25)) for own in times]


def fit(features: Array, times: Array) -> Array:
    """Non-negative factors with the least error, by trying every set of features that may count.

    Errors are relative to the root of the time: large operators decide about a model, small ones about small models.
    """
    count = features.shape[1]
    best, least = np.zeros(count), np.inf
    for kept in itertools.chain.from_iterable(itertools.combinations(range(count), n) for n in range(1, count + 1)):
        part, wanted = features[:, kept] / np.sqrt(times)[:, None], np.sqrt(times)
        found = np.linalg.lstsq(part, wanted, rcond=None)[0]
        error = float(np.square(part @ found - wanted).sum())
        if (found >= 0).all() and error < least:
            best, least = np.zeros(count), error
            best[list(kept)] = found
    return best


def told(rows: Sequence[Row], by: Callable[[Sequence[Row]], list[Found]], book: Path | None) -> Iterator[Found]:
    """Of each row, some at a time; what is in the book is taken from it."""
    known = [json.loads(line) for line in book.read_text().splitlines()] if book and book.exists() else []
    there: dict[str, Found] = {each["row"]: tuple(each["found"]) for each in known}
    for first in range(0, len(rows), TOGETHER):
        listed = rows[first : first + TOGETHER]
        missing = [row for row in listed if repr(row) not in there]
        for row, found in zip(missing, by(missing) if missing else (), strict=True):
            there[repr(row)] = found
            if book:
                with book.open("a") as lines:
                    lines.write(json.dumps({"row": repr(row), "found": found}) + "\n")
        yield from (there[repr(row)] for row in listed)


def table(rows: Sequence[Row], found: Sequence[Found]) -> dict[str, dict[str, float]]:
    """The fitted rows, and what converts between integers and float."""
    times: dict[str, list[tuple[Row, float, float]]] = {}
    borders: list[tuple[float, float]] = []
    for row, (real, whole, ends) in zip(rows, found, strict=True):
        said = f"float32 {real / 1e3:9.2f} us, int8 {whole / 1e3:9.2f} us, borders {ends / 1e3:8.2f} us"
        print(f"{row.kind:20} {row.shape!s:18} {row.weight!s:18} {said}", file=sys.stderr, flush=True)
        times.setdefault(row.kind, []).append((row, real, whole))
        if row.kind in NO_LAYOUT and not row.second and ends > 0:  # a difference below says nothing
            borders.append((float(np.prod(row.shape)), max(ends / 2, LEAST_NS)))
    made = {}
    for kind, listed in times.items():
        # Elements tell a matrix operator's rescaling from its products; elsewhere they are the work.
        features = np.array([(1.0, row.work, row.elements) for row, _, _ in listed])
        used = features if listed[0][0].op in MATRIX else features[:, :2]
        made[kind] = _factors(*(fit(used, np.array([each[place] for each in listed])) for place in (1, 2)))
    conversion = fit(np.array([(1.0, size) for size, _ in borders]), np.array([cost for _, cost in borders]))
    return {**made, BORDERS: _factors(conversion, conversion)}


def beside(made: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Rows of the table of x86 that are not in ``made``, at the median pace of those that are, by float32."""
    known = tomllib.loads(OF_X86.read_text())["cost"]
    paces = [made[kind]["float32"] / row["float32"] for kind, row in known.items() if made.get(kind, {}).get("float32")]
    pace = float(np.median(paces))
    return {
        kind: {name: value * pace for name, value in row.items()} for kind, row in known.items() if kind not in made
    }


def main() -> None:
    """Print the table; the measured times go to stderr."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", choices=tuple(cores()))
    parser.add_argument("--book", type=Path)
    parser.add_argument("--known", action="store_true", help="of what is in the book alone")
    args = parser.parse_args()
    rows = [row for row in ROWS if row.work <= MOST_EMULATED] if args.core else list(ROWS)
    if args.known:
        there = {json.loads(line)["row"] for line in args.book.read_text().splitlines()}
        whole = {row.kind for row in rows} - {row.kind for row in rows if repr(row) not in there}
        rows = [row for row in rows if row.kind in whole]
    by = emulated(cores()[args.core]) if args.core else measured
    made = table(rows, list(told(rows, by, args.book)))
    how = {"device": f"{args.core}, emulated", "how": f" --core {args.core}"} if args.core else HERE
    print(HEADER.format(**how))
    print("[cost]")
    for kind, row in made.items():
        print(_line(kind, row))
    print("# Of x86 at the core's median pace." if args.core else "# Kept from the table before.")
    for kind, row in beside(made).items():
        print(_line(kind, row))


def _factors(real: Array, whole: Array) -> dict[str, float]:
    parts: dict[str, float] = {}
    for name, factors in (("float32", real), ("int8", whole)):
        call, rate, element = (*factors, 0.0)[:3]
        named = {name: rate, f"{name}_call": call, f"{name}_element": element}
        parts |= {key: float(value) for key, value in named.items() if value}
    return parts


def _line(kind: str, row: Mapping[str, float]) -> str:
    return f'"{kind}" = {{ {", ".join(f"{key} = {value:.6g}" for key, value in row.items())} }}'


if __name__ == "__main__":
    main()

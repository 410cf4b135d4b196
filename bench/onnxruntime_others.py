"""What ONNX Runtime's operators cost that are never integers, or only moved: the ``[other]`` of a table of its costs.

``python bench/onnxruntime_others.py [--core NAME --book FILE] >> targets/onnxruntime/costs/MACHINE.toml``, behind what
``onnxruntime_costs.py`` prints.  Each operator follows a Concat, whose own time is taken away; ``call + elements *
rate`` is fitted over several sizes, float32 and, of what only moves, bytes.  ``[call]`` is what a call and a node take
whatever they compute, of chains on eight numbers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from arm.clock import Emulated
from arm.cores import cores
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime_costs import LEAST_NS, fit, nanoseconds

CHAINS = (1, 2, 4, 8)
WIDE = 8
TYPES = {"float32": TensorProto.FLOAT, "int8": TensorProto.UINT8}


@dataclass(frozen=True, slots=True)
class Other:
    """An operator behind a Concat of two halves of ``shape``; ``given`` are its constant inputs, ``float_`` or bytes.

    ``work`` are elements of the larger of what it reads and writes.
    """

    kind: str
    op: str
    shape: tuple[int, ...]
    given: tuple[tuple[float | int, ...], ...] = ()
    attributes: tuple[tuple[str, object], ...] = ()
    kinds: tuple[str, ...] = ("float32",)
    grows: int = 1

    @property
    def work(self) -> float:
        """Elements."""
        return float(np.prod(self.shape)) * self.grows


MAPS = ((2, 8, 4, 4), (2, 16, 28, 28), (2, 96, 14, 14), (2, 24, 56, 56))
ROWS_OF = ((2, 8, 16), (2, 32, 128), (2, 64, 197), (2, 128, 256))
BOTH = ("float32", "int8")
TOGETHER = 40
"""Rows of one start of the emulator."""
Asked: TypeAlias = tuple[Other, str]
Times: TypeAlias = dict[tuple[str, str], list[tuple[float, float]]]
"""Elements and nanoseconds, by operator and type."""


def _on(op: str, shapes: Sequence[tuple[int, ...]], kind: str = "", **attributes: object) -> Iterator[Other]:
    yield from (Other(kind or op, op, shape, attributes=tuple(attributes.items())) for shape in shapes)


OTHERS: tuple[Other, ...] = (
    *itertools.chain(*(_on(op, MAPS) for op in ("Relu", "HardSigmoid", "HardSwish", "Tanh", "Erf", "Exp", "Sqrt"))),
    *_on("Gelu", MAPS),
    *_on("Softmax", ROWS_OF, axis=-1),
    *(Other("LayerNormalization", "LayerNormalization", shape, ((1.0,) * shape[-1], (0.5,) * shape[-1]))
      for shape in ROWS_OF),
    *(Other("ReduceMean.maps", "ReduceMean", shape, ((2, 3),)) for shape in MAPS),
    *(Other("ReduceMean", "ReduceMean", shape, ((-1,),)) for shape in ROWS_OF),
    *(Other("Pow", "Pow", shape, ((2.0,),)) for shape in MAPS),
    *(Other("Transpose", "Transpose", shape, attributes=(("perm", [0, 2, 1]),), kinds=BOTH) for shape in ROWS_OF),
    *(Other("Slice", "Slice", shape, ((1,), (1000,), (1,)), kinds=BOTH) for shape in MAPS),
    *(Other("Resize", "Resize", shape, ((), (1.0, 1.0, 2.0, 2.0)), kinds=BOTH, grows=4) for shape in MAPS[:3]),
    *(Other("Resize.interpolated", "Resize", shape, ((), (1.0, 1.0, 2.0, 2.0)), (("mode", "linear"),), BOTH, 4)
      for shape in MAPS[:3]),
)  # fmt: skip


def models_of(row: Other, kind: str) -> list[ModelProto]:
    """The Concat alone, and with the operator behind it."""
    halves = (row.shape[0] // 2, *row.shape[1:])
    constants = [numpy_helper.from_array(_array(values), f"c{place}") for place, values in enumerate(row.given)]
    names = ["joined", *(f"c{place}" if values else "" for place, values in enumerate(row.given))]
    join = helper.make_node("Concat", ["x", "x"], ["joined"], axis=0)
    last = helper.make_node(row.op, names, ["y"], **dict(row.attributes))
    stored = [each for each, values in zip(constants, row.given, strict=True) if values]
    return [_model([join], "joined", halves, TYPES[kind], ()), _model([join, last], "y", halves, TYPES[kind], stored)]


def _array(values: Sequence[float | int]) -> npt.NDArray[np.generic]:
    return np.array(values, np.int64 if all(isinstance(each, int) for each in values) else np.float32)


def _model(nodes: list[object], last: str, shape: tuple[int, ...], kind: int, stored: Sequence[object]) -> ModelProto:
    ends = [helper.make_tensor_value_info("x", kind, shape)], [helper.make_tensor_value_info(last, kind, None)]
    graph = helper.make_graph(nodes, "other", *ends, list(stored))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def chain(length: int) -> ModelProto:
    """So many nodes on a few numbers."""
    nodes = [helper.make_node("Sqrt", ["x" if not n else f"y{n - 1}"], [f"y{n}"]) for n in range(length)]
    return _model(nodes, f"y{length - 1}", (WIDE,), TensorProto.FLOAT, ())


@dataclass(frozen=True, slots=True)
class Emulator:
    """Nanoseconds of models on a core that is not here, all by one start."""

    core: str

    def models(self, models: Sequence[ModelProto]) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{place}.onnx" for place in range(len(models))]
            for path, model in zip(paths, models, strict=True):
                path.write_bytes(model.SerializeToString())
            return Emulated(cores()[self.core], calls=2).nanoseconds(paths)

    def others(self, rows: Sequence[Asked]) -> list[float]:
        times = self.models([model for row, kind in rows for model in models_of(row, kind)])
        return [max(whole - without, LEAST_NS) for without, whole in zip(times[::2], times[1::2], strict=True)]


class Here:
    """Nanoseconds on the machine at hand."""

    def models(self, models: Sequence[ModelProto]) -> list[float]:
        return nanoseconds(models, (WIDE,))

    def others(self, rows: Sequence[Asked]) -> list[float]:
        found = []
        for row, kind in rows:
            halves = (row.shape[0] // 2, *row.shape[1:])
            without, whole = nanoseconds(models_of(row, kind), halves, np.float32 if kind == "float32" else np.uint8)
            found.append(max(whole - without, LEAST_NS))
        return found


def timed(
    by: Emulator | Here, book: Path | None
) -> tuple[dict[tuple[str, str], list[tuple[float, float]]], list[float]]:
    """Elements and nanoseconds of each operator and type, and of the chains; what is in the book is not done again."""
    known = dict(map(json.loads, book.read_text().splitlines())) if book and book.exists() else {}
    wanted = [(row, kind) for row in OTHERS for kind in row.kinds]
    missing = [(row, kind) for row, kind in wanted if repr((row, kind)) not in known]
    for first in range(0, len(missing), TOGETHER):
        some = missing[first : first + TOGETHER]
        for each, ns in zip(some, by.others(some), strict=True):
            _told(known, book, repr(each), ns)
    if "chains" not in known:
        _told(known, book, "chains", by.models([chain(length) for length in CHAINS]))
    found: Times = {}
    for row, kind in wanted:
        found.setdefault((row.kind, kind), []).append((row.work, known[repr((row, kind))]))
    return found, known["chains"]


def _told(known: dict[str, object], book: Path | None, key: str, value: object) -> None:
    known[key] = value
    if book:
        with book.open("a") as lines:
            lines.write(json.dumps([key, value]) + "\n")


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", choices=tuple(cores()))
    parser.add_argument("--book", type=Path)
    args = parser.parse_args()
    found, chains = timed(Emulator(args.core) if args.core else Here(), args.book)
    rows: dict[str, dict[str, float]] = {}
    for (name, kind), listed in found.items():
        work, times = np.array(listed).T
        call, rate = fit(np.stack([np.ones_like(work), work], 1), times)
        rows.setdefault(name, {}).update({kind: rate, f"{kind}_call": call})
    print("\n# Operators that are never integers, or only moved; by bench/onnxruntime_others.py.\n[other]")
    for name, row in rows.items():
        print(f'"{name}" = {{ {", ".join(f"{key} = {value:.6g}" for key, value in row.items() if value)} }}')
    node, call = np.polyfit(CHAINS, chains, 1)
    print(f"\n[call]\ncall = {call:.6g}\nnode = {node:.6g}")


if __name__ == "__main__":
    main()

"""What ONNX Runtime's operators cost that are never integers, or only moved: the ``[other]`` of a table of its costs.

``python bench/onnxruntime_others.py [--core NAME --book FILE] >> targets/onnxruntime/costs/MACHINE.toml``, behind what
``onnxruntime_costs.py`` prints.  Each operator follows a Concat, whose own time is taken away; ``call + elements *
rate`` is fitted over several sizes, float32 and, of what only moves, bytes.  ``[call]`` is what a call and a node take
whatever they compute, of chains on eight numbers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from arm.clock import Emulated
from arm.cores import cores
from onnx import ModelProto
from onnxruntime_costs import CLOCK

from convertkit.targets.onnxruntime.measured import tables
from convertkit.targets.onnxruntime.measured.chains import LEAST_NS
from convertkit.targets.onnxruntime.measured.others import CHAINS, OTHERS, WIDE, Other, Times, chain, models_of

TOGETHER = 40
"""Rows of one start of the emulator."""
Asked: TypeAlias = tuple[Other, str]


@dataclass(frozen=True, slots=True)
class Emulator:
    """Nanoseconds of models on a core that is not here, all by one start."""

    core: str

    def models(self, models: Sequence[ModelProto]) -> list[float]:
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{place}.onnx" for place in range(len(models))]
            for path, model in zip(paths, models, strict=True):
                path.write_bytes(model.SerializeToString())
            return Emulated(cores()[self.core]).nanoseconds(paths)

    def others(self, rows: Sequence[Asked]) -> list[float]:
        times = self.models([model for row, kind in rows for model in models_of(row, kind)])
        return [max(whole - without, LEAST_NS) for without, whole in zip(times[::2], times[1::2], strict=True)]


class Here:
    """Nanoseconds on the machine at hand."""

    def models(self, models: Sequence[ModelProto]) -> list[float]:
        return CLOCK.nanoseconds(models, (WIDE,))

    def others(self, rows: Sequence[Asked]) -> list[float]:
        found = []
        for row, kind in rows:
            halves = (row.shape[0] // 2, *row.shape[1:])
            without, whole = CLOCK.nanoseconds(
                models_of(row, kind), halves, np.float32 if kind == "float32" else np.uint8
            )
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
    rows = tables.others(found)
    print("\n# Operators that are never integers, or only moved; by bench/onnxruntime_others.py.\n[other]")
    for name, row in rows.items():
        print(f'"{name}" = {{ {", ".join(f"{key} = {value:.6g}" for key, value in row.items() if value)} }}')
    print("\n[call]")
    for name, ns in tables.call(chains).items():
        print(f"{name} = {ns:.6g}")


if __name__ == "__main__":
    main()

"""Make the cost tables of a core that is not here: ``python bench/device_tables.py CORE FOLDER``.

Writes ``CORE.toml`` and ``CORE.kernels.toml`` of ``targets/tflite/costs`` into FOLDER.  The operators are those that
``kernel_costs.py``, ``near_costs.py`` and ``tile_costs.py`` time on the machine at hand; here they are emulated
(``arm_costs.py``).  Rows that nothing measures have the costs of the operator whose kernel they share or resemble.
The exported operators are kept in FOLDER, as they are the same for every core, and the measured costs of kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from arm.clock import Emulated
from arm.cores import cores
from clocks import Clock
from kernel_costs import COSTS, PRODUCTS, ROWS, Row, artifacts, rendered, weights_only
from near_costs import MERGED, measured, near_rows
from tile_costs import tables

LINE = 64
FAR = (1, 56, 56, 64)
"""More than the near caches hold."""
EXPORTED = ("Gemm", "MatMul", "Softmax", "HardSwish", "Conv.depthwise_large")
"""What no chain of ``near_costs.py`` holds."""
ALIKE: Mapping[str, tuple[str, ...]] = {
    "GlobalAveragePool": ("ReduceMean", "ReduceSum", "GlobalMaxPool", "ReduceMax", "ReduceMin"),
    "Transpose": ("DepthToSpace", "SpaceToDepth"),
}
COPIES: Mapping[str, tuple[str, ...]] = {"Slice": ("Gather", "Expand", "Tile"), "Pad": ("Resize",)}
"""Near the caches, and far: the memory is read and written once."""
PLAIN_WINDOW = 9.0
"""Multiply-adds for an element of the usual depthwise convolution."""
NO_WORK = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
HEADER = """\
# Nanoseconds of convolutions and small dense layers, as x86.kernels.toml tells them; by bench/device_tables.py."""
COSTS_OF = """\
# Nanoseconds per unit of work of LiteRT 2.3 with XNNPACK on {core}, one thread, as x86.toml tells them.  Not measured:
# counted under emulation and timed by LLVM's schedule of the core (bench/device_tables.py, and
# docs/measurements/device-costs.md for what that cannot know)."""


def far_rows(clock: Clock, alone: Clock, folder: Path) -> dict[str, tuple[float, float]]:
    """Nanoseconds of a unit of work in float32 and in int8 beyond the near caches, by kind."""
    elements, found = float(np.prod(FAR)), dict[str, tuple[float, float]]()
    for kind, rows in measured(clock, (FAR,)).items():
        row, times = next((each for each in rows if each[0].work == PLAIN_WINDOW), rows[0])
        real, whole = (max(float(each), 0.0) / (row.work * elements) for each in times[0])
        found |= dict.fromkeys((kind, *MERGED.get(kind, ()), *ALIKE.get(kind, ())), (real, whole))
    pairs = [(row, exported(row, folder)) for row in ROWS if row.kind in EXPORTED]
    times = np.array(alone.nanoseconds([path for _, pair in pairs for path in pair])).reshape(-1, 2)
    return found | {row.kind: (real / row.work, whole / row.work) for (row, _), (real, whole) in zip(pairs, times)}


def exported(row: Row, folder: Path) -> tuple[Path, Path]:
    """The operator in float32 and in int8, kept in ``folder``."""
    own = folder / row.kind
    if not (own / "int8" / "model.tflite").exists():
        own.mkdir(parents=True, exist_ok=True)
        artifacts(row, own)
    return own / "float" / "model.tflite", own / "int8" / "model.tflite"


def on_the_fly(clock: Clock, folder: Path) -> dict[str, float]:
    """What a product takes more that quantizes what it reads, as ``kernel_costs.py`` fits it."""
    paths, terms = [], []
    for rows, deep, wide in PRODUCTS:
        row = Row("MatMul", "MatMul", ((1, rows, deep),), ((deep, wide),), {}, float(rows * deep * wide))
        own = folder / f"MatMul{rows}x{deep}x{wide}"
        if not (own / "w8" / "model.tflite").exists():
            own.mkdir(parents=True, exist_ok=True)
            weights_only(row, own)
        paths += [own / "int8" / "model.tflite", own / "w8" / "model.tflite"]
        terms.append([rows * deep, rows, rows * wide])
    whole, real = np.array(clock.nanoseconds(paths)).reshape(-1, 2).T
    read, call, written = np.linalg.lstsq(np.array(terms, float), real - whole, rcond=None)[0]
    return {
        "float32": max(read, 0.0),
        "int8": 0.0,
        "float32_call": max(call, 0.0),
        "float32_element": max(written, 0.0),
    }


def costs(clock: Clock, alone: Clock, folder: Path, line_ns: float) -> dict[str, Any]:
    """The table of all rows that the committed one has.

    A processor's prefetchers follow strides, too, which the emulated one does not: what moves over a tensor in
    steps waits at most ``line_ns`` for each line that it reads or writes.
    """
    committed = tomllib.loads(COSTS.read_text())
    far, near = far_rows(clock, alone, folder), near_rows(clock)
    rows: dict[str, dict[str, float]] = {}
    for kind in committed["ns_per_unit"]:
        rows[kind] = dict(zip(("float32", "int8"), far.get(kind, (0.0, 0.0)))) | dict(near.get(kind, {}))
    for kind, others in ALIKE.items():
        for name, size in (("float32", 4), ("int8", 1)):
            most = rows[kind][f"{name}_near"] + 2 * size * line_ns / LINE
            for each in (kind, *others):
                rows[each][name] = min(rows[each][name], most)
    depthwise = rows["Conv.depthwise"]
    for name in ("float32", "int8"):
        depthwise[name] = max(depthwise[name] - 2 * depthwise[f"{name}_element"] / PLAIN_WINDOW, 0.0)
    for kind, others in COPIES.items():
        rows |= {other: dict(rows[kind]) for other in others}
    rows |= {kind: {"float32": 0.0, "int8": 0.0, "float32_call": 1.0, "int8_call": 1.0} for kind in NO_WORK}
    rows["Gelu"] = {name: 5 * value for name, value in rows["Gelu.part"].items()}
    rows["DynamicQuantizeLinear"] = on_the_fly(alone, folder)
    calls = [row["float32_call"] for kind, row in near.items() if kind in rows and row["float32_call"] > 1]
    return committed | {"call_ns": float(np.median(calls)), "ns_per_unit": at_pace(rows, committed["ns_per_unit"])}


def at_pace(rows: dict[str, dict[str, float]], committed: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """``rows``, and in place of those that nothing measures the committed ones, by how much slower this core is."""
    measured = {kind: row for kind, row in rows.items() if row.get("float32", 0.0) > 0}
    pace = float(np.median([row["float32"] / committed[kind]["float32"] for kind, row in measured.items()
                            if committed[kind]["float32"] > 0]))  # fmt: skip
    return {
        kind: measured.get(kind)
        or (row if kind in NO_WORK else {name: pace * v for name, v in committed[kind].items()})
        for kind, row in rows.items()
    }


def write(folder: Path, core: str, table: Mapping[str, Any], kernel_costs: str) -> None:
    """Both files; what a row of a dense layer between floats takes more is what quantizing a row on the fly takes."""
    row = table["ns_per_unit"]["DynamicQuantizeLinear"]["float32_call"]
    (folder / f"{core}.kernels.toml").write_text(f"{HEADER}\n{kernel_costs.strip()}\nrow = {row:.3g}\nstart = 0.0\n")
    lines = rendered(table).splitlines()
    first = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    numbers = [f"call_ns = {table['call_ns']:.3g}" if line.startswith("call_ns") else line for line in lines[first:]]
    (folder / f"{core}.toml").write_text("\n".join((COSTS_OF.format(core=core), *numbers, "")))


def main() -> None:
    """Write both tables."""
    known = cores()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("core", choices=tuple(known))
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    core = known[args.core]
    clock, alone = Emulated(core), Emulated(core, calls=2)
    raw = args.folder / f"{args.core}.kernels"
    if not raw.exists():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            tables(clock, alone)
        raw.write_text(printed.getvalue())
    write(
        args.folder,
        args.core,
        costs(clock, alone, args.folder, sum(core.streamed[:2]) / core.clock_ghz),
        raw.read_text(),
    )


if __name__ == "__main__":
    main()

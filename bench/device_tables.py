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
from kernel_costs import COSTS, PRODUCTS, ROWS, Row, artifacts, rendered, weights_only
from tile_costs import say, tables

from convertkit.targets.tflite.costs.measured.assembled import Found, costs, far_rows, loading, on_the_fly, resized
from convertkit.targets.tflite.costs.measured.clock import Clock
from convertkit.targets.tflite.costs.measured.rows import EXACT_SHAPES, near_rows

EXPORTED = ("Gemm", "MatMul", "Softmax", "HardSwish", "Conv.depthwise_large")
"""What no chain of operators holds."""
HEADER = """\
# Nanoseconds of convolutions and small dense layers, as x86.kernels.toml tells them; by bench/device_tables.py."""
COSTS_OF = """\
# Nanoseconds per unit of work of LiteRT 2.3 with XNNPACK on {core}, one thread, as x86.toml tells them.  Not measured:
# counted under emulation and timed by LLVM's schedule of the core (bench/device_tables.py, and
# docs/measurements/device-costs.md for what that cannot know)."""


def far(clock: Clock, alone: Clock, folder: Path) -> dict[str, tuple[float, float]]:
    """Nanoseconds of a unit of work in float32 and in int8 beyond the near caches, by kind."""
    found = far_rows(clock, say) | {"Resize": resized(alone)}
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


def quantizing(clock: Clock, folder: Path) -> Mapping[str, float]:
    """What a product takes more that quantizes what it reads, as ``kernel_costs.py`` fits it."""
    paths = []
    for rows, deep, wide in PRODUCTS:
        row = Row("MatMul", "MatMul", ((1, rows, deep),), ((deep, wide),), {}, float(rows * deep * wide))
        own = folder / f"MatMul{rows}x{deep}x{wide}"
        if not (own / "w8" / "model.tflite").exists():
            own.mkdir(parents=True, exist_ok=True)
            weights_only(row, own)
        paths += [own / "int8" / "model.tflite", own / "w8" / "model.tflite"]
    whole, real = np.array(clock.nanoseconds(paths)).reshape(-1, 2).T
    return on_the_fly(PRODUCTS, list(real - whole))


def write(folder: Path, core: str, table: Mapping[str, Any], kernels: str, weights: tuple[float, float]) -> None:
    """Both files; what a row of a dense layer between floats takes more is what quantizing a row on the fly takes."""
    row = table["ns_per_unit"]["DynamicQuantizeLinear"]["float32_call"]
    loaded = f"[weights]\nfloat32 = {weights[0]:.3g}\nint8 = {weights[1]:.3g}\n"
    ends = f"row = {row:.3g}\nstart = 0.0\n\n{loaded}"
    (folder / f"{core}.kernels.toml").write_text(f"{HEADER}\n{kernels.strip()}\n{ends}")
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
    found = Found(
        near_rows(clock, EXACT_SHAPES, say),
        far(clock, alone, args.folder),
        quantizing(alone, args.folder),
        sum(core.streamed[:2]) / core.clock_ghz,
    )
    table = costs(found, tomllib.loads(COSTS.read_text()))
    product = table["ns_per_unit"]["Gemm"]
    weights = loading(alone, (product["float32"], product["int8"]))
    write(args.folder, args.core, table, raw.read_text(), weights)


if __name__ == "__main__":
    main()

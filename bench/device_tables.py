"""Make the cost tables of a device: ``python bench/device_tables.py DEVICE FOLDER``.

Writes ``DEVICE.toml`` and ``DEVICE.kernels.toml`` of ``targets/tflite/costs`` into FOLDER.  The operators are those
that ``kernel_costs.py``, ``near_costs.py`` and ``tile_costs.py`` time.  Arm cores are emulated (``arm_costs.py``).
``x86-amx``, ``x86-vnni`` and ``x86-avx512`` are the machine at hand, which has to have AMX, or VNNI and nothing newer
that the runtime's kernels use; for ``x86-avx512`` the runtime is kept from that (``x86/older.py``).
Rows that nothing measures have the costs of the operator whose kernel they share or resemble.
The exported operators are kept in FOLDER, as they are the same for every device, and the measured costs of kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from arm.clock import Emulated
from arm.cores import cores
from kernel_costs import COSTS, PRODUCTS, ROWS, Row, artifacts, rendered, weights_only
from tile_costs import ALONE, say, tables
from x86.older import hide_newer

from convertkit.targets.tflite.costs.measured.assembled import (
    USUAL,
    Found,
    caches_of,
    costs,
    far_rows,
    loading,
    on_the_fly,
    resized,
    with_near,
)
from convertkit.targets.tflite.costs.measured.clock import Clock, Here
from convertkit.targets.tflite.costs.measured.here import single
from convertkit.targets.tflite.costs.measured.rows import EXACT_SHAPES, SHAPES, near_rows

EXPORTED = ("Gemm", "MatMul", "Softmax", "HardSwish", "Conv.depthwise_large")
"""What no chain of operators holds."""
SCORES = "MatMul.dynamic"
HEADER = """\
# Nanoseconds of convolutions and small dense layers, as x86.kernels.toml tells them; by bench/device_tables.py."""
COSTS_OF = """\
# Nanoseconds per unit of work of LiteRT 2.3 with XNNPACK on {device}, one thread, as x86.toml tells them.  {how}"""
EMULATED = """Not measured:
# counted under emulation and timed by LLVM's schedule of the core (bench/device_tables.py, and
# docs/measurements/device-costs.md for what that cannot know)."""
TIMED = """Measured
# on one machine (bench/device_tables.py; docs/measurements/device-costs.md says which)."""
MEASURED = ("x86-amx", "x86-vnni", "x86-avx512")
WITHIN = Here(sweeps=12, rounds=3)
TILES = "amx_int8"


NEAR = {"x86-amx": caches_of(2 << 20)}
"""Others go by what ``x86.toml`` says."""


def far(clock: Clock, alone: Clock, folder: Path, image: tuple[int, ...]) -> dict[str, tuple[float, float]]:
    """Nanoseconds of a unit of work in float32 and in int8 beyond the near caches, by kind."""
    found = far_rows(clock, say, image) | {"Resize": resized(alone), SCORES: single(alone)[SCORES]}
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
    pairs = []
    for rows, deep, wide in PRODUCTS:
        row = Row("MatMul", "MatMul", ((1, rows, deep),), ((deep, wide),), {}, float(rows * deep * wide))
        own = folder / f"MatMul{rows}x{deep}x{wide}"
        if not (own / "w8" / "model.tflite").exists():
            own.mkdir(parents=True, exist_ok=True)
            weights_only(row, own)
        pairs.append((own / "int8" / "model.tflite", own / "w8" / "model.tflite"))
    return on_the_fly(PRODUCTS, clock.longer(pairs))


def write(folder: Path, device: str, table: Mapping[str, Any], kernels: str, weights: tuple[float, float]) -> None:
    """Both files; what a row of a dense layer between floats takes more is what quantizing a row on the fly takes."""
    row = table["ns_per_unit"]["DynamicQuantizeLinear"]["float32_call"]
    loaded = f"[weights]\nfloat32 = {weights[0]:.3g}\nint8 = {weights[1]:.3g}\n"
    ends = f"row = {row:.3g}\nstart = 0.0\n\n{loaded}"
    (folder / f"{device}.kernels.toml").write_text(f"{HEADER}\n{kernels.strip()}\n{ends}")
    lines = rendered(table).splitlines()
    first = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    scalars = {"call_ns": f"{table['call_ns']:.3g}", "near_elements": f"{table['near_elements']:.0f}"}
    numbers = [f"{name} = {scalars[name]}" if (name := line.partition(" ")[0]) in scalars else line
               for line in lines[first:]]  # fmt: skip
    told = COSTS_OF.format(device=device, how=TIMED if device in MEASURED else EMULATED)
    (folder / f"{device}.toml").write_text("\n".join((told, *numbers, "")))


@dataclass(frozen=True, slots=True)
class Timing:
    """What times a device: chains by ``within``, models of one operator by ``alone``; see ``Found.line_ns``."""

    within: Clock
    alone: Clock
    shapes: tuple[tuple[int, ...], ...]
    line_ns: float | None


def timing(device: str, repeat: int) -> Timing:
    """Of the machine at hand, whose sweeps are repeated so often, or of an emulated core."""
    if device not in MEASURED:
        core = cores()[device]
        line_ns = sum(core.streamed[:2]) / core.clock_ghz
        return Timing(Emulated(core), Emulated(core), EXACT_SHAPES, line_ns)
    flags = set(Path("/proc/cpuinfo").read_text().split())
    tiles = device == "x86-amx"
    if "avx512_vnni" not in flags or (TILES in flags) != tiles:
        amx = "with" if tiles else "without"
        raise SystemExit(f"{device} is measured on an x86 machine with AVX-512 VNNI and {amx} AMX")
    if device == "x86-avx512":
        hide_newer()
    within, alone = (replace(each, sweeps=each.sweeps * repeat) for each in (WITHIN, ALONE))
    return Timing(within, alone, SHAPES, None)


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", choices=(*MEASURED, *cores()))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeat", type=int, default=1, help="more sweeps, where others slow the machine down [1]")
    args = parser.parse_args()
    by = timing(args.device, args.repeat)
    raw = args.folder / f"{args.device}.kernels"
    args.folder.mkdir(parents=True, exist_ok=True)
    if not raw.exists():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            tables(by.within, by.alone)
        raw.write_text(printed.getvalue())
    found = Found(
        near_rows(by.within, by.shapes, say),
        far(by.within, by.alone, args.folder, NEAR.get(args.device, USUAL).far),
        quantizing(by.alone, args.folder),
        by.line_ns,
    )
    table = with_near(costs(found, tomllib.loads(COSTS.read_text())), NEAR.get(args.device, USUAL))
    product = table["ns_per_unit"]["Gemm"]
    weights = loading(by.alone, (product["float32"], product["int8"]))
    write(args.folder, args.device, table, raw.read_text(), weights)


if __name__ == "__main__":
    main()

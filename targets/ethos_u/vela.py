"""Vela itself, in a process of its own: a ``.tflite`` file in, one for the NPU and Vela's tables out."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from convertkit.errors import ToolError
from convertkit.targets.ethos_u.devices import CONFIG_FILE, Device
from convertkit.workers.programs import run_to_end

_SECONDS = 1800.0
_KIB = 1024
_MEMORIES: Mapping[str, str] = {
    "SRAM": "sram_memory_used",
    "DRAM": "dram_memory_used",
    "on-chip flash": "on_chip_flash_memory_used",
    "off-chip flash": "off_chip_flash_memory_used",
}
"""Columns of Vela's summary, which are in KiB."""
_NOISE = re.compile(r"^(Traceback|File \"|Warning:|\s)")


@dataclass(frozen=True, slots=True)
class Layer:
    """An operator of the NPU: what it was in the file, the first output, and cycles as Vela estimates them."""

    operator: str
    name: str
    cycles: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """The file for the NPU, and Vela's estimates: nothing of it was measured."""

    path: Path
    cycles: int
    ms: float
    memory_bytes: Mapping[str, int]
    layers: tuple[Layer, ...]


def vela_name() -> str:
    """The compiler and its version."""
    try:
        return f"Vela {version('ethos-u-vela')}"
    except PackageNotFoundError:  # built from source
        return "Vela"


def compile_for(model: Path, device: Device, folder: Path, timeout_s: float | None = None) -> Compiled:
    """Compile ``model`` into the new ``folder``; ``ToolError`` in Vela's words where it makes no file."""
    options = {
        "accelerator-config": device.accelerator,
        "system-config": device.system_config,
        "memory-mode": device.memory_mode,
        "config": CONFIG_FILE,
        "output-dir": str(folder),
    }
    command = [sys.executable, "-P", "-m", "ethosu.vela", str(model), "--verbose-performance"]
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    limit = timeout_s or _SECONDS
    try:
        ended = run_to_end(command, timeout_s=limit, cwd=model.parent)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"Vela did not end within {limit:g} s; --timeout gives it more") from error
    made = folder / f"{model.stem}_vela.tflite"
    summary = folder / f"{model.stem}_summary_{device.system_config}.csv"
    layers = folder / f"{model.stem}_per-layer.csv"
    if ended.returncode or not all(file.is_file() for file in (made, summary, layers)):
        raise ToolError(f"Vela does not compile {model.name} for {device.accelerator}: {_brief(ended)}")
    (row,) = _rows(summary)
    return Compiled(
        made,
        int(float(row["cycles_total"])),
        1000 * float(row["inference_time"]),
        {name: round(_KIB * float(row[column])) for name, column in _MEMORIES.items() if float(row[column])},
        tuple(
            Layer(each["Original Operator"], each["Name"], round(float(each["Op Cycles"]))) for each in _rows(layers)
        ),
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return [{key.strip(): value for key, value in row.items()} for row in csv.DictReader(stream)]


def _brief(ended: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in f"{ended.stdout}\n{ended.stderr}".splitlines() if not _NOISE.match(line)]
    said = "; ".join([line for line in lines if line][-4:])[:400]
    return said or f"it ended with {ended.returncode}"

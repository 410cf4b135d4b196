"""StableHLO's artifacts by XLA on a GPU, beside what XLA computes of them on the CPU.

    python bench/stablehlo_gpu.py write ZOO FOLDER [NAME …]     here: both precisions of products, with results
    python bench/stablehlo_gpu.py run FOLDER                    on the machine with the GPU: JAX with CUDA alone
    python bench/stablehlo_gpu.py page FOLDER docs/measurements/gpu.md

ZOO holds NAME.onnx (``make_zoo.py``).  Inputs are three random ones, zeros, ones, 1e-20, -1e-4 and 1e4.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PRECISIONS = ("default", "highest")
BEGIN, END = "<!-- bench/stablehlo_gpu.py -->", "<!-- end of stablehlo_gpu -->"
EDGES = (0.0, 1.0, 1e-20, -1e-4, 1e4)


def write(zoo: Path, folder: Path, names: list[str]) -> None:
    """``NAME.PRECISION/model.mlirbc``, and ``NAME.npz`` with the inputs and what the CPU makes of them."""
    import jax

    import convertkit

    jax.config.update("jax_enable_x64", True)
    device = jax.devices("cpu")[0]
    for name in names or [each.stem for each in sorted(zoo.glob("*.onnx"))]:
        for precision in PRECISIONS:
            made = convertkit.export(
                zoo / f"{name}.onnx",
                "stablehlo",
                output=folder / f"{name}.{precision}",
                target_options={"stablehlo": {"precision": precision}},
                progress=False,
            )
        kept: dict[str, np.ndarray] = {}
        program = opened(made.artifact.path, device)
        for place, given in enumerate(feeds(made.artifact.inputs)):
            results = called(program, [jax.device_put(value, device) for value in given])
            kept |= {f"{place} in {at}": value for at, value in enumerate(given)}
            kept |= {f"{place} out {at}": np.asarray(value[0]) for at, value in enumerate(results)}
        np.savez(folder / f"{name}.npz", **kept)


def feeds(inputs: Any) -> Iterator[list[np.ndarray]]:
    """Random values, then constant ones; whole numbers stay small."""
    random = np.random.default_rng(0)
    for edge in (None, None, None, *EDGES):
        feed = []
        for spec in inputs:
            if np.issubdtype(spec.dtype, np.integer):
                feed.append(random.integers(0, 2, spec.shape).astype(spec.dtype))
            else:
                drawn = random.standard_normal(spec.shape) if edge is None else np.full(spec.shape, edge)
                feed.append(drawn.astype(spec.dtype))
        yield feed


def run(folder: Path) -> None:
    """``rows.json``."""
    import jax

    jax.config.update("jax_enable_x64", True)
    device = jax.devices("cuda")[0]
    rows = [measured(path, device) for path in sorted(folder.glob("*/model.mlirbc"))]
    (folder / "rows.json").write_text(json.dumps({"gpu": device.device_kind, "jax": jax.__version__, "rows": rows}))


def measured(path: Path, device: Any) -> dict[str, Any]:
    """The greatest difference as a share of the output's greatest value, and milliseconds of a call."""
    import jax

    program = opened(path, device)
    name, _, precision = path.parent.name.rpartition(".")
    kept = np.load(path.parents[1] / f"{name}.npz")
    shares, times = [], []
    for place in itertools.takewhile(lambda at: f"{at} in 0" in kept, itertools.count()):
        given = [jax.device_put(kept[key], device) for key in kept if key.startswith(f"{place} in ")]
        wanted = [kept[key] for key in kept if key.startswith(f"{place} out ")]
        found = [np.asarray(each[0]) for each in called(program, given)]
        shares += [share(*pair) for pair in zip(wanted, found, strict=True)]
    for _ in range(60):
        started = time.perf_counter()
        for each in called(program, given):
            each[0].block_until_ready()
        times.append(time.perf_counter() - started)
    return {"model": name, "precision": precision, "share": max(shares), "ms": statistics.median(times[10:]) * 1e3}


def opened(path: Path, device: Any) -> Any:
    """The artifact, compiled by XLA."""
    from jaxlib import _jax

    return device.client.compile_and_load(path.read_bytes(), _jax.DeviceList((device,)), _jax.CompileOptions())


def called(program: Any, given: list[Any]) -> Any:
    """Outputs, each a list of one array."""
    return program.execute_sharded(given).disassemble_into_single_device_arrays()


def share(wanted: np.ndarray, found: np.ndarray) -> float:
    """Infinite where shapes or the places of values that are no numbers differ."""
    finite = np.isfinite(wanted)
    if wanted.shape != found.shape or not np.array_equal(finite, np.isfinite(found)):
        return float("inf")
    off = np.abs(wanted[finite].astype(np.float64) - found[finite]).max(initial=0.0)
    return float(off / max(np.abs(wanted[finite]).max(initial=0.0), 1e-30))


def page(folder: Path, path: Path) -> None:
    """Replace the table of the page."""
    from page_rows import replace_between

    told = json.loads((folder / "rows.json").read_text())
    found = {(row["model"], row["precision"]): row for row in told["rows"]}
    head = f"{told['gpu']}, XLA of JAX {told['jax']}, batch of one:\n"
    lines = [head, "| model | `default`: difference | ms | `highest`: difference | ms |", "|---|---|---|---|---|"]
    for name in sorted({model for model, _ in found}):
        pair = [found[name, precision] for precision in PRECISIONS]
        lines.append(f"| {name} | " + " | ".join(f"{each['share']:.1e} | {each['ms']:.2f}" for each in pair) + " |")
    replace_between(path, "\n".join((BEGIN, *lines, END)), BEGIN, END)


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "run", "page"))
    parser.add_argument("places", nargs="+")
    asked = parser.parse_args()
    first, *rest = asked.places
    if asked.what == "write":
        write(Path(first), Path(rest[0]), rest[1:])
    elif asked.what == "run":
        run(Path(first))
    else:
        page(Path(first), Path(rest[0]))


if __name__ == "__main__":
    sys.exit(main())

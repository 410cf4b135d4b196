"""The zoo through ``convertkit export --target coreml``, beside onnxsim's ``--emit-coreml``.

``coreml_zoo.py ZOO OUT [--onnxsim PATH]`` exports every model of ``make_zoo.py`` in float32, float16 and int8 (each a
process of its own, as a user would), has onnxsim convert the same ONNX where its program is given, and runs every
package in the evaluator beside ONNX Runtime on the model.  Results go to ``OUT/coreml.json`` as they come, and at the
end into ``docs/measurements/coreml.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
from measure import feeds, reference
from tflite_zoo import NAMES as ALL

from convertkit.artifact import files_of
from convertkit.errors import ConvertKitError
from convertkit.targets.coreml.evaluator import TABLE
from convertkit.targets.coreml.evaluator.evaluate import Evaluator
from convertkit.targets.coreml.package.program import read_package

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "coreml.md"
FLAGS: Mapping[str, tuple[str, ...]] = {
    "float32": (),
    "float16": ("--fp16",),
    "palette": ("--fp16", "--coreml-palette", "6"),
    "int8": ("--int8",),
}
TITLES = {"palette": "float16, palettes of 6 bits"}
NAMES = ALL
PEER = "onnxsim"
SAMPLES = 8
EXPORT_S, PEER_S = 1800, 600
PARITY_FAILED = 3
Record = dict[str, object]


def exported(zoo: Path, name: str, precision: str, folder: Path) -> Record:
    """One ``convertkit export`` process: what it says where it fails, else how long it took.

    Where float16 is not verified on generated inputs, which of random weights makes more than images do, samples are
    given, as the refusal says.
    """
    command = [sys.executable, "-m", "convertkit", "export", str(zoo / f"{name}.onnx"), "--target", "coreml"]
    command += [*FLAGS[precision], "-o", str(folder), "--force"]
    samples = ["--calib", str(zoo / f"{name}.calib.npz")]
    record = _ran([*command, *samples] if precision == "int8" else command, EXPORT_S)
    if "--fp16" in FLAGS[precision] and record.get("exit") == PARITY_FAILED:
        return {**_ran([*command, *samples], EXPORT_S), "title": f"{TITLES.get(precision, precision)}, --calib"}
    return record


def emitted(onnxsim: str, model: Path, folder: Path) -> Record:
    """The peer's package of the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / "model.mlpackage"
    return _ran([onnxsim, str(model), str(folder / "simplified.onnx"), "--emit-coreml", str(package)], PEER_S)


def _ran(command: list[str], timeout: float) -> Record:
    started = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"no end in {timeout:.0f} s"}
    seconds = round(time.perf_counter() - started, 1)
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = [line for line in lines if not line.startswith("Failed to load _")]  # coremltools, outside of macOS
        ours = [line.removeprefix("convertkit: ") for line in told if line.startswith("convertkit: ")]
        error = (ours or told or ["no word"])[-1].split(". ")[0]
        return {"seconds": seconds, "exit": done.returncode, "error": error[:300]}
    return {"seconds": seconds}


def probed(package: Path, model: Path, samples: Path) -> Record:
    """Bytes of a package, the evaluator's time for a call, and how far its numbers are from the model's."""
    if not package.is_dir():
        return {"error": "no package was written"}
    given = feeds(samples)[:SAMPLES]
    wanted = reference(model, given)
    try:
        program = read_package(package)
        evaluator = Evaluator(program.block)
        times, found = [], []
        for feed in given:
            inputs = {
                name: value.astype(kind.dtype)
                for (name, kind), value in zip(program.block.inputs, feed.values(), strict=True)
            }
            started = time.perf_counter()
            outputs = evaluator.run(inputs)
            times.append(time.perf_counter() - started)
            found.append([outputs[name] for name in program.block.outputs])
    except ConvertKitError as error:
        return {"error": str(error).splitlines()[0][:300]}
    if not all(np.isfinite(each).all() for row in found for each in row):
        return {"error": "its outputs are not finite"}
    kinds = {kind.dtype for step in program.block.operations for _, kind in step.outputs if step.type != "const"}
    return {
        "bytes": sum(file.stat().st_size for file in files_of(package)),
        "evaluator_s": round(float(np.median(times)), 4),
        "computes_in": "float16" if "float16" in kinds else "float32",
        **_apart(wanted, found),
    }


def _nearest(*, x: np.ndarray, target_size_height: np.ndarray, target_size_width: np.ndarray) -> np.ndarray:
    """``resize_nearest_neighbor`` to whole multiples, which our own packages never have."""
    for axis, size in ((-2, int(target_size_height)), (-1, int(target_size_width))):
        if size % x.shape[axis]:
            raise ValueError(f"{x.shape[axis]} elements to {size}")
        x = np.repeat(x, size // x.shape[axis], axis)
    return x


def _apart(wanted: list[list[np.ndarray]], found: list[list[np.ndarray]]) -> Record:
    """The largest error beside the largest value of its output, and signal over noise, over all samples."""
    worst, signal, noise = 0.0, 0.0, 0.0
    for row, answer in zip(wanted, found, strict=True):
        for want, got in zip(row, answer, strict=True):
            truth = want.astype(np.float64).reshape(-1)
            error = got.astype(np.float64).reshape(-1) - truth
            worst = max(worst, float(np.abs(error).max() / max(np.abs(truth).max(), 1e-30)))
            signal, noise = signal + float((truth**2).sum()), noise + float((error**2).sum())
    return {"relative": worst, "snr_db": None if noise == 0 else round(10 * float(np.log10(signal / noise)), 1)}


def measure(args: argparse.Namespace) -> dict[str, Record]:
    """Every cell that is not there yet, written down as it comes."""
    book = args.out / "coreml.json"
    results: dict[str, Record] = json.loads(book.read_text()) if book.exists() else {}
    for name in args.models.split(","):
        for cell in (*args.precisions.split(","), *((PEER,) if args.onnxsim else ())):
            if f"{name}.{cell}" in results:
                continue
            folder = args.out / f"{name}-{cell}"
            model = args.zoo / f"{name}.onnx"
            peer = cell == PEER
            record = emitted(args.onnxsim, model, folder) if peer else exported(args.zoo, name, cell, folder)
            if "error" not in record:
                record |= probed(folder / "model.mlpackage", model, args.zoo / f"{name}.eval.npz")
            results[f"{name}.{cell}"] = record
            book.write_text(json.dumps(results, indent=1))
            print(name, cell, record, flush=True)
    return results


def rows(results: Mapping[str, Record]) -> Iterator[str]:
    """A line of the table for each model and precision, the peer's last."""
    for name in NAMES:
        for cell in (*FLAGS, PEER):
            record = results.get(f"{name}.{cell}")
            if record is None:
                yield f"| {name} | {TITLES.get(cell, cell)} | not measured | | | | |"
                continue
            title = f"{PEER}, {record['computes_in']}" if cell == PEER and "computes_in" in record else cell
            title = record.get("title", TITLES.get(title, title))
            if "error" in record:
                yield f"| {name} | {title} | {_brief(str(record['error']))} | | | | |"
                continue
            snr = "equal" if record["snr_db"] is None else f"{record['snr_db']} dB"
            size, called, took = record["bytes"], float(str(record["evaluator_s"])), record["seconds"]
            error = float(str(record["relative"]))
            yield f"| {name} | {title} | {size:,} | {snr} | {error:.1e} | {called:.3f} | {took} |"


def _brief(error: str) -> str:
    """What a tool says, without where in the model."""
    return re.sub(r" \([^)]*\)", "", error.replace("|", "/"))[:160]


def page(results: Mapping[str, Record], peer: str) -> str:
    """All of it."""
    return _PAGE.format(coremltools=version("coremltools"), peer=peer, samples=SAMPLES, rows="\n".join(rows(results)))


_PAGE = """# Core ML: the zoo, evaluated

Generated by `python bench/coreml_zoo.py` with coremltools {coremltools} and {peer}, on x86.

Twelve architectures with seeded random weights and sane statistics (`bench/make_zoo.py`), as an app gets them:
`convertkit export --target coreml`, with `--fp16`, with `--fp16 --coreml-palette 6` and with `--int8 --calib DATA`. A
float16 with `--calib` was refused without: on generated noise it keeps less than 40 dB. onnxsim is
`onnxsim MODEL OUT --emit-coreml`, which computes in what its row says.

**Evaluated, not run on Apple hardware**: every package, ours and the other's, is read back from its bytes and executed
by the evaluator of MIL. The SNR and the largest error, beside the largest value of its output, are against ONNX Runtime
on the model, over {samples} samples that no calibration saw. The weights are random, so what int8 loses is a stress
test. Seconds of the evaluator are of one call and say nothing about a device; those of the export are of the whole
command, with its verification. Both are of two cores that others used, too.

| model | precision | bytes | SNR | largest error | evaluator, s | export, s |
|---|---|---|---|---|---|---|
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("zoo", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--onnxsim", help="its program, in an environment with coremltools")
    parser.add_argument("--models", default=",".join(NAMES))
    parser.add_argument("--precisions", default=",".join(FLAGS))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    TABLE.add("resize_nearest_neighbor", _nearest)
    results = measure(args)
    told = "without onnxsim"
    if args.onnxsim:
        said = subprocess.run([args.onnxsim, "--version"], capture_output=True, text=True, check=False).stdout.split()
        told = f"onnxsim {said[-1]}" if said else PEER
    PAGE.write_text(page(results, told), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

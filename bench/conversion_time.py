"""Seconds and memory of a conversion: ``convertkit export`` with all its proofs against a peer's bare conversion.

``conversion_time.py ZOO --onnx2tf PYTHON [--models A,B] [--rounds 3] [--json FILE]``: in turns, each a process of its
own; the fastest round of each counts.  ``--stage-only`` times the ONNX → TFLite stage in this process instead.
Both have their bytecode, as pip leaves what it installs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bytecode import write_bytecode

HERE = Path(__file__).resolve().parent
Record = dict[str, float]


def process(command: list[str], folder: Path) -> Record | None:
    """Wall and CPU seconds and peak RSS in bytes of one process and its children; None where it failed."""
    report = folder / "time"
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(["/usr/bin/time", "-f", "%M", "-o", str(report), *command], check=False, capture_output=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        return None
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall, "cpu_s": cpu, "peak_rss": int(report.read_text().split()[-1]) * 1024}


def stage(model: Path, folder: Path) -> Record:
    """Seconds of the ONNX → TFLite stage, file to file, in a process that has its imports."""
    from convertkit.onnx.load import load_model
    from convertkit.targets.tflite.compile import compile_model
    from convertkit.targets.tflite.passes import Options

    started, before = time.perf_counter(), time.process_time()
    compile_model(load_model(model), Options()).write(folder / "m.tflite")
    return {"wall_s": time.perf_counter() - started, "cpu_s": time.process_time() - before}


def best(records: list[Record | None]) -> Record | None:
    """The round with the least CPU time: other programs on the machine slow it down, nothing speeds it up."""
    good = [record for record in records if record is not None]
    if not good:
        return None
    return {key: round(min(record[key] for record in good), 3) for key in good[0]}


def compared(model: Path, onnx2tf: str | None, rounds: int) -> dict[str, Record | None]:
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for _ in range(rounds):
            command = [sys.executable, "-m", "convertkit", "export", str(model), "--target", "tflite", "--force"]
            ours.append(process([*command, "-o", str(folder / "out")], folder))
            if onnx2tf:
                cli = str(HERE / "peers" / "onnx2tf_cli.py")
                theirs.append(process([onnx2tf, cli, str(model), str(folder / "peer.tflite")], folder))
    return {"convertkit": best(ours), "onnx2tf": best(theirs)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("zoo", type=Path)
    parser.add_argument("--onnx2tf")
    parser.add_argument("--models", default="mobilenetv2,mobilenetv3s,resnet18,convnext_t")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--stage-only", action="store_true")
    args = parser.parse_args()
    write_bytecode()
    results: dict[str, dict[str, object]] = {}
    for name in args.models.split(","):
        model = args.zoo.resolve() / f"{name}.onnx"
        record: dict[str, object] = {}
        with tempfile.TemporaryDirectory() as folder:
            record["stage"] = best([stage(model, Path(folder)) for _ in range(args.rounds)])
        if not args.stage_only:
            record |= compared(model, args.onnx2tf, args.rounds)
        results[name] = record
        print(name, record, flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

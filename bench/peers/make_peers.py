"""The peers' artifacts for a zoo folder: ``make_peers.py ZOO OUT --onnx2tf PYTHON --litert PYTHON --tf PYTHON``.

Writes ``OUT/NAME.PEER.PRECISION.{tflite,onnx}`` (a peer has a file for each of its ways, and is
judged by its best) and ``OUT/peers.json`` with wall seconds, CPU seconds, peak RSS (bytes) and the first error line
of what failed.  Files that exist are kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = (
    *("mobilenetv2", "mobilenetv3s", "resnet18", "efficientnet_b0", "convnext_t", "vit_tiny"),
    *("bert_small", "unet", "yolo_head", "lstm", "gru", "gpt_block"),
)

MEMORY_BYTES = 8 << 30
"""Some tools keep every calibration sample's activations; a peer that needs more than this has failed."""
AEQ_RECIPES = {
    "w8": "dynamic_wi8_afp32",
    "int8": "static_wi8_ai8",
    "w4": "dynamic_wi4_afp32",
    "w4-block32": "dynamic_wi4b32_afp32",
}
ORT_WAYS = {
    "int8": "MinMax",
    "int8-entropy": "Entropy",
    "int8-percentile": "Percentile",
    "w8": "dynamic",
    "w4": "nbits",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One file to make: the command that makes it and the file it needs."""

    peer: str
    precision: str
    command: tuple[str, ...]
    out: Path
    needs: Path


@dataclass(frozen=True, slots=True)
class Interpreters:
    """The Python of each peer's environment."""

    onnx2tf: str
    litert: str
    tf: str


def steps(name: str, zoo: Path, out: Path, pythons: Interpreters) -> list[Step]:
    model, calibration = zoo / f"{name}.onnx", zoo / f"{name}.calib.npz"

    def file(peer: str, precision: str, suffix: str = "tflite") -> Path:
        return out / f"{name}.{peer}.{precision}.{suffix}"

    made: list[Step] = []

    def add(peer: str, precision: str, command: list[str | Path], needs: Path = model, suffix: str = "tflite") -> Path:
        target = file(peer, precision, suffix)
        made.append(Step(peer, precision, tuple(str(c) for c in command), target, needs))
        return target

    o2t = [pythons.onnx2tf, HERE / "onnx2tf_cli.py", model]
    direct = add("onnx2tf", "float32", [*o2t, file("onnx2tf", "float32")])
    floats = {"onnx2tf+aeq": direct}
    if name in NAMES:
        torch = file("litert-torch", "float32")
        convert = [pythons.litert, HERE / "litert_torch_convert.py", name, torch]
        floats["litert-torch+aeq"] = add("litert-torch", "float32", convert)
    for peer, float32 in floats.items():
        for precision, recipe in AEQ_RECIPES.items():
            command = [pythons.litert, HERE / "aeq.py", float32, file(peer, precision), recipe]
            add(peer, precision, [*command, calibration] if recipe.startswith("static") else command, float32)
    for kind in ("per-channel", "per-tensor"):
        peer = f"onnx2tf-{kind}"
        add(peer, "int8", [*o2t, file(peer, "int8"), "--int8", calibration, "--quant-type", kind])
    saved = file("onnx2tf", "saved_model", "folder")
    command = [pythons.tf, HERE / "onnx2tf_cli.py", model, saved, "--saved-model"]
    add("onnx2tf", "saved_model", command, suffix="folder")
    for precision, kind in (("int8", "full"), ("int8-fallback", "fallback"), ("w8", "dynamic")):
        made_by = [pythons.tf, HERE / "tflite_converter.py", saved, file("TFLiteConverter", precision), kind]
        add("TFLiteConverter", precision, [*made_by, calibration], saved)
    for precision, way in ORT_WAYS.items():
        target = file("onnxruntime", precision, "onnx")
        add("onnxruntime", precision, [sys.executable, HERE / "ort_qdq.py", model, target, way, calibration],
            suffix="onnx")  # fmt: skip
    return made


def run(step: Step, log: Path, timeout: float) -> dict[str, object]:
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(HERE.parent),
    }
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    report = log.with_suffix(".time")
    limit = ["prlimit", f"--data={MEMORY_BYTES}"]
    command = ["/usr/bin/time", "-f", "%M", "-o", str(report), *limit, *step.command]
    with log.open("w") as stream:
        # A group of its own: the tools start helpers, which must not outlive a time-out.
        process = subprocess.Popen(
            command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = 124
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rss = report.read_text().split()[-1:] if report.exists() else []
    done = code == 0 and step.out.exists()
    text = log.read_text(errors="replace")
    errors = [line.strip() for line in text.splitlines() if re.search(r"(Error|error|ERROR)\b.*[:!]", line)]
    return {
        "ok": done,
        "command": " ".join(Path(c).name if "/" in c else c for c in step.command),
        "wall_s": round(time.perf_counter() - started, 2),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "peak_rss": int(rss[0]) * 1024 if rss and rss[0].isdigit() else None,
        "error": "" if done else (errors[-1][:300] if errors else f"exit code {code}"),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("zoo", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--onnx2tf", required=True)
    parser.add_argument("--litert", required=True)
    parser.add_argument("--tf", required=True)
    parser.add_argument("--models", default="", help="all of ZOO without")
    parser.add_argument("--peers", default="", help="regular expression of PEER.PRECISION")
    parser.add_argument("--timeout", type=float, default=300)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    book = args.out / "peers.json"
    present = {path.stem for path in args.zoo.glob("*.onnx")}
    names = [name for name in NAMES if name in present] + sorted(present - {*NAMES})
    for name in args.models.split(",") if args.models else names:
        pythons = Interpreters(args.onnx2tf, args.litert, args.tf)
        for step in steps(name, args.zoo.resolve(), args.out.resolve(), pythons):
            key = f"{name}.{step.peer}.{step.precision}"
            results = json.loads(book.read_text()) if book.exists() else {}
            if key in results or not step.needs.exists() or not re.search(args.peers, key):
                continue
            results[key] = run(step, args.out / f"{key}.log", args.timeout)
            book.write_text(json.dumps(results, indent=1))
            print(key, {k: v for k, v in results[key].items() if k != "command"}, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

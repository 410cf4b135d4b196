"""The peers' artifacts for a zoo folder: ``make_peers.py ZOO OUT --onnx2tf PYTHON --litert PYTHON [--models A,B]``.

Writes ``OUT/NAME.PEER.PRECISION.{tflite,onnx}`` and ``OUT/peers.json`` with wall seconds, CPU seconds,
peak RSS (bytes) and the first error line of what failed.  Files that exist are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
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


@dataclass(frozen=True, slots=True)
class Step:
    """One file to make: the command that makes it and the file it needs."""

    peer: str
    precision: str
    command: tuple[str, ...]
    out: Path
    needs: Path


def steps(name: str, zoo: Path, out: Path, onnx2tf: str, litert: str) -> list[Step]:
    model, calibration = zoo / f"{name}.onnx", zoo / f"{name}.calib.npz"

    def file(peer: str, precision: str, suffix: str = "tflite") -> Path:
        return out / f"{name}.{peer}.{precision}.{suffix}"

    made: list[Step] = []

    def add(peer: str, precision: str, command: list[str | Path], needs: Path = model, suffix: str = "tflite") -> Path:
        target = file(peer, precision, suffix)
        made.append(Step(peer, precision, tuple(str(c) for c in command), target, needs))
        return target

    o2t = [onnx2tf, HERE / "onnx2tf_cli.py", model]
    direct = add("onnx2tf", "float32", [*o2t, file("onnx2tf", "float32")])
    torch = add(
        "litert-torch", "float32", [litert, HERE / "litert_torch_convert.py", name, file("litert-torch", "float32")]
    )
    for peer, float32 in (("onnx2tf+aeq", direct), ("litert-torch+aeq", torch)):
        aeq = [litert, HERE / "aeq.py", float32]
        add(peer, "w8", [*aeq, file(peer, "w8"), "dynamic_wi8_afp32"], float32)
        add(peer, "int8", [*aeq, file(peer, "int8"), "static_wi8_ai8", calibration], float32)
    for kind in ("per-channel", "per-tensor"):
        peer = f"onnx2tf-{kind}"
        add(peer, "int8", [*o2t, file(peer, "int8"), "--int8", calibration, "--quant-type", kind])
    target = file("onnxruntime", "int8", "onnx")
    add("onnxruntime", "int8", [sys.executable, HERE / "ort_qdq.py", model, target, calibration], suffix="onnx")
    return made


def run(step: Step, log: Path, timeout: float) -> dict[str, object]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "HF_HUB_OFFLINE": "1"}
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    report = log.with_suffix(".time")
    command = ["/usr/bin/time", "-f", "%M", "-o", str(report), *step.command]
    with log.open("w") as stream:
        try:
            code = subprocess.run(
                command, stdout=stream, stderr=subprocess.STDOUT, timeout=timeout, env=environment, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = 124
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
    parser.add_argument("--models", default=",".join(NAMES))
    parser.add_argument("--peers", default="", help="regular expression of PEER.PRECISION")
    parser.add_argument("--timeout", type=float, default=300)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    book = args.out / "peers.json"
    for name in args.models.split(","):
        for step in steps(name, args.zoo.resolve(), args.out.resolve(), args.onnx2tf, args.litert):
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

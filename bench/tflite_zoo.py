"""The zoo through ``convertkit export --target tflite``, beside the peers' artifacts.

``tflite_zoo.py ZOO OUT [--peers DIR]`` converts every model in float32, int8 and w8 (each a process of its
own, as a user would), measures what came out, and times ours and the peers' in one interleaved run per model.
Results go to ``OUT/zoo.json`` as they come; ``render.py`` turns them into ``docs/measurements/benchmarks.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = (
    *("mobilenetv2", "mobilenetv3s", "resnet18", "efficientnet_b0", "convnext_t", "vit_tiny"),
    *("bert_small", "unet", "yolo_head", "lstm", "gru", "gpt_block"),
)
FLAGS = {"float32": [], "int8": ["--int8"], "w8": ["--w8"]}
Record = dict[str, object]


def convert(model: Path, calibration: Path, precision: str, folder: Path) -> Record:
    """One ``convertkit export`` process: exit code, wall and CPU seconds, peak RSS, the stages' own seconds."""
    report = folder.with_suffix(".time")
    flags = [*FLAGS[precision], "--calib", str(calibration)] if precision != "float32" else []
    command = [sys.executable, "-m", "convertkit", "export", str(model), "--target", "tflite"]
    command += [*flags, "-o", str(folder), "--force"]
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        ["/usr/bin/time", "-f", "%M", "-o", str(report), *command],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    record: Record = {
        "exit": done.returncode,
        "wall_s": round(wall, 2),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "peak_rss": int(report.read_text().split()[-1]) * 1024,
    }
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        record["error"] = " | ".join(lines[-3:])[:800]
        return record
    steps = json.loads((folder / "report.json").read_text())["steps"]
    record["steps"] = [{k: step.get(k) for k in ("stage", "seconds", "peak_rss_bytes")} for step in steps]
    return record


def measured(*arguments: object, timeout: float = 600) -> Record:
    """One run of measure.py; a crash of the runtime becomes an error in the record."""
    command = [sys.executable, str(HERE / "measure.py"), *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"no answer in {timeout:.0f} s"}
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line.removeprefix("RESULT "))
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return {"ok": False, "error": (lines or [f"exit code {done.returncode}"])[-1][:300]}


def peers_of(name: str, folder: Path | None, precisions: set[str]) -> dict[str, Path]:
    """The peers' files of this model, by ``PEER.PRECISION``."""
    if folder is None:
        return {}
    found = {}
    for path in sorted(folder.glob(f"{name}.*.*")):
        match = re.fullmatch(rf"{name}\.(.+)\.(float32|int8|w8)\.(tflite|onnx)", path.name)
        if match and match[2] in precisions:
            found[f"{match[1]}.{match[2]}"] = path
    return found


class Zoo:
    """Paths and options of one measuring run, and the growing book of results."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.zoo, self.out, self.peers = args.zoo.resolve(), args.out.resolve(), args.peers
        self.seconds, self.reuse = args.seconds, args.reuse
        self.out.mkdir(parents=True, exist_ok=True)
        self.book = self.out / "zoo.json"
        self.results: dict[str, Record] = json.loads(self.book.read_text()) if self.book.exists() else {}

    def save(self) -> None:
        self.book.write_text(json.dumps(self.results, indent=1))

    def ours(self, name: str, precision: str) -> Path | None:
        """Our artifact, converted and probed; None where either failed."""
        folder = self.out / f"{name}-{precision}"
        path = folder / "model.tflite"
        key = f"{name}.convertkit.{precision}"
        if not (self.reuse and path.exists()):
            self.results[key] = convert(self.zoo / f"{name}.onnx", self.zoo / f"{name}.calib.npz", precision, folder)
        elif self.results.get(key, {}).get("exit", 0):
            self.results[key] = {}  # it failed then, and was made since
        if self.results.setdefault(key, {}).get("exit"):
            return None
        return self.probed(name, f"convertkit.{precision}", path)

    def probed(self, name: str, label: str, path: Path) -> Path | None:
        key = f"{name}.{label}"
        known = self.results.setdefault(key, {})
        stamp = path.stat().st_mtime
        if known.get("stamp") != stamp:
            known.update(measured("probe", path, self.zoo / f"{name}.onnx", self.zoo / f"{name}.eval.npz"))
            known["stamp"] = stamp
        self.save()
        return path if known.get("ok") else None

    def race(self, name: str, kind: str, ours: dict[str, Path], others: dict[str, Path]) -> None:
        """One interleaved latency run; every artifact has passed its probe."""
        runners = ours | {label: path for label, path in others.items() if self.probed(name, label, path)}
        if not ours:
            self.results.pop(f"{name}.race.{kind}", None)
            return
        data = self.zoo / f"{name}.eval.npz"
        result = measured("latency", self.seconds, len(ours), data, *runners.values())
        self.results[f"{name}.race.{kind}"] = {"runners": list(runners), "ours": len(ours), **result}
        self.save()

    def model(self, name: str, precisions: list[str]) -> None:
        found = {p: self.ours(name, p) for p in precisions}
        made = {f"convertkit.{p}": path for p, path in found.items() if path}
        onnx = {"onnxruntime.float32": self.zoo / f"{name}.onnx"}
        if "float32" in precisions:
            ours = {k: v for k, v in made.items() if k.endswith("float32")}
            self.race(name, "float32", ours, peers_of(name, self.peers, {"float32"}) | onnx)
        if set(precisions) - {"float32"}:
            order = sorted(made, key=lambda k: k.endswith("float32"))
            self.race(name, "8bit", {k: made[k] for k in order}, peers_of(name, self.peers, {"int8", "w8"}))
        for line in lines(name, self.results):
            print(line, flush=True)


def lines(name: str, results: dict[str, Record]) -> list[str]:
    """What was found about one model, for a terminal."""
    text = [f"== {name}"]
    for kind in ("float32", "8bit"):
        race = results.get(f"{name}.race.{kind}", {})
        times = dict(zip(race.get("runners", []), race.get("ms", []), strict=False))
        spans = dict(zip(race.get("runners", []), race.get("interval", []), strict=False))
        ratios = race.get("ratio", [[]])
        for i, label in enumerate(times):
            probe = results.get(f"{name}.{label}", {})
            against = " ".join(f"{row[i]:.3f}" for row in ratios) if ratios else ""
            text.append(
                f"  {kind:7} {label:28} {times[label]:8.3f} ms [{spans[label][0]:.3f}, {spans[label][1]:.3f}]"
                f"  ours/it {against:24} err {probe.get('relative_error', 0):.1e} {probe.get('snr_db', 0):6.1f} dB"
                f"  ops {probe.get('operators')} T {probe.get('transposes')} parts {probe.get('delegate_calls')}"
            )
        if race.get("error"):
            text.append(f"  {kind} race failed: {race['error']}")
    for key, record in results.items():
        if key.startswith(f"{name}.") and record.get("error") and ".race." not in key:
            text.append(f"  FAIL {key}: exit {record.get('exit')} {record['error'][:400]}")
        elif key.startswith(f"{name}.convertkit") and "wall_s" in record:
            stages = ", ".join(f"{s['stage']} {s['seconds']:.2f} s" for s in record.get("steps", []))
            text.append(f"  {key}: export {record['wall_s']} s wall {record['cpu_s']} s CPU, {stages}")
    return text


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("zoo", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--models", default=",".join(NAMES))
    parser.add_argument("--precisions", default="float32,int8,w8")
    parser.add_argument("--seconds", type=float, default=6, help="of each latency run")
    parser.add_argument("--reuse", action="store_true", help="keep artifacts that exist")
    args = parser.parse_args()
    zoo = Zoo(args)
    for name in args.models.split(","):
        zoo.model(name, args.precisions.split(","))
    return 0


if __name__ == "__main__":
    sys.exit(main())

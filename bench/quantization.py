"""Our quantized artifacts beside every peer's, from the same calibration data: size, SNR, accuracy, latency.

    python bench/quantization.py OUT --zoo ZOO PEERS [--zoo CASES PEERS] [--models A,B] [--latency SECONDS] [--reuse]
                                 [--targets tflite,onnxruntime]

ZOO holds NAME.onnx, NAME.calib.npz and NAME.eval.npz (``make_zoo.py``, ``make_cases.py``), PEERS what
``peers/make_peers.py`` wrote for it.  Results go to ``OUT/quantization.json`` as they come;
``quantization_page.py`` turns them into the page of docs/measurements.  ``--latency`` times all artifacts of a
model in one interleaved run, on one thread and by that thread's own clock; first everything is made and probed,
then everything is timed.  ``--reuse`` keeps our artifacts that exist: they can be made before the machine is quiet.
``--targets`` measures the files of some runtimes again, and keeps what the book has of others.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from tflite_zoo import measured

OURS = {"tflite": ("float32", "int8", "w8", "w4"), "onnxruntime": ("int8", "w8", "w4")}
FILES = {"tflite": "model.tflite", "onnxruntime": "model.onnx"}
Record = dict[str, object]


class Bench:
    """Paths of one run, and the growing book of results by ``NAME`` and ``PEER.PRECISION``."""

    def __init__(self, out: Path, latency: float, reuse: bool, targets: tuple[str, ...]) -> None:
        self.out, self.latency, self.reuse, self.targets = out.resolve(), latency, reuse, targets
        self.out.mkdir(parents=True, exist_ok=True)
        self.path = self.out / "quantization.json"
        self.book: dict[str, dict[str, Record]] = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.started = time.monotonic()

    def made(self, name: str, zoo: Path, peers: Path) -> dict[str, Path]:
        """All files of one model that run, ours and the peers', probed."""
        records = self.book.setdefault(name, {})
        artifacts = {**self._ours(name, zoo, records), **self._theirs(name, peers, records)}
        if "onnxruntime" in self.targets:
            artifacts["onnxruntime.float32"] = zoo / f"{name}.onnx"
        for label, path in artifacts.items():
            known = records.setdefault(label, {})
            if known.get("stamp") != path.stat().st_mtime:
                probe = measured("probe", path, zoo / f"{name}.onnx", zoo / f"{name}.eval.npz")
                records[label] = {**probe, "bytes": path.stat().st_size, "stamp": path.stat().st_mtime}
                self._save()
            shown = {key: records[label].get(key) for key in ("bytes", "snr_db", "top1", "error")}
            self.say(f"{name} {label} {shown}")
        return {label: path for label, path in artifacts.items() if records[label].get("ok")}

    def say(self, line: str) -> None:
        print(f"{(time.monotonic() - self.started) / 60:5.1f} min  {line}", flush=True)

    def _ours(self, name: str, zoo: Path, records: dict[str, Record]) -> dict[str, Path]:
        """One ``convertkit export`` for each target and precision."""
        made = {}
        for target in self.targets:
            for precision in OURS[target]:
                folder, label = self.out / f"{name}-{target}-{precision}", f"convertkit {target}.{precision}"
                path = folder / FILES[target]
                if self.reuse and path.exists():
                    made[label] = path
                    continue
                error = self._export(zoo / name, target, precision, folder)
                if error:
                    records[label] = {"ok": False, "error": error}
                else:
                    made[label] = path
        return made

    def _export(self, model: Path, target: str, precision: str, folder: Path) -> str:
        command = [sys.executable, "-m", "convertkit", "export", f"{model}.onnx", "--target", target]
        command += ["--calib", f"{model}.calib.npz", "-o", str(folder), "--force"]
        command += [] if precision == "float32" else [f"--{precision}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:300]

    def _theirs(self, name: str, peers: Path, records: dict[str, Record]) -> dict[str, Path]:
        """The peers' files; what failed is kept with its error."""
        book = peers / "peers.json"
        for key, made in (json.loads(book.read_text()) if book.exists() else {}).items():
            if key.startswith(f"{name}.") and not made["ok"]:
                records[key.removeprefix(f"{name}.")] = {"ok": False, "error": made["error"] or "conversion fails"}
        found = {}
        kinds = "|".join(Path(FILES[target]).suffix[1:] for target in self.targets)
        for path in sorted(peers.glob(f"{name}.*.*")):
            match = re.fullmatch(rf"{name}\.([^.]+\.[^.]+)\.({kinds})", path.name)
            if match:
                found[match[1]] = path
        return found

    def race(self, name: str, zoo: Path, artifacts: dict[str, Path]) -> None:
        """Time them in turns; one that crashes there, though its probe ran, takes the race with it and is named."""
        result = measured("latency", self.latency, 1, zoo / f"{name}.eval.npz", *artifacts.values(), timeout=1200)
        for label, ms, interval in zip(artifacts, result.get("ms", ()), result.get("interval", ()), strict=False):
            self.book[name][label] |= {"ms": ms, "interval": interval}
        self.say(f"{name} latency: " + str(result.get("error") or f"{len(artifacts)} files, {result['rounds']} rounds"))
        self._save()

    def _save(self) -> None:
        self.path.write_text(json.dumps(self.book, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--zoo", type=Path, nargs=2, action="append", required=True, metavar=("ZOO", "PEERS"))
    parser.add_argument("--models", default="", help="all without")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds per model; 0 leaves it out")
    parser.add_argument("--reuse", action="store_true", help="keep our artifacts that exist")
    parser.add_argument("--targets", default=",".join(OURS))
    args = parser.parse_args()
    bench = Bench(args.out, args.latency, args.reuse, tuple(args.targets.split(",")))
    wanted = set(args.models.split(",")) if args.models else None
    runs: list[tuple[str, Path, dict[str, Path]]] = []
    for zoo, peers in args.zoo:
        for path in sorted(zoo.resolve().glob("*.onnx")):
            if wanted is None or path.stem in wanted:
                runs.append((path.stem, path.parent, bench.made(path.stem, path.parent, peers.resolve())))
    if args.latency:
        for number, (name, zoo, artifacts) in enumerate(runs, 1):
            bench.say(f"{name} ({number} of {len(runs)}): timing {len(artifacts)} files")
            bench.race(name, zoo, artifacts)
    return 0


if __name__ == "__main__":
    sys.exit(main())

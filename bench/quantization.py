"""Our quantized artifacts beside every peer's, from the same calibration data: size, SNR, accuracy, latency.

    python bench/quantization.py ZOO OUT --peers PEERS [--models A,B] [--latency SECONDS] [--reuse]

ZOO holds NAME.onnx, NAME.calib.npz and NAME.eval.npz (``make_zoo.py``, ``make_cases.py``), PEERS what
``peers/make_peers.py`` wrote.  Results go to ``OUT/quantization.json`` as they come;
``quantization_page.py`` turns them into ``docs/quantization-peers.md``.  ``--latency`` times all 8 and 4 bit
artifacts of a model, and its float32 ones, in one interleaved run per model, on one thread.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from tflite_zoo import measured

OURS = {"tflite": ("float32", "int8", "w8", "w4"), "onnxruntime": ("int8", "w8", "w4")}
FILES = {"tflite": "model.tflite", "onnxruntime": "model.onnx"}
Record = dict[str, object]


class Bench:
    """Paths of one run, and the growing book of results by ``NAME`` and ``PEER.PRECISION``."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.zoo, self.out, self.peers = args.zoo.resolve(), args.out.resolve(), args.peers.resolve()
        self.reuse, self.latency = args.reuse, args.latency
        self.out.mkdir(parents=True, exist_ok=True)
        self.path = self.out / "quantization.json"
        self.book: dict[str, dict[str, Record]] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def model(self, name: str) -> None:
        records = self.book.setdefault(name, {})
        artifacts = {**self._ours(name, records), **self._theirs(name, records)}
        for label, path in artifacts.items():
            known = records.setdefault(label, {})
            if known.get("stamp") != path.stat().st_mtime:
                probe = measured("probe", path, self.zoo / f"{name}.onnx", self.zoo / f"{name}.eval.npz")
                records[label] = {**probe, "bytes": path.stat().st_size, "stamp": path.stat().st_mtime}
                self._save()
            print(name, label, {k: records[label].get(k) for k in ("bytes", "snr_db", "top1", "error")}, flush=True)
        if self.latency:
            self._race(name, {label: path for label, path in artifacts.items() if records[label].get("ok")})

    def _ours(self, name: str, records: dict[str, Record]) -> dict[str, Path]:
        """One ``convertkit export`` for each target and precision."""
        made = {}
        for target, precisions in OURS.items():
            for precision in precisions:
                folder, label = self.out / f"{name}-{target}-{precision}", f"convertkit {target}.{precision}"
                path = folder / FILES[target]
                if self.reuse and path.exists():
                    made[label] = path
                    continue
                error = self._export(name, target, precision, folder)
                if error:
                    records[label] = {"ok": False, "error": error}
                else:
                    made[label] = path
        return made

    def _export(self, name: str, target: str, precision: str, folder: Path) -> str:
        command = [sys.executable, "-m", "convertkit", "export", str(self.zoo / f"{name}.onnx"), "--target", target]
        command += ["--calib", str(self.zoo / f"{name}.calib.npz"), "-o", str(folder), "--force"]
        command += [] if precision == "float32" else [f"--{precision}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1][:300]

    def _theirs(self, name: str, records: dict[str, Record]) -> dict[str, Path]:
        """The peers' files; what failed is kept with its error."""
        for key, made in json.loads((self.peers / "peers.json").read_text()).items():
            if key.startswith(f"{name}.") and not made["ok"]:
                records[key.removeprefix(f"{name}.")] = {"ok": False, "error": made["error"] or "conversion fails"}
        found = {}
        for path in sorted(self.peers.glob(f"{name}.*.*")):
            match = re.fullmatch(rf"{name}\.([^.]+\.[^.]+)\.(tflite|onnx)", path.name)
            if match:
                found[match[1]] = path
        return found

    def _race(self, name: str, artifacts: dict[str, Path]) -> None:
        data = self.zoo / f"{name}.eval.npz"
        result = measured("latency", self.latency, 1, data, *artifacts.values(), timeout=3600)
        for label, ms, interval in zip(artifacts, result.get("ms", ()), result.get("interval", ()), strict=False):
            self.book[name][label] |= {"ms": ms, "interval": interval}
        print(name, "latency", result.get("error") or f"{result['rounds']} rounds", flush=True)
        self._save()

    def _save(self) -> None:
        self.path.write_text(json.dumps(self.book, indent=1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("zoo", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--models", default="")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds per model; 0 leaves it out")
    parser.add_argument("--reuse", action="store_true", help="keep our artifacts that exist")
    args = parser.parse_args()
    bench = Bench(args)
    names = [path.stem for path in sorted(args.zoo.glob("*.onnx"))]
    for name in args.models.split(",") if args.models else names:
        bench.model(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

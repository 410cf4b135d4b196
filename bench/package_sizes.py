"""What ``--compress`` takes off packages for phones: ``package_sizes.py OUT CASES [--models A,B]``.

CASES holds NAME.onnx and NAME.calib.npz (``make_cases.py``, ``compression_models.py``).  Every row is a line of
``OUT/package_sizes.jsonl``, and what is in there is not made again.  Then the table is printed.  Beside DEFLATE, which
phones decode without a library, stand LZMA and what a coder of single bytes (order 0) could reach at best.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np

from convertkit.targets.android.checks import packaged_model
from convertkit.targets.mobile.deflated import deflated

WAYS = {
    "float32": [],
    "int8": ["--int8"],
    "int4 weights": ["--w4"],
    "0.8 zeros": ["--prune", "0.8"],
    "0.8 zeros, int8": ["--prune", "0.8", "--int8"],
}
TURNS = 20


def aar(model: Path, way: str, folder: Path, *more: str) -> Path:
    """The AAR of one export."""
    shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "convertkit", "export", f"{model}.onnx", "--target", "android", *WAYS[way], *more]
    command += ["--calib", f"{model}.calib.npz", "-o", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.aar"))


def row(model: Path, way: str, out: Path) -> dict[str, object]:
    """Sizes in bytes, and milliseconds that it takes to decode the model."""
    cache = f"--cache={out / 'cache'}"
    plain, packed = aar(model, way, out / "plain", cache), aar(model, way, out / "packed", cache, "--compress")
    data = packaged_model(packed)
    assert data == packaged_model(plain)
    counts = np.bincount(np.frombuffer(data, np.uint8), minlength=256) / len(data)
    bits = -(counts[counts > 0] * np.log2(counts[counts > 0])).sum()
    small = deflated(data)
    times = []
    for _ in range(TURNS):
        begun = time.perf_counter()
        zlib.decompress(small, -15)
        times.append(1e3 * (time.perf_counter() - begun))
    return {
        "name": model.name, "way": way, "model": len(data), "deflated": len(small),
        "lzma": len(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)), "order_0": round(bits * len(data) / 8),
        "aar": plain.stat().st_size, "aar_packed": packed.stat().st_size,
        "decoding_ms": round(sorted(times)[TURNS // 2], 2),
    }  # fmt: skip


def table(rows: list[dict[str, object]]) -> str:
    """A row for each model and way; sizes in KB of 1,000 bytes."""
    lines = ["| model | made as | model, KB | deflated | LZMA | order 0 | AAR, KB | with `--compress` | decoding |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for each in rows:
        whole = float(str(each["model"]))
        shares = " | ".join(f"{100 * float(str(each[name])) / whole:.0f} %" for name in ("deflated", "lzma", "order_0"))
        sizes = [float(str(each[name])) / 1e3 for name in ("aar", "aar_packed")]
        lines.append(
            f"| {each['name']} | {each['way']} | {whole / 1e3:.1f} | {shares} | {sizes[0]:.1f} | {sizes[1]:.1f} "
            f"| {each['decoding_ms']} ms |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--models", default="kws,mnist_resnet,mnist_transformer")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "package_sizes.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {(each["name"], each["way"]) for each in rows}
    for name in args.models.split(","):
        for way in WAYS:
            if (name, way) not in known:
                rows.append(row(args.cases / name, way, args.out))
                with path.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
                print(rows[-1], file=sys.stderr, flush=True)
    print(table(sorted(rows, key=lambda each: (str(each["name"]), list(WAYS).index(str(each["way"]))))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

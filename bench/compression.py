"""What is left of trained models: pruning, few bits and training, beside plain magnitude pruning.

    python bench/compression.py OUT CASES [--models A,B] [--ways 'A;B']

CASES holds NAME.onnx, NAME.calib.npz and NAME.eval.npz (``make_cases.py``, ``compression_models.py``).  Results go to
``OUT/compression.json`` as they come, and what is in there is not made again: a run that was stopped goes on.  Then the
table is printed.  No sample of the calibration data is among those that are counted.  Seconds are processor time.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime as ort

WAYS: dict[str, list[str]] = {
    "float32": [],
    "0.8 without data": ["--prune", "0.8", "--no-calib"],
    "0.8": ["--prune", "0.8"],
    "0.8, recovered": ["--prune", "0.8", "--recover", "1"],
    "0.9 without data": ["--prune", "0.9", "--no-calib"],
    "0.9": ["--prune", "0.9"],
    "0.9, recovered": ["--prune", "0.9", "--recover", "1"],
    "2:4 without data": ["--prune", "2:4", "--no-calib"],
    "2:4": ["--prune", "2:4"],
    "2:4, recovered": ["--prune", "2:4", "--recover", "0.25"],
    "int8 of onnxruntime.quantization": [],
    "int8": ["--int8"],
    "int8, recovered": ["--int8", "--recover", "0.25"],
    "int8 throughout": ["--int8", "--full-integer"],
    "int8 throughout, recovered": ["--int8", "--full-integer", "--recover", "0.25"],
    "0.8 and int8": ["--prune", "0.8", "--int8"],
    "0.8 and int8, recovered": ["--prune", "0.8", "--int8", "--recover", "2"],
    "int4 weights": ["--w4"],
    "int4 weights, recovered": ["--w4", "--recover", "0.25"],
    "channels 0.3": ["--prune-channels", "0.3"],
    "channels 0.3, recovered": ["--prune-channels", "0.3", "--recover", "0.25"],
    "channels 0.5": ["--prune-channels", "0.5"],
    "channels 0.5, recovered": ["--prune-channels", "0.5", "--recover", "0.25"],
    "0.6 and int8, recovered": ["--prune", "0.6", "--int8", "--recover", "2"],
    "channels 0.3 and int4, recovered": ["--prune-channels", "0.3", "--w4", "--recover", "0.5"],
    "channels 0.5 and int4, recovered": ["--prune-channels", "0.5", "--w4", "--recover", "0.5"],
}
PEER = "int8 of onnxruntime.quantization"
"""Ranges by least and greatest values, a scale for each channel of a weight: ``bench/peers/ort_qdq.py``."""
OF_TFLITE = frozenset({"int8 throughout", "int8 throughout, recovered"})
"""ONNX Runtime has no integers for a hard-swish."""
Record = dict[str, object]
Answer = Callable[[np.ndarray], np.ndarray]


def made(model: Path, way: str, folder: Path) -> Record:
    """One export: top-1 in percent, bytes of the file and of it compressed, and the processor's seconds."""
    options = [each for each in WAYS[way] if each != "--no-calib"]
    data = [] if "--no-calib" in WAYS[way] else ["--calib", f"{model}.calib.npz"]
    if way == PEER:
        return peers(model, folder.with_name("peer"))
    target, file = ("tflite", "model.tflite") if way in OF_TFLITE else ("onnxruntime", "model.onnx")
    command = [sys.executable, "-m", "convertkit", "export", f"{model}.onnx", "--target", target, "--no-cache"]
    command += [*options, *data, "-o", str(folder), "--force"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        told = [line for line in done.stderr.splitlines() if line.startswith("convertkit:")]
        return {"error": (told or done.stderr.strip().splitlines())[0][:300]}
    notes = [line for line in done.stdout.splitlines() if line.startswith("note:")]
    return {**recorded(folder / file, model, after.ru_utime - before.ru_utime), "notes": notes}


def peers(model: Path, folder: Path) -> Record:
    """The same of ONNX Runtime's own quantizer."""
    folder.mkdir(parents=True, exist_ok=True)
    path, script = folder / "model.onnx", Path(__file__).parent / "peers" / "ort_qdq.py"
    command = [sys.executable, str(script), f"{model}.onnx", str(path), "MinMax", f"{model}.calib.npz"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return recorded(path, model, after.ru_utime - before.ru_utime)


def recorded(path: Path, model: Path, seconds: float) -> Record:
    written = path.read_bytes()
    return {
        "top1": top1(path, model), "bytes": len(written), "compressed": len(gzip.compress(written, 9, mtime=0)),
        "seconds": round(seconds, 1),
    }  # fmt: skip


def top1(path: Path, model: Path) -> float:
    """On the samples of NAME.eval.npz that are not in NAME.calib.npz."""
    data, used = np.load(f"{model}.eval.npz"), np.load(f"{model}.calib.npz")
    name = next(each for each in data.files if each != "label")
    seen = {sample.tobytes() for sample in used[name]}
    answer = of_tflite(path) if path.suffix == ".tflite" else of_onnx(path)
    right = [
        int(answer(sample).argmax() == label)
        for sample, label in zip(data[name], data["label"], strict=True)
        if sample.tobytes() not in seen
    ]
    return 100 * float(np.mean(right))


def of_onnx(path: Path) -> Answer:
    """What ONNX Runtime answers to one sample."""
    session = ort.InferenceSession(path)
    entry = session.get_inputs()[0]
    return lambda sample: session.run(None, {entry.name: sample.reshape(entry.shape)})[0]


def of_tflite(path: Path) -> Answer:
    """What LiteRT answers to one sample of one channel, whose layout does not matter."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path))
    interpreter.allocate_tensors()
    entry, end = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def answer(sample: np.ndarray) -> np.ndarray:
        interpreter.set_tensor(entry["index"], sample.reshape(entry["shape"]).astype(np.float32))
        interpreter.invoke()
        return interpreter.get_tensor(end["index"])

    return answer


def table(book: dict[str, dict[str, Record]]) -> str:
    """A row for each way that was tried, a column for each model: top-1, the compressed file's share, seconds.

    The share is of the uncompressed float32 file; a dash is what was refused.
    """
    lines = ["| | " + " | ".join(book) + " |", "|---|" + "---|" * len(book)]
    for way in WAYS:
        if not any(way in records for records in book.values()):
            continue
        cells = []
        for records in book.values():
            found, whole = records.get(way, {}), records.get("float32", {}).get("bytes", 0)
            shown = "-" if "error" in found else ""
            if isinstance(found.get("top1"), float):
                shown = f"{found['top1']:.1f} %, 1/{whole / found['compressed']:.1f}, {found['seconds']:.0f} s"
            cells.append(shown)
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--models", default="", help="all without")
    parser.add_argument("--ways", default="", help="all without; separated by semicolons")
    args = parser.parse_args()
    path = args.out / "compression.json"
    args.out.mkdir(parents=True, exist_ok=True)
    book: dict[str, dict[str, Record]] = json.loads(path.read_text()) if path.exists() else {}
    names = args.models.split(",") if args.models else sorted(each.stem for each in args.cases.glob("*.onnx"))
    for name in names:
        records = book.setdefault(name, {})
        for way in args.ways.split(";") if args.ways else WAYS:
            if way not in records:
                records[way] = made(args.cases / name, way, args.out / "made")
                path.write_text(json.dumps(book, indent=1))
                print(name, way, records[way], file=sys.stderr, flush=True)
    print(table(book))
    return 0


if __name__ == "__main__":
    sys.exit(main())

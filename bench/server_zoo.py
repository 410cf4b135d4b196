"""Each model for ONNX Runtime, OpenVINO and TensorFlow Serving, in each precision: parity, size, transposes.

    python bench/server_zoo.py OUT FOLDER [FOLDER …] [--models A,B] [--forms openvino.int8,…]
    python bench/server_zoo.py OUT --page docs/measurements/servers.md

FOLDER holds NAME.onnx, NAME.calib.npz and NAME.eval.npz (``make_zoo.py``, ``make_cases.py``).  A line of JSON for each
file and model goes to ``OUT/rows.jsonl``; what is there is not done again.  ``--latency SECONDS`` times a model's files
of ONNX Runtime and of OpenVINO, each runtime in a process of its own, as threads of another one's pool would count, and
the processes in turns; a file's time is the least of its medians.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
from server_page import page

HERE = Path(__file__).parent
FORMS = {
    "onnxruntime.float32": (),
    "onnxruntime.int8": ("--int8",),
    "onnxruntime.w8": ("--w8",),
    "onnxruntime.w4": ("--w4",),
    "openvino.float32": (),
    "openvino.fp16": ("--fp16",),
    "openvino.int8": ("--int8", "--openvino-cpu", "vnni"),
    "tf-serving.float32": (),
}
TIMED = {
    "onnxruntime": ("onnxruntime.float32", "onnxruntime.int8", "onnxruntime.w8", "onnxruntime.w4"),
    "openvino": ("openvino.float32", "openvino.fp16", "openvino.int8"),
}
TURNS = 3
FILES = {"onnxruntime": "model.onnx", "openvino": "model.xml", "tensorrt": "model.onnx"}
Row = dict[str, Any]


class Rows:
    """Lines of JSON, by model and what was done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.known: dict[tuple[str, str], Row] = {(row["model"], row["what"]): row for row in map(json.loads, lines)}

    def add(self, model: str, what: str, found: Row) -> Row:
        row = self.known[model, what] = {"model": model, "what": what, **found}
        with self.path.open("a") as stream:
            stream.write(json.dumps(row) + "\n")
        print(model, what, {key: each for key, each in found.items() if key != "histogram"}, flush=True)
        return row


def exported(model: Path, form: str, folder: Path) -> tuple[Path | None, str]:
    """The artifact, or None and the first line of the refusal."""
    target, _ = form.split(".")
    out = folder / f"{model.stem}.{form}"
    if not (out / "report.json").exists():
        words = [*FORMS[form], *(["--calib", str(model.with_name(f"{model.stem}.calib.npz"))] if FORMS[form] else [])]
        command = [sys.executable, "-m", "convertkit", "export", str(model), "--target", target, *words, "-o", str(out)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            said = [line for line in ran.stderr.splitlines() if line.startswith("convertkit: ")]
            return None, (said[0] if said else ran.stderr[-300:]).removeprefix("convertkit: ").removeprefix("error: ")
    if target == "tf-serving":
        (version,) = (out / "models").glob("*/1")
        return version, ""
    return out / FILES[target], ""


def told(*arguments: object, timeout_s: float = 1200) -> Row:
    """What ``measure.py`` says."""
    command = [sys.executable, str(HERE / "measure.py"), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    return json.loads(lines[-1][7:]) if lines else {"error": ran.stderr[-300:]}


def size(artifact: Path) -> int:
    """Bytes of the artifact: of a folder's files, and of what an IR keeps beside it."""
    files = artifact.rglob("*") if artifact.is_dir() else (artifact, artifact.with_suffix(".bin"))
    return sum(file.stat().st_size for file in files if file.is_file() and "assets.extra" not in file.parts)


def transposes(model: Path) -> int:
    """How many the source has of its own."""
    return sum(node.op_type == "Transpose" for node in onnx.load(model, load_external_data=False).graph.node)


def run(model: Path, forms: list[str], out: Path, rows: Rows) -> None:
    data = model.with_name(f"{model.stem}.eval.npz")
    for form in forms:
        if (model.stem, form) in rows.known:
            continue
        path, refusal = exported(model, form, out)
        if path is None:
            rows.add(model.stem, form, {"refused": refusal})
        else:
            more = {"bytes": size(path), "path": str(path), "source_transposes": transposes(model)}
            rows.add(model.stem, form, {**told("probe", path, model, data), **more})


def latency(model: Path, seconds: float, rows: Rows) -> None:
    """Milliseconds of a call by form, the least median of several turns."""
    data = model.with_name(f"{model.stem}.eval.npz")
    found: dict[str, list[float]] = {}
    for _ in range(TURNS):
        for forms in TIMED.values():
            there = {form: rows.known.get((model.stem, form), {}).get("path") for form in forms}
            paths = {form: path for form, path in there.items() if path and Path(path).exists()}
            if paths:
                timed = told("latency", seconds, 1, data, *paths.values())["ms"]
                for form, ms in zip(paths, timed, strict=True):
                    found.setdefault(form, []).append(ms)
    rows.add(model.stem, "ms", {form: min(each) for form, each in found.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--models", default="")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.out / "rows.jsonl")
    wanted = options.models.split(",") if options.models else None
    for folder in options.folders:
        for model in sorted(folder.glob("*.onnx")):
            if wanted is None or model.stem in wanted:
                if options.latency and (model.stem, "ms") not in rows.known:
                    latency(model, options.latency, rows)
                elif not options.latency:
                    run(model, options.forms.split(","), options.out, rows)
    if options.page:
        options.page.write_text(page(rows.known))
    return 0


if __name__ == "__main__":
    sys.exit(main())

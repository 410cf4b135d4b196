"""Models that nobody made for convertkit, exported by its command and judged in the runtimes that will run them.

    python bench/outside.py make KIND FOLDER [NAME …]     sources with what they themselves answer
    python bench/outside.py run FOLDER [--targets tflite,onnxruntime] [--only NAME …] [--flags=--int8] [--least-db 15]
    python bench/outside.py page FOLDER …                 docs/measurements/outside.md; other kinds' rows stay

``make`` writes NAME with the source's suffix and NAME.pkl: for each input its arrays, what the source gives in float32
and, for PyTorch, in float64.  ``run`` adds a row to FOLDER/rows.jsonl for each model; those there are skipped.  The
files run in ONNX Runtime and LiteRT themselves, not in convertkit.  An output is right where it is within 1e-4 of its
largest true value, or 16 times the source's own error in float32, and where the source is finite.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from outside_selections import may_select
from page_rows import latest, merged, section

from convertkit.onnx.onnxruntime_compat import ERRORS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "outside.md"
NEAR, OWN = 1e-4, 16.0
LIMIT_S = 420
_PLACE = re.compile(r"/[\w./-]*/(?=[\w-]+\.\w+)")
"""Folders in front of files, which reasons name."""
NAMES = {
    "torchvision": "torchvision 0.28, random weights",
    "timm": "timm 1.0, small models, random weights",
    "transformers": "transformers 5, small models of many families, random weights",
    "alike": "transformers 5, a class of each further family, random weights",
    "keras": "keras.applications and Keras layers, random weights",
    "onnx": "ONNX files as other exporters and older opsets write them",
    "sklearn": "scikit-learn as skl2onnx writes it",
    "jax": "JAX and Flax NNX, as `jax.export` writes them",
    "tensorflow": "SavedModels and .h5 of Keras layers and plain TensorFlow functions",
}


def floats(shapes: Sequence[tuple[int, ...]], seed: int = 5) -> dict[str, list[np.ndarray]]:
    """Named float32 inputs of those shapes: noise, zeros, ones, large and small numbers, halves."""
    rng = np.random.default_rng(seed)
    kinds: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
        "noise": rng.standard_normal,
        "pixels": rng.random,
        "zeros": np.zeros,
        "ones": np.ones,
        "noise × 1e3": lambda s: rng.standard_normal(s) * 1e3,
        "noise × 1e-4": lambda s: rng.standard_normal(s) * 1e-4,
        "half zeros": lambda s: rng.standard_normal(s) * (np.arange(s[-1]) < s[-1] // 2),
    }
    return {name: [np.asarray(draw(shape), np.float32) for shape in shapes] for name, draw in kinds.items()}


def batches(shapes: Sequence[tuple[int, ...]], sizes: Iterable[int]) -> dict[str, list[np.ndarray]]:
    """Noise of other batch sizes."""
    return {f"batch {n}": floats([(n, *shape[1:]) for shape in shapes], n)["noise"] for n in sizes}


def runner(
    folder: Path, names: Mapping[str, list[str] | None] = MappingProxyType({})
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """The delivered file in its own runtime, inputs and outputs in the source's layout and order (``names``)."""
    artifact = json.loads((folder / "manifest.json").read_text())["artifact"]
    path = str(folder / artifact["path"])
    inputs, outputs = (_in_order(artifact[ends], names.get(ends)) for ends in ("inputs", "outputs"))
    call: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]]
    if path.endswith(".onnx"):
        import onnxruntime as ort

        ort.set_default_logger_severity(4)
        session = ort.InferenceSession(path)
        names = [each.name for each in session.get_outputs()]

        def call(feed: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return dict(zip(names, session.run(None, feed), strict=True))
    else:
        from ai_edge_litert.interpreter import Interpreter

        signature = Interpreter(path).get_signature_runner()

        def call(feed: dict[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return signature(**feed)

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        counts = {array.shape[0] if array.ndim else 0 for array in arrays}
        if len(counts) > 1 or {each["shape"][0] if each["shape"] else 0 for each in inputs} != {1}:
            return at_once(arrays)  # else the batch was fixed at 1
        samples = [at_once([array[i : i + 1] for array in arrays]) for i in range(max(counts))]
        return [np.concatenate(parts) if parts[0].ndim else parts[0] for parts in zip(*samples, strict=True)]

    def at_once(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        feed = {
            each["name"]: np.transpose(array, each["perm"]) if each["perm"] else array
            for each, array in zip(inputs, arrays, strict=True)
        }
        found = call(feed)
        return [
            np.transpose(found[each["name"]], np.argsort(each["perm"])) if each["perm"] else found[each["name"]]
            for each in outputs
        ]

    return run


def _in_order(ends: list[Any], names: list[str] | None) -> list[Any]:
    if not names or {each["name"] for each in ends} != set(names):
        return ends
    return sorted(ends, key=lambda each: names.index(each["name"]))


def differs(
    got: Sequence[np.ndarray],
    single: Sequence[np.ndarray],
    double: Sequence[np.ndarray] | None,
    moved: Sequence[np.ndarray] | None = None,
) -> str:
    """What is wrong with the outputs for one input; empty where nothing is.

    ``moved`` is what the source gives for inputs that are one rounding away: sums that cancel out are no better known.
    """
    if len(got) != len(single):
        return f"{len(got)} outputs, the source has {len(single)}"
    for have, want, true, near in zip(got, single, double or single, moved or single, strict=True):
        if have.shape != want.shape:
            return f"shape {list(have.shape)}, the source's {list(want.shape)}"
        if want.dtype.kind not in "fV":
            if not np.array_equal(have, want):
                return "other integers"
            continue
        truth = true if true.shape == want.shape else want
        finite = np.isfinite(want) & np.isfinite(truth)
        if not np.isfinite(have[finite]).all():
            return "not finite where the source is"
        error = np.abs(have[finite].astype(np.float64) - truth[finite]).max(initial=0.0)
        own = np.abs(want[finite].astype(np.float64) - truth[finite]).max(initial=0.0)
        own = max(own, np.abs(near[finite].astype(np.float64) - want[finite]).max(initial=0.0))
        scale = np.abs(truth[finite].astype(np.float64)).max(initial=0.0)
        if error > NEAR * scale + OWN * own + 1e-30:
            return f"{error:.2g} off, the source {own:.2g}, largest {scale:.2g}"
    return ""


def too_noisy(got: Sequence[np.ndarray], want: Sequence[np.ndarray], least_db: float) -> str:
    """Why reduced precision is wrong, by the signal-to-noise ratio of each output; empty where it is not."""
    if [each.shape for each in got] != [each.shape for each in want]:
        return f"shapes {[list(each.shape) for each in got]}, the source's {[list(each.shape) for each in want]}"
    for have, true in zip(got, want, strict=True):
        if not np.isfinite(have[np.isfinite(true)]).all():
            return "not finite where the source is"
        noise = float(np.nansum((true.astype(np.float64) - have) ** 2))
        power = float(np.nansum(true.astype(np.float64) ** 2))
        if noise and (ratio := 10 * np.log10(max(power, 1e-300) / noise)) < least_db:
            return f"{ratio:.1f} dB"
    return ""


def judged(
    folder: Path, data: Mapping[str, Mapping[str, Any]], least_db: float | None, names: Mapping[str, list[str] | None]
) -> tuple[str, str]:
    """Verdict and reason for one delivered folder."""
    run, wrong = runner(folder, names), []
    for name, row in data.items():
        try:
            got = run(row["inputs"])
        except (*ERRORS, ValueError, TypeError, LookupError) as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:120]}")
            continue
        if (given := row.get("candidates")) is not None:
            said = "" if may_select(got[0], given) else "boxes that are not the best of those left"
        elif least_db is None:
            said = differs(got, row["outs"], row["double"], row.get("moved"))
        else:
            said = too_noisy(got, row["outs"], least_db if name == "noise" else -np.inf)
        if said:
            wrong.append(f"{name}: {said}")
    return ("wrong", "; ".join(wrong)) if wrong else ("right", "")


def exported(source: Path, targets: Sequence[str], flags: Sequence[str], out: Path) -> tuple[int, str]:
    """Exit code and what the command says, in a process of its own."""
    shutil.rmtree(out, ignore_errors=True)
    asked = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-m", "convertkit", "export", str(source), *asked, "--output", str(out), *flags]
    quiet = {**os.environ, "NO_COLOR": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, env=quiet, check=False)
    except subprocess.TimeoutExpired:
        return 124, f"no end within {LIMIT_S} s"
    return ended.returncode, ended.stderr


def row_of(source: Path, kept: Path, targets: Sequence[str], flags: Sequence[str], least_db: float | None) -> Any:
    """One model: seconds and exit code of its export, verdict and reason for each target."""
    data, began, out = pickle.loads(kept.read_bytes()), time.perf_counter(), kept.parent / f"out-{os.getpid()}"
    code, said = exported(source, targets, [*flags, *data.get("flags", ())], out)
    row: dict[str, Any] = {"name": kept.stem, "exit": code, "s": round(time.perf_counter() - began, 1)}
    for target in targets:
        folder = out / target if len(targets) > 1 else out
        if any(word in said for word in ("Traceback", "internal error", "the worker (")) or code not in (0, 1, 2, 3):
            verdict, reason = "fault", said[-1500:]
        elif not (folder / "manifest.json").exists():
            verdict, reason = "refused", said[-1500:]
        else:
            verdict, reason = judged(folder, data["rows"], least_db, data.get("names", {}))
        row[target] = {"verdict": verdict, "why": reason}
    shutil.rmtree(out, ignore_errors=True)
    return row


def run(folder: Path, options: argparse.Namespace) -> None:
    """A row for each model that has none, until the time is over."""
    rows, began = folder / "rows.jsonl", time.perf_counter()
    done = {row["name"] for row in latest(rows)}
    suffix = "".join(options.flags) + "".join(options.targets if options.targets != "tflite,onnxruntime" else "")
    for kept in sorted(folder.glob("*.pkl")):
        name = kept.stem + (f" {suffix}" if suffix else "")
        if name in done or (options.only and kept.stem not in options.only):
            continue
        if time.perf_counter() - began > options.budget:
            return
        source = next(each for each in sorted(folder.glob(f"{kept.stem}.*")) if each.suffix not in (".pkl", ".data"))
        row = row_of(source, kept, options.targets.split(","), options.flags, options.least_db) | {"name": name}
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row)[:700], flush=True)


def first_line(said: str, target: str) -> str:
    """The sentence of a refusal: that of this target, where several failed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith((f"{target}: ", "convertkit: ")) and ": failed: " not in line]
    told = (own or lines or [""])[0].removeprefix("convertkit: ").removeprefix(f"{target}: ")
    return _PLACE.sub("", told).replace("|", "\\|").replace("[", "\\[")[:180]


INTRODUCTION = """# Models from outside

Generated by `python bench/outside.py`: each model was exported by the command, verified as ever; what was
delivered ran in ONNX Runtime or LiteRT on noise, pixels, zeros, ones, noise × 1e3 and × 1e-4, half zeros
and, where the batch is dynamic, batches of 1 and 3; held against the source itself (PyTorch in float64).
What is not right stands below, kind by kind.
"""
COUNTS = ("| models | target | right | refused | wrong | fault | made, not run |", "|---|---|---|---|---|---|---|")
LEFT = ("| model | target | | why |", "|---|---|---|---|")


def judged_rows(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Rows of the models that are there, and how many have none; rows with flags are other files."""
    made = {each.stem for each in folder.glob("*.pkl")}
    rows = [row for row in latest(folder / "rows.jsonl") if row["name"] in made]
    return sorted(rows, key=lambda row: str(row["name"])), len(made) - len(rows)


def counted(folder: Path) -> list[str]:
    """A line for each target: how many are right, refused, wrong, faults, not run."""
    rows, waiting = judged_rows(folder)
    lines = []
    for target in ("tflite", "onnxruntime"):
        counts = Counter(row[target]["verdict"] for row in rows if target in row)
        told = " | ".join(str(counts[each]) for each in ("right", "refused", "wrong", "fault"))
        lines.append(f"| {NAMES[folder.name]} | {target} | {told} | {waiting} |")
    return lines


def not_right(folder: Path) -> str:
    """The section of a kind: all that is not right, and why."""
    lines = [f"## {NAMES[folder.name]}", "", *LEFT]
    for row in judged_rows(folder)[0]:
        for target in ("tflite", "onnxruntime"):
            if target in row and row[target]["verdict"] != "right":
                why = first_line(row[target]["why"], target)
                lines.append(f"| {row['name']} | {target} | {row[target]['verdict']} | {why} |")
    return "\n".join(lines if len(lines) > len(LEFT) + 2 else [lines[0], "", "All are right."]) + "\n"


def page(folders: Sequence[Path]) -> None:
    """Counts by kind and target, and all that is not right; what the page has of other kinds stays."""
    counts = merged(PAGE, "", [line for folder in folders for line in counted(folder)], 2)
    counts = [line for line in counts if line.startswith(tuple(f"| {name} |" for name in NAMES.values()))]
    new = {folder.name: not_right(folder) for folder in folders}
    parts = [new.get(kind) or section(PAGE, f"## {name}") for kind, name in NAMES.items()]
    PAGE.write_text("\n".join([INTRODUCTION, *COUNTS, *counts, "", *filter(None, parts)]))


def main() -> None:
    """The three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("kind", choices=sorted(NAMES))
    making.add_argument("folder", type=Path)
    making.add_argument("names", nargs="*")
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--targets", default="tflite,onnxruntime")
    running.add_argument("--only", nargs="*", default=[])
    running.add_argument("--flags", action="append", default=[])
    running.add_argument("--least-db", type=float)
    running.add_argument("--budget", type=float, default=1e9, help="seconds after which no model is begun")
    commands.add_parser("page").add_argument("folders", nargs="+", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.command == "make":
        options.folder.mkdir(parents=True, exist_ok=True)
        importlib.import_module(f"outside_{options.kind}").make(options.folder, options.names)
    elif options.command == "run":
        run(options.folder, options)
    else:
        page(options.folders)


if __name__ == "__main__":
    main()

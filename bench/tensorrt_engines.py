"""Which TensorRT packages TensorRT-RTX parses and builds engines from, and whether two builds are the same.

    python bench/tensorrt_engines.py OUT FOLDER [FOLDER …] [--sms 89,120] [--forms float32,int8] [--models A,B] [--once]
    python bench/tensorrt_engines.py OUT --page docs/measurements/tensorrt.md

FOLDER holds NAME.onnx and NAME.calib.npz (``make_zoo.py``, ``make_cases.py``); a model with a dynamic batch is built
with a profile.  A line of JSON for each goes to ``OUT/rows.jsonl``, and what is there is not done again; exports that
exist in OUT are kept.  ``--once`` leaves the second build out.  Needs no GPU; executes no engine.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server_zoo import Row, Rows

from convertkit.artifact import TensorSpec
from convertkit.targets.tensorrt import rtx
from convertkit.targets.tensorrt.shapes import Range

FORMS = {
    "float32": (),
    "float16": ("--fp16",),
    "int8": ("--int8",),
    "w8": ("--w8",),
    "w4": ("--w4",),
    "fp8": ("--fp8",),
    "bfloat16": ("--bf16",),
}
PROFILED = ("float32", "float16", "int8")
PROFILE = ("--tensorrt-profile", "N=1,4,16")
DYNAMIC = ", N=1,4,16"
CASES = ("digits", "kws", "mnist_pytorch", "mnist_small")


def built(model: Path, form: str, sms: str, out: Path, *, once: bool) -> Row:
    """The engine's bytes and whether a second build is the same, or the first line of the refusal."""
    open_batch = dynamic(model)
    folder = out / f"{model.stem}.{form}{'.dynamic' if open_batch else ''}"
    started = time.perf_counter()
    if not folder.exists():
        calibration = model.with_name(f"{model.stem}.calib.npz")
        words = [*FORMS[form], *(["--calib", str(calibration)] if FORMS[form] and calibration.exists() else [])]
        words += PROFILE if open_batch else ()
        command = [sys.executable, "-m", "convertkit", "export", str(model), "--target", "tensorrt", *words]
        asked = [*command, "--tensorrt-rtx-sm", sms, "-o", str(folder)]
        ran = subprocess.run(asked, capture_output=True, text=True, check=False)
        if ran.returncode:
            said = [line for line in ran.stderr.splitlines() if line.startswith("convertkit: ")]
            return {"refused": (said[0] if said else ran.stderr[-200:]).removeprefix("convertkit: ")}
    seconds = round(time.perf_counter() - started)
    told = json.loads((folder / "constraints.json").read_text())
    first = (folder / rtx.FILE).read_bytes()
    row: Row = {"bytes": len(first), "seconds": seconds, **kept(json.loads((folder / "report.json").read_text()))}
    if not once:
        second = built_again(folder, told, sms)
        row["again"] = "same" if first == second else "numbers" if program(first) == program(second) else "another"
    return row


def kept(report: dict[str, Any]) -> Row:
    """Of the source's signal in dB, the least of its outputs', and the nodes that stay float32 among 16-bit floats."""
    judged = report["steps"][-1]["parity"]["versus_source"]
    snr_db = min((float(each["snr_db"]) for each in judged["tensors"] if each["snr_db"] is not None), default=math.inf)
    told = next((step["diagnosis"] for step in report["steps"] if step["stage"] in ("half", "bfloat16")), None)
    return {"snr_db": snr_db, **({} if told is None else {"float32": len(told["float32"])})}


def built_again(package: Path, told: dict[str, Any], sms: str) -> bytes:
    """Another engine from the package's model."""
    inputs = [TensorSpec(each["name"], tuple(each["shape"]), each["dtype"]) for each in told["inputs"]]
    ranges = [Range(name, *sizes) for name, sizes in told["dimensions"].items()]
    with tempfile.TemporaryDirectory() as place:
        for file in told["model"]["sha256"]:
            shutil.copyfile(package / file, Path(place) / file)
        rtx.build(Path(place) / told["model"]["file"], inputs, ranges, rtx.architectures(sms))
        return (Path(place) / rtx.FILE).read_bytes()


def program(engine: bytes) -> bytes:
    """An engine without its header, which counts bytes; inner names numbered as they come, runs of zeros as one."""
    numbers = dict[bytes, int]()
    start = max(engine.find(b"__mye"), 0)
    named = re.sub(rb"__mye\d+", lambda found: b"#%d" % numbers.setdefault(found[0], len(numbers)), engine[start:])
    return re.sub(rb"\0+", b"\0", named)


def dynamic(model: Path) -> bool:
    import onnx

    inputs = onnx.load(model, load_external_data=False).graph.input
    return any(dim.dim_param for each in inputs for dim in each.type.tensor_type.shape.dim)


def page(rows: Mapping[tuple[str, str], Row]) -> str:
    """The page in Markdown: trained models, then the zoo."""
    names = sorted({model for model, _ in rows})
    trained = [name for name in names if name in CASES]
    zoo = [name for name in names if name not in CASES]
    sized = {(model, form): row for (model, form), row in rows.items() if form.endswith(DYNAMIC)}
    profiled = {(model, form.removesuffix(DYNAMIC)): row for (model, form), row in sized.items()}
    refusals = [
        f"- {model}, {form}: {row['refused']}" for (model, form), row in sorted(rows.items()) if "refused" in row
    ]
    parts = [
        _HEAD,
        "## Trained models",
        "",
        *_table(trained, tuple(FORMS), rows),
        "",
        "## The zoo",
        "",
        *_table(zoo, tuple(FORMS), rows),
        "",
        _PROFILES,
        *_table(zoo, PROFILED, profiled),
    ]
    parts += ["", *_shorts(names, rows)]
    return "\n".join([*parts, "", *(["Refused:", "", *refusals, ""] if refusals else []), _TAIL])


def _shorts(names: list[str], rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """What floats of 16 bits keep."""
    lines = [_SHORTS, "| model | float16 | stays float32 | bfloat16 | stays float32 |", "|---" * 5 + "|"]
    for name in names:
        found = [rows.get((name, form), {}) for form in ("float16", "bfloat16")]
        if any("snr_db" in row for row in found):
            cells = [part for row in found for part in _short(row)]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _short(row: Row) -> tuple[str, str]:
    if "snr_db" not in row:
        return ("–", "–")
    return (f"{row['snr_db']:.1f} dB", str(row["float32"]))


def _table(names: list[str], forms: tuple[str, ...], rows: Mapping[tuple[str, str], Row]) -> list[str]:
    lines = [f"| model | {' | '.join(forms)} |", "|---" * (len(forms) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(_cell(rows.get((name, form))) for form in forms)} |" for name in names]


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    if "refused" in row:
        return "refused"
    return f"{row['bytes'] / 1000:,.0f} KB{_AGAIN[row.get('again', 'once')]}"


_AGAIN = {"same": "", "numbers": ", numbers", "another": ", another", "once": ", once"}
_HEAD = """# TensorRT: engines of TensorRT-RTX

Written by `bench/tensorrt_engines.py --sms 89,120`: the packages of `--target tensorrt`, parsed and built by
TensorRT-RTX 1.7.1.116 for compute capability 8.9 and 12.0, without a GPU. **No engine was executed**: nothing here is
about numbers or speed on a GPU. Sizes are those of the engines. A second build had the same bytes, but for *numbers*:
only the numbers of inner names differ; *another*: more than these (what, was not traced); *once*: no second build was
made. A dash was not run. 4-bit weights have blocks of 64.
"""
_PROFILES = """## With a profile

A batch named N, built for `--tensorrt-profile N=1,4,16`.
"""
_SHORTS = """## Floats of 16 bits

The least signal-to-noise ratio of an output against the source over the inputs of the verification, edge inputs among
them, and how many nodes stay float32. float16 ran in ONNX Runtime's own kernels; bfloat16 with each operator in float32
between values that are rounded to bfloat16.
"""
_TAIL = """The digits model with the profile `N=1,8,32`, built ten times in one process, gave up to seven different
files in int8 and four in float32, which differ in the numbers of inner names alone.

Not run: other compute capabilities; TensorRT itself.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--sms", default="89,120")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--models", default="")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.out / "rows.jsonl")
    wanted = options.models.split(",") if options.models else None
    for folder in options.folders:
        for model in sorted(folder.glob("*.onnx")):
            for form in options.forms.split(",") if wanted is None or model.stem in wanted else ():
                what = form + (DYNAMIC if dynamic(model) else "")
                if (model.stem, what) not in rows.known:
                    rows.add(model.stem, what, built(model, form, options.sms, options.out, once=options.once))
    if options.page:
        options.page.write_text(page(rows.known))
    return 0


if __name__ == "__main__":
    sys.exit(main())

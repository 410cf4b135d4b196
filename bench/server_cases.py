"""Real models for servers, in each precision: ``CONVERTKIT_CASES=… server_cases.py OUT [--only WORDS] [--page]``.

Each model of ``coreml_cases.py`` is exported for ONNX Runtime, OpenVINO, TensorFlow Serving and TensorRT, whose
engine TensorRT-RTX builds for compute capabilities 8.9 and 12.0 (built, not executed).  A line of JSON for each goes
to ``OUT/server_cases.jsonl`` as it comes, and is not made again; the table goes into
``docs/measurements/server-cases.md``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from coreml_cases import ROOT, Model, Row, models
from server_artifacts import SavedModelArtifact

import convertkit
from convertkit import plugins
from convertkit.data.feeds import fitted
from convertkit.errors import ConvertKitError
from convertkit.result import Result
from convertkit.state import with_state

PAGE = ROOT / "docs" / "measurements" / "server-cases.md"
NARROW: Mapping[str, Mapping[str, Any]] = {
    "float32": {},
    "int8": {"int8": True},
    "w8": {"w8": True},
    "w4": {"w4": True},
}
HALF: Mapping[str, Mapping[str, Any]] = {"float32": {}, "fp16": {"fp16": True}, "int8": {"int8": True}}
ENGINE = {"target_options": {"tensorrt": {"rtx-sm": "89,120"}}}
WIDE = {"target_options": {"openvino": {"cpu": "vnni"}}}
FORMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "onnxruntime": NARROW,
    "openvino": {**HALF, "int8": {"int8": True, **WIDE}},
    "tf-serving": {"float32": {}},
    "tensorrt": {form: {**how, **ENGINE} for form, how in HALF.items()},
    "tensorrt, dynamic": {form: {**how, **ENGINE} for form, how in HALF.items()},
}
SIZES = "1,4,16"
"""Of the profile of a dynamic dimension."""
TITLES = {
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "tf-serving": "SavedModel",
    "tensorrt": "TensorRT form and engine",
    "tensorrt, dynamic": f"TensorRT-RTX engines of a dynamic batch, {SIZES}",
}


def measured(model: Model, target: str, form: str, place: Path) -> Row:
    """One export: its bytes, how far it is from the source, its engine."""
    shutil.rmtree(place, ignore_errors=True)
    how = dict(FORMS[target][form])
    data = {"calib": dict(model.calibration)} if any(key in how for key in ("int8", "w8", "w4", "fp16")) else {}
    fixed = {"static": dict.fromkeys(_open(model), 1)} if target == "tensorrt" else {}
    if target == "tensorrt, dynamic":
        profile = [f"{name}={SIZES}" for name in _open(model)]
        how["target_options"] = {"tensorrt": {**ENGINE["target_options"]["tensorrt"], "profile": profile}}
    started = time.perf_counter()
    try:
        made = convertkit.export(
            model.path, target.split(",", maxsplit=1)[0], output=place, **model.given, **how, **data, **fixed
        )
    except ConvertKitError as error:
        return {"said": str(error).splitlines()[0][:300], "exit": error.exit_code}
    took = time.perf_counter() - started
    tensors = made.report["steps"][-1]["parity"]["versus_source"]["tensors"]
    ratios = [float(each["snr_db"]) for each in tensors]
    engine = place / "model_rtx.engine"
    return {
        "bytes": made.artifact.size_bytes,
        "snr_db": min((each for each in ratios if np.isfinite(each)), default=None),
        "relative": max(float(each["relative"]) for each in tensors),
        "export_s": round(took, 1),
        **({"engine": engine.stat().st_size} if engine.exists() else {}),
        **({"transposes": _transposes(place)} if target == "tf-serving" else {}),
        **_answers(model, made, target),
    }


def _transposes(package: Path) -> int:
    """How many the function of the SavedModel has."""
    (version,) = (package / "models").glob("*/1")
    return SavedModelArtifact(version).operators().get("TRANSPOSE", 0)


def _open(model: Model) -> list[str]:
    """Dynamic dimensions of the model as it is exported without any choice."""
    found = convertkit.inspect(model.path, **model.given)
    return sorted({dim for each in found.inputs for dim in each.shape if isinstance(dim, str)})


def _answers(model: Model, made: Result, target: str) -> Row:
    """The share of right answers over labelled samples, by the runtime that verifies the artifact."""
    if not model.labelled or target.startswith("tensorrt"):
        return {}
    (name,) = (name for name in model.labelled if name != "label")
    with plugins.runner(made.artifact) as runner:
        given = ({name: row[None]} for row in model.labelled[name])
        answers = (runner.run(with_state(made.artifact, fitted("run()", made.artifact.inputs, feed))) for feed in given)
        found = [int(next(iter(answer.values())).argmax()) for answer in answers]
    return {"right": float(np.mean(np.array(found) == model.labelled["label"]))}


def measure(out: Path, only: str) -> dict[str, Row]:
    """Every row that is not there yet."""
    book = out / "server_cases.jsonl"
    rows = {row["row"]: row for row in map(json.loads, book.read_text().splitlines())} if book.exists() else {}
    for model in models():
        for target, forms in FORMS.items():
            for form in forms if target != "tensorrt, dynamic" or _open(model) else ():
                key = f"{model.name}, {target}, {form}"
                if key in rows or only not in key:
                    continue
                rows[key] = {"row": key, **measured(model, target, form, out / "export")}
                with book.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[key]) + "\n")
                print(json.dumps(rows[key]), flush=True)
    return rows


def page(rows: Mapping[str, Row]) -> str:
    """A table for each target, a line for each model; why something was refused, below it."""
    parts = [_HEAD]
    for target, forms in FORMS.items():
        parts += [f"## {TITLES[target]}", "", f"| model | {' | '.join(forms)} |", "|---" * (len(forms) + 1) + "|"]
        refusals = []
        for model in models():
            cells = [rows.get(f"{model.name}, {target}, {form}") for form in forms]
            if not any(cells):
                continue
            parts.append(f"| {model.name} | {' | '.join(map(_cell, cells))} |")
            said = [(form, row["said"]) for form, row in zip(forms, cells, strict=True) if row and "said" in row]
            refusals += [f"- {model.name}, {form}: {each}" for form, each in said]
        parts += ["", *refusals, *([""] if refusals else [])]
    missing = [model.name for model in models() if not any(row.startswith(f"{model.name}, ") for row in rows)]
    return "\n".join([*parts, *([f"Not run: {', '.join(missing)}.", ""] if missing else [])])


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    if "said" in row:
        return "refused"
    parts = [f"{row['relative']:.1e}" if row["snr_db"] is None or row["snr_db"] > 90 else f"{row['snr_db']:.1f} dB"]
    if "right" in row:
        parts.append(f"{100 * row['right']:.1f} %")
    parts.append(f"{row['bytes'] / 1000:,.0f} KB")
    if "transposes" in row:
        parts.append(f"{row['transposes']} transposes")
    if "engine" in row:
        parts.append(f"engine {row['engine'] / 1000:,.0f} KB")
    return ", ".join(parts)


_HEAD = """# Servers: real models

Written by `bench/server_cases.py`: models that others trained, exported as they are, calibrated on samples of their
own data where there are such ([which](coreml-cases.md)). The SNR, or from 90 dB on the largest relative difference,
is the worst output's over the usual inputs of the verification against the source, in the runtime that verifies the
artifact; the share of right answers is over 300 labelled samples that no calibration saw. TensorRT's form is verified
in ONNX Runtime; its engines are TensorRT-RTX's for compute capabilities 8.9 and 12.0, **built, not executed**.
*Transposes* are those of the SavedModel's function. A dash was not run.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="rows whose names have these words")
    parser.add_argument("--page", action="store_true", help="write the page from what is there, and measure nothing")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.page:
        lines = (options.out / "server_cases.jsonl").read_text().splitlines()
        PAGE.write_text(page({row["row"]: row for row in map(json.loads, lines)}))
    else:
        measure(options.out, options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())

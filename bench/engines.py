"""What engines compute: ``engines.py [TARGET …] [--part PART …] [--rows FILE]`` writes docs/measurements/engines.md.

Each row is an export that was run here, in a process of its own, and a line of JSON in ``build/engines.jsonl``: rows
that are there are not run again, so that one is made anew by taking its line out.  Rows of the page whose lines are not
there stay as they are.  Parts are ``cases`` (fixtures, and
real models from ``$CONVERTKIT_CASES``), ``accuracy`` (int8 of those with labels, on all samples), ``zoo`` (of
``make_zoo.py``, in the folder ``--zoo``), ``draws`` (accuracy by several choices of calibration samples) and ``same``
(one quantized model through all).  The node suite is
``make conformance-engine``, whose lines the page counts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import engines_page
import numpy as np
from engine_models import (
    ACCURATE,
    CALLS,
    DRAWN,
    DRAWS,
    FORMS,
    QUANTIZED,
    Model,
    cases,
    drawn,
    forms,
    labelled,
    quantized,
    zoo,
)

import convertkit
from convertkit import plugins
from convertkit.artifact import Artifact, sha256_of
from convertkit.errors import ConvertKitError, ParityError, ToolError
from convertkit.result import Result

HERE = Path(__file__).resolve().parents[1]
BUILD = HERE / "build"
PARTS = ("cases", "accuracy", "draws", "zoo", "same")
LIMIT_S = 900.0
DELIVERED = ("model.rknn", "model.xml", "model.pte", "model.onnx")
"""The model in a folder of a target with integers; RKNN's has the graph beside it."""
SURE = 0.2
"""By how much the first class leads where a float model has decided."""
Row = dict[str, Any]


def wanted(parts: tuple[str, ...], targets: tuple[str, ...], zoo_folder: Path | None) -> Iterator[Row]:
    """Every row by what it is of."""
    for part in (each for each in ("accuracy", "draws") if each in parts):
        for name in [each.name for each in labelled()] if part == "accuracy" else DRAWN:
            for target in (each for each in ACCURATE if each in targets):
                for form in ACCURATE[target]:
                    row = {"part": part, "model": name, "target": target, "form": form}
                    yield from [row] if part == "accuracy" else ({**row, "draw": draw} for draw in range(DRAWS))
    for part in parts:
        if part in ("accuracy", "draws"):
            continue
        names = {"cases": [each.name for each in cases()], "zoo": [each.name for each in zoo(zoo_folder)]}
        for name in QUANTIZED if part == "same" else names[part]:
            for target in QUANTIZED[name] if part == "same" else targets:
                for form in ("as it is",) if part == "same" else forms(part, name, target):
                    if target in targets or (part == "same" and target not in FORMS):
                        yield {"part": part, "model": name, "target": target, "form": form}


def made(row: Row, zoo_folder: Path | None) -> Row:
    """The row with what was measured, or what was said instead."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="convertkit-engines-") as folder:
        try:
            found = _found(row, Path(folder), zoo_folder)
        except ConvertKitError as refusal:
            found = refused(refusal)
    return {**row, **found, "seconds": round(time.perf_counter() - started, 1)}


def _found(row: Row, place: Path, zoo_folder: Path | None) -> Row:
    if row["part"] == "same":
        return _same(row, place)
    if row["part"] in ("accuracy", "draws"):
        model = next(each for each in labelled() if each.name == row["model"])
        model = drawn(model, row["draw"]) if row["part"] == "draws" else model
        try:
            return told(exported(model, row["target"], ACCURATE[row["target"]][row["form"]], place / "out"))
        except ParityError as refusal:
            return {**refused(refusal), **_measured(model, row["target"], place / "out.failed")}
    return _model(row, place, zoo_folder)


def _measured(model: Model, target: str, place: Path) -> Row:
    """What a refused artifact computes, where its runner takes it: RKNN's builds the file again, and compares."""
    try:
        return unverified(model, target, place)
    except ToolError as error:
        return {"unmeasured": str(error)}


def _model(row: Row, place: Path, zoo_folder: Path | None) -> Row:
    model = next(each for each in (*cases(), *zoo(zoo_folder)) if each.name == row["model"])
    flags = forms(row["part"], row["model"], row["target"])[row["form"]]
    try:
        result = exported(model, row["target"], flags, place / "out")
    except ParityError as refusal:
        return {**refused(refusal), **unverified(model, row["target"], place / "out.failed")}
    found = told(result)
    if row["part"] == "cases":
        again = exported(model, row["target"], flags, place / "again")
        found["same_bytes"] = sha256_of(result.artifact.path) == sha256_of(again.artifact.path)
        if model.held_out is not None:
            found["agreement"] = agreement(model, result.artifact)
    return found


def refused(refusal: ConvertKitError) -> Row:
    """What was said instead of an artifact."""
    return {"refused": str(refusal).splitlines()[0], "exit": refusal.exit_code}


def unverified(model: Model, target: str, place: Path) -> Row:
    """What an artifact that verification refuses computes of data, where there is some: a number, not a verdict."""
    if model.labelled is None and model.held_out is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        source = convertkit.export(model.path, "onnxruntime", output=Path(folder) / "float").artifact
        given, made = (
            tuple(replace(each, shape=one_sample(each.shape)) for each in ports)
            for ports in (source.inputs, source.outputs)
        )
        path = next(place / name for name in DELIVERED if (place / name).exists())
        artifact = Artifact(path, target, given, made, sha256_of(path))
        if model.labelled is None:
            return {"agreement": agreement(model, artifact)}
        return {"accuracy": [top_1(model, source), top_1(model, artifact), len(next(iter(model.labelled.values())))]}


def one_sample(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """Its sizes, with 1 for those that are dynamic."""
    return tuple(each if isinstance(each, int) else 1 for each in shape)


def top_1(model: Model, artifact: Artifact) -> float:
    """Per cent of the labelled samples."""
    assert model.labelled is not None
    given = {name: values for name, values in model.labelled.items() if name != "label"}
    with plugins.runner(artifact) as runner:
        found = [
            int(next(iter(runner.run({name: values[place][None] for name, values in given.items()}).values())).argmax())
            for place in range(len(model.labelled["label"]))
        ]
    return float(100 * np.mean(np.asarray(found) == model.labelled["label"]))


def exported(model: Model, target: str, flags: Mapping[str, Any], place: Path) -> Result:
    """Calibrated where it becomes integers, and evaluated where labels are there."""
    given = {**flags, **({"calib": dict(model.calibration)} if flags else {})}
    if model.labelled is not None:
        given |= {"eval": dict(model.labelled), "max_drop": 100.0}
    return convertkit.export(model.path, target, output=place, keep_failed=True, **given)


def told(result: Result) -> Row:
    """What the report says of an export."""
    report = result.report
    evaluation, quality, step = report["evaluation"], report["quality"], report["steps"][-1]
    return {
        "snr_db": quality["snr_db"] if quality else None,
        "accuracy": [evaluation[each] for each in ("before", "after", "samples")] if evaluation else None,
        "tensors": [
            {name: each[name] for name in ("lsb", "snr_db")} for each in step["parity"]["versus_previous"]["tensors"]
        ],
        "bytes": sum(each.stat().st_size for each in result.path.rglob("*") if each.suffix in engines_page.SHIPPED),
        "kernels": step.get("diagnosis") or {},
    }


def agreement(model: Model, artifact: Artifact) -> Row:
    """How often the largest output is that of the float model, on pictures without labels."""
    assert model.held_out is not None
    (name,) = model.held_out
    feeds = [{name: each[None]} for each in model.held_out[name]]
    with tempfile.TemporaryDirectory() as place:
        float_model = convertkit.export(model.path, "onnxruntime", output=Path(place) / "float")
        with plugins.runner(float_model.artifact) as before, plugins.runner(artifact) as after:
            scores = [next(iter(before.run(feed).values())).reshape(-1) for feed in feeds]
            found = [next(iter(after.run(feed).values())).reshape(-1) for feed in feeds]
    equal = [one.argmax() == other.argmax() for one, other in zip(scores, found, strict=True)]
    sure = [bool(np.ptp(np.sort(each)[-2:]) > SURE) for each in scores]
    return {
        "equal": int(sum(equal)),
        "samples": len(equal),
        "sure": sum(sure),
        "equal_sure": int(np.logical_and(equal, sure).sum()),
    }


def _same(row: Row, place: Path) -> Row:
    """What an engine computes of the one quantized model, on the same inputs."""
    graph, feeds = quantized(row["model"], BUILD)
    target = row["target"]
    if target in CALLS:
        outputs = CALLS[target](graph, feeds)
    else:
        flags = QUANTIZED[row["model"]][target]
        calibration = next(each.calibration for each in cases() if each.name == row["model"])
        given = {**flags, **({"calib": dict(calibration)} if flags else {})}
        result = convertkit.export(graph, target, output=place / "out", **given)
        with plugins.runner(result.artifact) as runner:
            outputs = np.stack([next(iter(runner.run(feed).values())).reshape(-1) for feed in feeds])
    return {"outputs": np.asarray(outputs, np.float64).tolist()}


def alone(row: Row, options: argparse.Namespace) -> Row:
    """A row in a process of its own, which may take ``--limit-s``."""
    command = [
        sys.executable,
        __file__,
        "--row",
        json.dumps(row),
        *(["--zoo", str(options.zoo)] if options.zoo else []),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit_s, check=False)
    except subprocess.TimeoutExpired:
        return {**row, "refused": f"no end in {options.limit_s:.0f} s", "exit": None}
    if done.returncode:
        sys.exit(f"{row}: {done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run what is not there, then write the page of all that is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="these targets only")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--model", action="append", help="this model only")
    parser.add_argument("--rows", type=Path, default=BUILD / "engines.jsonl")
    parser.add_argument("--zoo", type=Path, help="the folder that make_zoo.py wrote")
    parser.add_argument("--limit-s", type=float, default=LIMIT_S, help="seconds that one row may take")
    parser.add_argument("--page", action="store_true", help="write the page alone")
    parser.add_argument("--row", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(made(options.row, options.zoo)))
        return
    options.rows.parent.mkdir(exist_ok=True)
    rows = [json.loads(line) for line in options.rows.read_text().splitlines()] if options.rows.exists() else []
    there = {key(row) for row in rows}
    parts = tuple(options.part or PARTS)
    for row in wanted(parts, tuple(options.targets or FORMS), options.zoo) if not options.page else ():
        if key(row) in there or row["model"] not in (options.model or (row["model"],)):
            continue
        rows.append(alone(row, options))
        with options.rows.open("a") as stream:
            stream.write(json.dumps(rows[-1]) + "\n")
        print(key(row), rows[-1].get("refused", "made"), flush=True)
    engines_page.write(rows, BUILD)


def key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What tells rows apart."""
    return tuple(str(row.get(each)) for each in ("part", "model", "target", "form", "draw"))


if __name__ == "__main__":
    main()

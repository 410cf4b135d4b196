"""Delicate models (``bench/delicate_models.py``) as files of three targets, verified, and judged from outside.

    python bench/delicate.py run FOLDER [--targets onnxruntime,tflite,openvino] [--only WORD …]
    python bench/delicate.py page FOLDER > docs/measurements/delicate.md

A row of FOLDER/rows.jsonl for each model; those there are skipped.  From outside, each file runs on some thirty inputs
that verification does not draw, and is held against PyTorch in float64 and against PyTorch's own error in float32.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

TARGETS = ("onnxruntime", "tflite", "openvino")
FAR, OWN = 1e-3, 16.0
"""What an error may be: a part of the largest true value (of 1, where that is less), so many times PyTorch's own."""
LEAST_NORMAL = 1.2e-38


def inputs(shapes: Sequence[tuple[int, ...]], seed: int = 0) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Names and float32 arrays of those shapes: silence, constants, tiny and huge numbers, spikes, and others."""
    rng = np.random.default_rng(seed)
    kinds = {
        "noise": rng.standard_normal,
        "zeros": np.zeros,
        "signed zeros": lambda s: np.where(np.arange(np.prod(s)).reshape(s) % 2, -0.0, 0.0),
        **{f"{number:g} everywhere": partial(np.full, fill_value=number) for number in (1, 0.3, -7.1, 1.234e-3, 1e-6)},
        "1234.5 everywhere": partial(np.full, fill_value=1234.5),
        **{f"noise × {factor:g}": partial(_noise, rng, factor) for factor in (1e-3, 1e-6, 1e-12, 1e-30, 1e2, 1e6)},
        "one-hot": lambda s: np.broadcast_to(np.arange(s[-1]) == 3, s),
        "spikes": lambda s: np.where(rng.random(s) < 0.02, 50.0, 0.0),
        "half silent": lambda s: np.where(np.arange(s[-1]) < s[-1] // 2, 0.0, rng.standard_normal(s)),
        "small beside 100": lambda s: 100 + 1e-3 * rng.standard_normal(s),
        "negative": lambda s: -np.abs(rng.standard_normal(s)),
        "of all sizes": lambda s: rng.standard_normal(s) * 10.0 ** rng.integers(-8, 3, s),
        "constant rows": lambda s: np.broadcast_to(rng.standard_normal(s)[..., :1], s),
        "constant columns": lambda s: np.broadcast_to(rng.standard_normal(s)[..., :1, :], s),
    }
    for name, make in kinds.items():
        yield name, [np.ascontiguousarray(make(shape), np.float32) for shape in shapes]
    if len(shapes) > 1:
        same = rng.standard_normal(shapes[0]).astype(np.float32)
        yield "one silent", [same, np.zeros_like(same)]
        yield "the same", [same, same]
        yield "opposite", [same, -same]
    yield "noise again", [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _noise(rng: np.random.Generator, factor: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_normal(shape) * factor


def told(got: np.ndarray, single: np.ndarray, double: np.ndarray) -> str:
    """What is wrong with one output; empty where nothing is."""
    if got.shape != single.shape:
        return f"shape {got.shape}"
    finite = np.isfinite(single)
    if not np.isfinite(got[finite]).all():
        return "not finite where PyTorch is"
    if not np.array_equal(got[~finite], single[~finite], equal_nan=True):
        near = np.isclose(got[~finite], double[~finite], rtol=1e-3, equal_nan=True)
        return "" if near.all() else "finite where PyTorch is not"
    error, own, scale = (_largest(each) for each in (got - double, single - double, double))
    if error <= FAR * max(scale, 1.0) + OWN * own + LEAST_NORMAL:
        return ""
    return f"{error:.2g} off, PyTorch {own:.2g}, largest {scale:.2g}"


def _largest(array: np.ndarray) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


class Source:
    """A model in PyTorch, single and double, and as canonical ONNX."""

    def __init__(self, name: str, work: Path) -> None:
        import delicate_models
        import torch

        function, self.shapes = delicate_models.MODELS[name], delicate_models.SHAPES[name]

        class One(torch.nn.Module):
            def forward(self, x):
                return function(x)

        class Two(torch.nn.Module):
            def forward(self, x, y):
                return function(x, y)

        self._module = (One if len(self.shapes) == 1 else Two)().eval()
        self.names = [f"x{place}" for place in range(len(self.shapes))]
        self.outputs: list[str] = []
        self.outputs = [f"y{place}" for place in range(len(self.run(next(inputs(self.shapes))[1])))]
        self.artifact = self._hub(work)

    def run(self, arrays: Sequence[np.ndarray], *, double: bool = False) -> list[np.ndarray]:
        """The outputs for inputs in their order."""
        import torch
        from torch.utils import _pytree as pytree

        tensors = [torch.from_numpy(np.array(each)) for each in arrays]
        with torch.no_grad():
            found = self._module(*(each.double() if double else each for each in tensors))
        return [np.array(each.numpy()) for each in pytree.tree_leaves(found)]

    def _hub(self, work: Path) -> Any:
        import torch

        from convertkit.converters.pytorch.operators.indices import widen_indices
        from convertkit.converters.pytorch.operators.spectra import exact_transforms
        from convertkit.converters.pytorch.routes import exporting, restoring
        from convertkit.onnx.canonical import canonicalize
        from convertkit.onnx.load import load_model
        from convertkit.onnx.plain_constants import fold_plain_constants
        from convertkit.onnx.save import save_model

        example = tuple(torch.from_numpy(each) for each in next(inputs(self.shapes))[1])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
            program = torch.export.export(self._module, example, strict=False)
            exporting.write_program(program, self.names, self.outputs, str(work / "written.onnx"))
        model = load_model(work / "written.onnx")
        restoring._name_outputs(model.graph, self.outputs)
        fold_plain_constants(model)
        widen_indices(model)
        model = canonicalize(model)
        return save_model(canonicalize(model) if exact_transforms(model) else model, work / "model.onnx", "bench")


def stage(target: str) -> Any:
    """What makes the target's file of canonical ONNX."""
    from convertkit.recipe import ExportOptions
    from convertkit.targets.onnxruntime.stage import DeliverOnnx
    from convertkit.targets.openvino.stage import WriteIr
    from convertkit.targets.tflite.stage import CompileTflite

    if target == "tflite":
        return CompileTflite(ExportOptions("x", ("tflite",)))
    return WriteIr("float32") if target == "openvino" else DeliverOnnx(None)


def judged(source: Source, target: str, work: Path) -> dict[str, Any]:
    """Whether verification passes the target's file, and what is wrong with it from outside."""
    from convertkit import plugins
    from convertkit.parity.feeds import proof_inputs
    from convertkit.parity.replay import compare_recordings
    from convertkit.parity.values import Recording
    from convertkit.stage import FLOAT32
    from convertkit.steps.make import made
    from convertkit.steps.recording import recorded
    from convertkit.twins import Twins

    feeds = proof_inputs(source.artifact.inputs, None, 0)
    answers = [source.run([feed[name] for name in source.names]) for feed in feeds.feeds]
    outputs = tuple(dict(zip(source.outputs, answer, strict=True)) for answer in answers)
    before = Recording("pytorch", source.artifact, feeds.feeds, outputs, feeds.edges, tuple({} for _ in feeds.feeds))
    step = made(stage(target), source.artifact, work)
    with Twins() as twins:
        after = recorded(step.stage, step.artifact, before)
        report = compare_recordings(before, after, FLOAT32, twins.ask(source.artifact))
    wrong = {}
    with plugins.runner(step.artifact) as runner:
        for kind, arrays in inputs(source.shapes):
            answer = runner.run(dict(zip(source.names, arrays, strict=True)))
            pairs = zip(source.outputs, source.run(arrays), source.run(arrays, double=True), strict=True)
            faults = [fault for name, single, double in pairs if (fault := told(answer[name], single, double))]
            wrong |= {kind: faults[0]} if faults else {}
    return {
        "verdict": "refused" if report.failures else "unproven" if report.unproven else "passed",
        "why": (report.failures or (report.unproven,))[0],
        "explained": len(report.explained),
        "wrong": wrong,
    }


def run(folder: Path, targets: Sequence[str], only: Sequence[str], seconds: float) -> None:
    """A row for each model that has none."""
    import delicate_models
    import torch

    from convertkit.converters.pytorch.compat import exporters

    torch.set_num_threads(1)
    exporters.let_masks_be()
    folder.mkdir(exist_ok=True, parents=True)
    rows = folder / "rows.jsonl"
    done, began = {row["name"] for row in read(rows)}, time.perf_counter()
    for name in delicate_models.MODELS:
        if name in done or (only and not any(word in name for word in only)):
            continue
        if time.perf_counter() - began > seconds:
            return
        row = {"name": name} | _judged_all(name, targets, folder / "work")
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _judged_all(name: str, targets: Sequence[str], folder: Path) -> dict[str, Any]:
    """A model's rows by target; ``source`` where PyTorch's exporter does not take it."""
    import torch

    from convertkit.errors import ConvertKitError

    refusals = (ConvertKitError, torch.onnx.OnnxExporterError)
    try:
        source = Source(name, _emptied(folder / "source"))
    except refusals as error:
        return {"source": _refused(error)}
    row = {}
    for target in targets:
        try:
            row[target] = judged(source, target, _emptied(folder / target))
        except refusals as error:
            row[target] = _refused(error)
    return row


def _refused(error: Exception) -> dict[str, Any]:
    return {"verdict": "refused", "why": str(error).splitlines()[0], "wrong": {}}


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def read(rows: Path) -> list[dict[str, Any]]:
    """The rows so far."""
    return [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []


def page(folder: Path) -> Iterator[str]:
    """The page's lines."""
    import delicate_models

    rows = read(folder / "rows.jsonl")
    yield "# Delicate models: what verification tells right from wrong"
    yield ""
    count = f"{len(rows)} of {len(delicate_models.MODELS)}"
    yield f"Written by `python bench/delicate.py`: {count} small models of PyTorch whose results hang on an"
    yield "epsilon, a mask or a cancellation (`bench/delicate_models.py`), most with several epsilons. Each is verified"
    yield "as an export is. *Right from outside* are files that are, on thirty inputs more (silence, constants, 1e-30"
    yield f"to 1e6, spikes), no further from PyTorch in float64 than {FAR:g} of the largest number (of 1, where that is"
    yield f"less) and {OWN:g} times PyTorch's own error in float32."
    yield ""
    yield "| | verified, right from outside | verified, not right somewhere | refused, right | refused, not right |"
    yield "|---|---|---|---|---|"
    for target in TARGETS:
        counts = Counter(
            (row[target]["verdict"] == "refused", bool(row[target]["wrong"])) for row in rows if target in row
        )
        cells = [str(counts[key]) for key in ((False, False), (False, True), (True, False), (True, True))]
        yield f"| {target} | " + " | ".join(cells) + " |"
    yield ""
    yield "What is refused, or not right somewhere:"
    yield ""
    yield "| model | target | verification | from outside |"
    yield "|---|---|---|---|"
    yield from (line for row in rows for target in ("source", *TARGETS) for line in _lines(row, target))


def _lines(row: Mapping[str, Any], target: str) -> Iterator[str]:
    found = row.get(target, {"verdict": "passed", "wrong": {}})
    if found["verdict"] == "passed" and not found["wrong"]:
        return
    said = "passed" if found["verdict"] == "passed" else f"{found['verdict']}: {found['why']}"
    wrong = list(found["wrong"].items())
    more = f"; {len(wrong) - 2} more" if len(wrong) > 2 else ""
    outside = "; ".join(f"{kind}: {fault}" for kind, fault in wrong[:2]) + more
    cells = (each.replace("|", "\\|").replace("\n", " ") for each in (row["name"], target, said[:150], outside))
    yield "| " + " | ".join(cells) + " |"


def main() -> None:
    """The two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "page"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options.command == "run":
        run(options.folder, options.targets.split(","), options.only, options.seconds)
    else:
        print("\n".join(page(options.folder)))


if __name__ == "__main__":
    main()

"""The worker's side: one case through the Core ML compiler and the MIL evaluator, held against the suite.

The oracle of further feeds is that of the other board.

Integers of the package are int32 and its booleans int32, whatever the source's are: they are compared as numbers.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from compare import Verdict, compare
from oracles import oracle, part

from convertkit.errors import FeedError, Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.coreml.imports import import_coremltools
from convertkit.workers.process import Reply

import_coremltools()

from convertkit.targets.coreml.builder import MOST_DIMENSIONS  # noqa: E402 - only after coremltools
from convertkit.targets.coreml.compile import compile_model  # noqa: E402
from convertkit.targets.coreml.evaluator.evaluate import Evaluator  # noqa: E402
from convertkit.targets.coreml.options import TARGETS, Choices  # noqa: E402
from convertkit.targets.coreml.package.program import read_package  # noqa: E402
from convertkit.targets.coreml.runner import as_package  # noqa: E402

warnings.simplefilter("ignore")
ort.set_default_logger_severity(4)

_NEWEST = 28
_Feed = dict[str, np.ndarray]


class CoreMLConformance:
    """Methods of the worker; each call runs in a fork."""

    def case(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """Run one case; the reply says ``right``, ``wrong``, ``refused`` or ``error``, and why."""
        path = Path(params["folder"]) / f"{params['name']}.onnx"
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
            data = dict(stored)
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / "model.mlpackage"
            try:
                model = canonicalize(load_model(path), max_opset=_NEWEST)
                compile_model(model, Choices(TARGETS["iOS18"]), package)
            except Unsupported as refusal:
                told = {"status": "refused", "reason": str(refusal).splitlines()[0]}
                return Reply({**told, "barrier": barrier(onnx.load(path), data)})
            verdict = _judged(path, package, data, params["rtol"], params["atol"])
        status = "wrong" if verdict.reason else "right"
        return Reply({"status": status, "reason": verdict.reason, "worst": verdict.worst})


_HELD = frozenset({"float32", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"})
"""Element types whose numbers a package can hold; those of int64 and uint32 within int32."""
_INT32 = np.iinfo(np.int32)


def barrier(model: onnx.ModelProto, data: _Feed) -> str:
    """What of a case's interface and constants no Core ML package can hold, or nothing.

    ``data`` has its inputs and outputs.  Judged by the case alone, not by what the compiler said of it.
    """
    values = [*model.graph.input, *model.graph.output]
    if any(not value.type.HasField("tensor_type") for value in values):
        return "sequences and optional values"
    if not model.graph.input:
        return "a model without inputs"
    numbers = [value.type.tensor_type.elem_type for value in values]
    numbers += [each.data_type for each in model.graph.initializer]
    names = {onnx.TensorProto.DataType.Name(number).lower() for number in numbers}
    if unheld := sorted(names.difference(_HELD) - {"float"}):
        return f"element type {unheld[0]}"
    arrays = [*data.values(), *map(onnx.numpy_helper.to_array, model.graph.initializer)]
    sized = [*part(data, "in").values(), *part(data, "out").values()]
    if any(each.ndim > MOST_DIMENSIONS for each in sized):
        return f"more than {MOST_DIMENSIONS} dimensions"
    if any(not each.size for each in sized):
        return "inputs or outputs without elements"
    whole = [each for each in arrays if each.dtype.kind in "iu" and each.size]
    if any(int(each.max()) > _INT32.max or int(each.min()) < _INT32.min for each in whole):
        return "integers beyond 32 bits"
    return ""


def _judged(path: Path, package: Path, data: _Feed, rtol: float, atol: float) -> Verdict:
    feed, expected = part(data, "in"), part(data, "out")
    program = read_package(package)
    evaluator = Evaluator(program.block)
    names = [value.name for value in onnx.load(path).graph.input]
    ports = dict(zip([name for name in names if name in feed], program.block.inputs, strict=True))

    def run(given: _Feed) -> _Feed:
        encoded = {ports[name][0]: as_package(name, value, ports[name][1]) for name, value in given.items()}
        found = evaluator.run(encoded)
        results = zip(expected, program.block.outputs, strict=True)
        return {name: _like(found[port], expected[name]) for name, port in results}

    verdict = compare(run(feed), expected, rtol, atol)
    trusted = oracle(path, feed, expected, rtol, atol)
    number = 0
    while not verdict.reason and trusted is not None and (more := part(data, f"feed{number}")):
        wanted = trusted(more)
        try:
            found = compare(run(more), wanted, rtol, atol)
        except FeedError as error:
            return Verdict(f"feed {number}: {error}", np.inf)
        verdict = Verdict(f"feed {number}: {found.reason}" if found.reason else "", max(verdict.worst, found.worst))
        number += 1
    return verdict


def _like(value: np.ndarray, want: np.ndarray) -> np.ndarray:
    """In the source's type, of which the package holds the numbers; scalars are one element there."""
    shaped = value.reshape(()) if want.ndim == 0 and value.size == 1 else value
    return shaped.astype(want.dtype) if shaped.dtype == np.int32 and want.dtype.kind in "iub" else shaped

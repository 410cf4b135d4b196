"""The worker's side: one case through our compiler and LiteRT, compared with the suite and an oracle."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import ai_edge_litert.interpreter as litert
import numpy as np
import onnxruntime as ort
from compare import Verdict, compare
from oracles import oracle, part

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from convertkit.workers.process import Reply

warnings.simplefilter("ignore")
ort.set_default_logger_severity(4)

_NEWEST = 28
_Feed = dict[str, np.ndarray]


class Conformance:
    """Methods of the worker; each call runs in a fork, so that an aborting kernel ends only that call."""

    def case(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """Run one case; the reply says ``right``, ``wrong``, ``refused`` or ``error``, and why."""
        path = Path(params["folder"]) / f"{params['name']}.onnx"
        with np.load(path.with_suffix(".npz")) as stored:
            data = dict(stored)
        artifact = path.with_suffix(".tflite")
        try:
            model = canonicalize(load_model(path), max_opset=_NEWEST)
            compile_model(model, Options(input_layout="nchw")).write(artifact)
        except Unsupported as refusal:
            return Reply({"status": "refused", "reason": str(refusal).splitlines()[0]})
        verdict = _judged(path, artifact, data, params["rtol"], params["atol"])
        return Reply(
            {"status": "wrong" if verdict.reason else "right", "reason": verdict.reason, "worst": verdict.worst}
        )


def _judged(path: Path, artifact: Path, data: _Feed, rtol: float, atol: float) -> Verdict:
    feed, expected = part(data, "in"), part(data, "out")
    interpreter = litert.Interpreter(model_path=str(artifact), num_threads=1)
    interpreter.allocate_tensors()
    verdict = compare(run(interpreter, feed, list(expected)), expected, rtol, atol)
    trusted = oracle(path, feed, expected, rtol, atol)
    number = 0
    while not verdict.reason and trusted is not None and (more := part(data, f"feed{number}")):
        wanted = trusted(more)
        found = compare(run(interpreter, more, list(wanted)), wanted, rtol, atol)
        reason = f"feed {number}: {found.reason}" if found.reason else ""
        verdict = Verdict(reason, max(verdict.worst, found.worst))
        number += 1
    return verdict


def run(interpreter: litert.Interpreter, feed: _Feed, outputs: list[str]) -> _Feed:
    """Outputs by name through the file's signature; names and their order must be the source's."""
    (signature,) = interpreter.get_signature_list().values()
    if sorted(signature["inputs"]) != sorted(feed):
        return {f"inputs {sorted(signature['inputs'])}": np.zeros(0)}
    runner = interpreter.get_signature_runner()
    results = runner(**feed)
    order = [detail["name"] for detail in interpreter.get_output_details()]
    if order != outputs and sorted(order) == sorted(outputs):
        return {name: np.zeros(0) for name in order}
    return {
        name: results[name] for name in sorted(results, key=lambda name: outputs.index(name) if name in outputs else -1)
    }

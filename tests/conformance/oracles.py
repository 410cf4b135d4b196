"""What the outputs of a case are held against: the suite's own, and a runtime that gives the same."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from compare import compare
from onnx.reference import ReferenceEvaluator

_Feed = dict[str, np.ndarray]


def part(data: _Feed, prefix: str) -> _Feed:
    """The arrays that are stored below ``prefix:``, by name."""
    return {key.partition(":")[2]: value for key, value in data.items() if key.startswith(f"{prefix}:")}


def oracle(path: Path, feed: _Feed, expected: _Feed, rtol: float, atol: float):
    """ONNX Runtime, or ONNX's reference evaluator: the first that gives the suite's own outputs."""
    for make in (onnxruntime, _reference):
        try:
            run_model = make(path, list(expected))
            results = run_model(feed)
        except Exception as error:  # noqa: BLE001 - an oracle that does not take the model is no oracle
            print(f"{path.stem}: {make.__name__}: {error}", file=sys.stderr)
            continue
        if not compare(results, expected, rtol, atol).reason:
            return run_model
    return None


def onnxruntime(path: Path, outputs: list[str]):
    """A function from inputs to outputs that runs the file in ONNX Runtime."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feed: dict(zip(outputs, session.run(outputs, feed), strict=True))


def _reference(path: Path, outputs: list[str]):
    evaluator = ReferenceEvaluator(onnx.load(path))
    return lambda feed: dict(zip(outputs, map(np.asarray, evaluator.run(outputs, feed)), strict=True))

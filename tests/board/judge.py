"""What delivered files compute, beside what their framework says: shares nothing with the pipeline's own proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from tests.board.edges import Arrays, edges

Array = np.ndarray[Any, Any]
_FLOOR = 1e-5
"""Of the largest result on an input: what kernels of another order of sums may differ by."""
_OWN_ERRORS = 4
"""How many times the framework's own float32 error against its doubles."""


def delivered(target: str, folder: Path) -> Iterator[tuple[str, Arrays]]:
    """The outputs of a delivered file on every edge input, as a user runs it."""
    if target == "tflite":
        from ai_edge_litert.interpreter import Interpreter

        runner = Interpreter(str(folder / "model.tflite")).get_signature_runner()
        for name, x in edges().items():
            yield name, {output: np.array(value) for output, value in runner(x=x).items()}
        return
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if target == "tensorrt":  # its own parser is not here: the graph's letter
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(folder / "model.onnx"), options)
    names = [output.name for output in session.get_outputs()]
    for name, x in edges().items():
        yield name, dict(zip(names, session.run(names, {"x": x}), strict=True))


def wrong(got: Array, said: Array, truth: Array, floor: float = 0.0) -> str:
    """How ``got`` differs from what the framework said, "" where it does not.

    ``truth`` is the framework's result in doubles; ``floor`` is an absolute error that is allowed besides.
    """
    if got.shape != said.shape:
        return f"has the shape {got.shape}, not {said.shape}"
    if said.dtype.kind != "f":
        return "" if np.array_equal(got, said) else "another number"
    if not np.array_equal(np.isnan(got), np.isnan(said)) or not np.array_equal(got[_ends(said)], said[_ends(said)]):
        return "other infinities or NaN"
    if not np.array_equal(_ends(got), _ends(said)):
        return "an infinity that the framework has not"
    here = np.isfinite(said) & np.isfinite(truth)
    if not here.any():
        return ""
    scale, own = np.abs(said[here]).max(), np.abs(said[here] - truth[here]).max()
    off = np.abs(got[here].astype(np.float64) - truth[here]).max()
    allowed = _FLOOR * scale + _OWN_ERRORS * own + floor
    return f"off by {off:.2g} where {allowed:.2g} is allowed" if off > allowed else ""


def _ends(array: Array) -> Array:
    return np.isinf(array)

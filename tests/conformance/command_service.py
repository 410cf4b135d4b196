"""The worker's side: one case through the whole export, and what was delivered held against the suite and an oracle.

What an export imports is imported here once: each case runs in a fork of this process.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import openvino  # noqa: F401 - in the process that all cases are forks of
import oracles
import warm
from compare import SCALED, SIGNAL_DB, Verdict, compare, keeps_signal
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedByRuntime

import convertkit.api
import convertkit.converters.onnx.source
import convertkit.onnx.canonical
import convertkit.onnx.computed_constants
import convertkit.onnx.optimizer
import convertkit.steps.session
import convertkit.targets.onnxruntime.stage
import convertkit.targets.openvino.stage
import convertkit.targets.tflite.compile
import convertkit.targets.tflite.runner
import convertkit.targets.tflite.stage
from convertkit import plugins
from convertkit.errors import ConvertKitError
from convertkit.job import Result
from convertkit.workers.process import Reply


class Command:
    """Methods of the worker; each call runs in a fork, so that an aborting kernel ends only that call."""

    def __init__(self) -> None:
        self.templates = warm.Templates()

    def prepare(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """Start what the targets' workers are forks of."""
        for target in params["targets"]:
            self.templates.start(target)
        return Reply()

    def case(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """Export one case; the reply says for which target it is right, told, wrong or disputed, or why refused."""
        path = Path(params["folder"]) / f"{params['name']}.onnx"
        with np.load(path.with_suffix(".npz")) as stored:
            data = dict(stored)
        reasons, flags = [], dict(params["flags"])
        if "int8" in flags:
            flags["calib"] = _calibration(data)
        for target in params["targets"]:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    result = convertkit.export(path, target, output=Path(folder) / "out", **flags)
                    judge = _judge(params)
                    verdict = _judged(path, result, data, params, judge)
                    disputed = bool(verdict.reason) and _is_disputed(path, result, data, judge if flags else _SAME)
                except ConvertKitError as refusal:
                    reasons.append(f"{target}: {_brief(refusal)}")
                    continue
                finally:
                    shutil.rmtree(Path(folder) / "out.failed", ignore_errors=True)
            status = "disputed" if disputed else _status(verdict, result)
            reason = "; ".join([*reasons, *([f"{target}: {verdict.reason}"] if verdict.reason else [])])
            return Reply({"status": status, "reason": reason, "worst": verdict.worst, "target": target})
        return Reply({"status": "refused", "reason": "; ".join(reasons), "target": ""})


def _status(verdict: Verdict, result: Result) -> str:
    """``told`` where integers keep little of the signal, and the export's own report warns or has such a figure."""
    if not verdict.reason:
        return "right"
    quality = result.report["quality"]
    if not verdict.is_lossy or quality is None:
        return "wrong"
    figures = (float(quality[key]) for key in ("snr_db", "median_db", "low_db"))
    return "told" if quality["weak"] or min(figures) < SIGNAL_DB else "wrong"


def _calibration(data: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Everything that the case is fed with, along the first axis."""
    feeds = [
        feed for prefix in ("in", *(f"feed{number}" for number in range(3))) if (feed := oracles.part(data, prefix))
    ]
    return {name: np.concatenate([np.atleast_1d(feed[name]) for feed in feeds]) for name in feeds[0]} if feeds else {}


Judge = Callable[[dict[str, np.ndarray], dict[str, np.ndarray]], Verdict]
_SAME: Judge = partial(compare, rtol=SCALED, atol=0.0)


def _judge(params: Mapping[str, Any]) -> Judge:
    """When what was delivered is right, by how it was asked for."""
    if params["flags"]:
        return partial(keeps_signal, rounded=params["op"].startswith(("QLinear", "QuantizeLinear")))
    return partial(compare, rtol=params["rtol"], atol=params["atol"])


def _judged(
    path: Path, result: Result, data: Mapping[str, np.ndarray], params: Mapping[str, Any], judge: Judge
) -> Verdict:
    """The suite's own data, then more feeds against whatever gives the suite's own results for its data."""
    rtol, atol = params["rtol"], params["atol"]
    feed, expected = oracles.part(data, "in"), oracles.part(data, "out")
    with plugins.runner(result.artifact) as runner:
        verdict = judge(runner.run(feed), expected)
        oracle = oracles.oracle(path, feed, expected, rtol, atol)
        number = 0
        while not verdict.reason and oracle is not None and (more := oracles.part(data, f"feed{number}")):
            wanted = oracle(more)
            found = judge(runner.run(more), wanted)
            reason = f"feed {number}: {found.reason}" if found.reason else ""
            verdict = Verdict(reason, max(verdict.worst, found.worst), found.is_lossy)
            number += 1
    return verdict


def _is_disputed(path: Path, result: Result, data: Mapping[str, np.ndarray], judge: Judge) -> bool:
    """Whether ONNX Runtime itself differs from the suite on this case, and what was delivered agrees with it.

    It disputes nothing where it does not load the case.
    """
    feed, expected = oracles.part(data, "in"), oracles.part(data, "out")
    try:
        runs = oracles.onnxruntime(path, list(expected))
    except (Fail, InvalidGraph, NotImplementedByRuntime):
        return False
    found = runs(feed)
    return bool(judge(found, expected).reason) and not judge(result.run(feed), found).reason


def _brief(refusal: ConvertKitError) -> str:
    """The first line, without the folder that was written into."""
    sentence = re.sub(rf"{re.escape(tempfile.gettempdir())}/\S*/", "", str(refusal).splitlines()[0])
    return f"{type(refusal).__name__}: {sentence}"

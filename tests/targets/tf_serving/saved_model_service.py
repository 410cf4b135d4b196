"""The worker's side: cases of ONNX's node suite as SavedModels, run in TensorFlow and compared with the suite."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from compare import compare
from service import oracle, part

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.targets.tf_serving.file import Graph, read
from convertkit.targets.tf_serving.foretold import foretell
from convertkit.targets.tf_serving.saved_model import write
from convertkit.targets.tf_serving.service import Service
from convertkit.targets.tflite.compile import compile_model
from convertkit.targets.tflite.passes import Options
from convertkit.workers.process import Reply

_NEWEST = 28


class Conformance:
    """One method: a case as TFLite's compiler lays it out, as a SavedModel, in a session of its own."""

    def case(self, params: dict[str, Any], arrays: dict[str, np.ndarray]) -> Reply:
        """``right``, ``wrong``, ``refused`` or ``surprise``, why, and the operators of the ``.tflite`` file.

        A surprise is a refusal that ``convertkit check`` does not foretell.
        """
        path = Path(params["folder"]) / f"{params['name']}.onnx"
        with np.load(path.with_suffix(".npz")) as stored:
            data = dict(stored)
        feed, expected = part(data, "in"), part(data, "out")
        folder, codes, foretold = path.with_suffix(".saved_model"), list[str](), ""
        try:
            model = canonicalize(load_model(path), max_opset=_NEWEST)
            compile_model(model, Options(input_layout="nchw")).write(path.with_suffix(".tflite"))
            graphs = read(path.with_suffix(".tflite").read_bytes())
            codes = sorted({each.code for graph in graphs for each in graph.operators})
            foretold = _foretold(graphs)
            write(tf, graphs, folder, (list(feed), list(expected)))
        except Unsupported as refusal:
            reason = str(refusal).splitlines()[0]
            surprise = bool(codes) and foretold != reason
            return Reply({"status": "surprise" if surprise else "refused", "reason": reason, "codes": codes})
        reason = f"foretold: {foretold}" if foretold else _reason(path, folder, data, params)
        shutil.rmtree(folder)
        return Reply({"status": "wrong" if reason else "right", "reason": reason, "codes": codes})


def _foretold(graphs: Sequence[Graph]) -> str:
    """What ``convertkit check`` says without TensorFlow; empty where it finds nothing."""
    try:
        foretell(graphs)
    except Unsupported as refusal:
        return str(refusal).splitlines()[0]
    return ""


def _reason(path: Path, folder: Path, data: dict[str, np.ndarray], params: dict[str, Any]) -> str:
    """Why the SavedModel is not right, empty where it is: on the suite's data, then on more with an oracle."""
    rtol, atol = params["rtol"], params["atol"]
    feed, expected = part(data, "in"), part(data, "out")
    served = Service()
    served.load({"folder": str(folder)}, {})
    reason = compare(_ordered(served, feed, expected), expected, rtol, atol).reason
    trusted = oracle(path, feed, expected, rtol, atol)
    number = 0
    while not reason and trusted is not None and (more := part(data, f"feed{number}")):
        reason = compare(_ordered(served, more, expected), trusted(more), rtol, atol).reason
        number += 1
    return reason


def _ordered(served: Service, feed: dict[str, np.ndarray], names: Iterable[str]) -> dict[str, np.ndarray]:
    """A signature has names and no order."""
    found = served.run({}, feed).arrays
    return {name: found[name] for name in names}

"""Run the delivered ``model.onnx`` as GenAI does: one sequence at a time, and a mask of all places so far."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np
import onnxruntime as ort

from convertkit.artifact import Artifact, TensorSpec
from convertkit.onnx.runner import OnnxRunner
from convertkit.stage import Feed, Outputs
from convertkit.targets.genai.attention import MASK


class GenaiRunner:
    """Executes the file in ONNX Runtime, which GenAI uses, too; what GenAI adds to it the stage has compared."""

    runtime = f"ONNX Runtime {ort.__version__}"

    def __init__(self, artifact: Artifact) -> None:
        mask = TensorSpec(MASK, (1, "total"), "int64")
        inner = replace(artifact, format="onnx", inputs=(*artifact.inputs, mask))
        self._inner = OnnxRunner(inner, optimised=True)
        self._outputs = [spec.name for spec in artifact.outputs]

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inner.__exit__(kind, error, trace)

    def run(self, feed: Feed) -> Outputs:
        """All outputs, the sequences of a batch one after the other."""
        rows = [self._inner.run(self._row(feed, place)) for place in range(len(feed["input_ids"]))]
        return {name: np.concatenate([row[name] for row in rows]) for name in self._outputs}

    def _row(self, feed: Feed, place: int) -> Feed:
        row = {name: value[place : place + 1] for name, value in feed.items()}
        old = row["past_key_values.0.key"].shape[2]
        return {**row, MASK: np.ones((1, old + row["input_ids"].shape[1]), np.int64)}

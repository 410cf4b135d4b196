"""Compile ONNX text or protobufs and run the result beside ONNX Runtime, for the tests of this folder."""

from __future__ import annotations

import collections
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import parser

from convertkit.artifact import Artifact
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.onnx.twin import Twin
from convertkit.parity.truth import explanation
from convertkit.targets.tflite.compile import Compiled, compile_model
from convertkit.targets.tflite.passes import Options
from convertkit.targets.tflite.runner import TfliteRunner
from tests.onnx_models import uncut

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A compiled model with the canonical ONNX that it comes from."""

    proto: onnx.ModelProto
    compiled: Compiled

    @property
    def operators(self) -> collections.Counter[str]:
        """How often each TFLite operator is there."""
        return collections.Counter(op.code for graph in self.compiled.program.subgraphs for op in graph.operations)

    def both(self, feeds: list[Arrays]) -> list[tuple[Arrays, Arrays]]:
        """Outputs of ONNX Runtime and LiteRT, feed after feed through one interpreter."""
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = ort.InferenceSession(uncut(self.proto), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.tflite"
            self.compiled.write(path)
            artifact = Artifact(path, "tflite", self.compiled.inputs, self.compiled.outputs, "")
            with TfliteRunner(artifact) as runner:
                results = [runner.run(feed) for feed in feeds]
        expected = [dict(zip(names, session.run(names, feed), strict=True)) for feed in feeds]
        return list(zip(expected, results, strict=True))

    def agree(self, *feeds: Arrays, tolerance: float = 1e-5, by_truth: bool = False) -> None:
        """Every output of every feed has the source's name, order, shape, dtype and numbers.

        ``by_truth`` holds what differs by more against the float64 twin, as an export does: random graphs have
        variances of nothing and differences of equals, on which ONNX Runtime may be the one that is wrong.
        """
        for feed, (expected, result) in zip(feeds, self.both(list(feeds)), strict=True):
            assert list(result) == list(expected)
            for name, want in expected.items():
                have = result[name]
                assert have.shape == want.shape
                assert have.dtype == want.dtype
                scale = max(float(np.abs(want).max(initial=0)), 1e-6) if want.dtype.kind == "f" else 1.0
                if by_truth and want.dtype.kind == "f" and np.abs(have - want).max(initial=0) > tolerance * scale:
                    assert self.explained(feed, name, want, have, tolerance), (name, want, have)
                else:
                    np.testing.assert_allclose(have, want, rtol=0, atol=tolerance * scale)

    def explained(self, feed: Arrays, name: str, want: np.ndarray, have: np.ndarray, tolerance: float) -> str:
        """How roundings of float32 explain the difference of one output; empty where they do not."""
        with tempfile.TemporaryDirectory() as folder:
            artifact = save_model(ir.from_proto(self.proto), Path(folder) / "twin.onnx", "")
            with Twin(artifact) as twin:
                truth = twin.run(feed)
        return explanation(want, have, truth.values[name], truth.spread[name], tolerance)


def compiled(model: str | onnx.ModelProto, options: Options | None = None) -> Case:
    """Compile ONNX in its text form, or as a protobuf."""
    proto = parser.parse_model(model) if isinstance(model, str) else model
    canonical = canonicalize(ir.from_proto(proto))
    reference = ir.to_proto(canonical)
    return Case(reference, compile_model(ir.from_proto(reference), options or Options()))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Seeded normal float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)

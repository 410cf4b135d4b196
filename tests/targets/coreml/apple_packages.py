"""Compile ONNX into packages in a worker, and run them beside ONNX Runtime, for the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import parser

from convertkit.artifact import Artifact
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.targets.coreml.options import TARGETS, Choices
from convertkit.targets.coreml.package.program import Program, read_package
from convertkit.targets.coreml.runner import CoreMLRunner
from convertkit.targets.coreml.stage import CompileCoreML
from convertkit.workers.process import Worker

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Compiled:
    """A package with the canonical ONNX that it comes from."""

    source: Artifact
    artifact: Artifact
    notes: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        """What the package holds."""
        return read_package(self.artifact.path)

    @property
    def operations(self) -> list[str]:
        """The operations in order, without constants."""
        return [each.type for each in self.program.block.operations if each.type != "const"]

    def both(self, feed: Arrays) -> tuple[Arrays, Arrays]:
        """Outputs of ONNX Runtime and of the evaluator."""
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = ort.InferenceSession(self.source.path, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        with CoreMLRunner(self.artifact) as runner:
            found = runner.run(feed)
        return dict(zip(names, session.run(names, feed), strict=True)), found

    def agree(self, feed: Arrays, tolerance: float = 1e-5) -> None:
        """Every output has the source's name, shape and numbers; integers exactly."""
        expected, found = self.both(feed)
        assert list(found) == list(expected)
        for name, want in expected.items():
            assert found[name].shape == want.shape, name
            if want.dtype.kind in "iub":
                assert np.array_equal(found[name], want), name
            else:
                largest = np.abs(want.astype(np.float64)).max(initial=1e-30)
                error = np.abs(found[name].astype(np.float64) - want.astype(np.float64)).max(initial=0)
                assert error <= tolerance * largest, (name, error, largest)


def compile_text(
    worker: Worker, text: str, folder: Path, target: str | Choices = "iOS17", opset: int = 21, **weights: np.ndarray
) -> Compiled:
    """From ONNX's text form; ``weights`` become initializers."""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')
    for name, array in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return compile_proto(worker, model, folder, target)


def compile_proto(worker: Worker, model: onnx.ModelProto, folder: Path, target: str | Choices = "iOS17") -> Compiled:
    """From a protobuf."""
    canonical = canonicalize(ir.from_proto(model))
    folder.mkdir(exist_ok=True)
    source = save_model(canonical, folder / "model.onnx", "test")
    out = folder / "out"
    out.mkdir()
    choices = Choices(TARGETS[target]) if isinstance(target, str) else target
    stage = CompileCoreML(choices, worker=worker)
    artifact = stage.run(source, out)
    return Compiled(source, artifact, tuple((stage.diagnosis or {}).get("notes", ())))


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """Seeded float32 numbers of both signs."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Row:
    """A graph's body, its inputs and output, constants, and the operations that it becomes, as far as these matter."""

    name: str
    inputs: str
    outputs: str
    body: str
    weights: Arrays = field(default_factory=dict)
    feed: Arrays = field(default_factory=dict)
    expect: tuple[str, ...] = ()
    target: str = "iOS17"
    tolerance: float = 1e-5
    opset: int = 21

    def check(self, worker: Worker, folder: Path) -> None:
        """The package has the operations, and numbers as ONNX Runtime has them."""
        text = f"test ({self.inputs}) => ({self.outputs}) {{ {self.body} }}"
        made = compile_text(worker, text, folder, self.target, self.opset, **self.weights)
        if self.expect:
            assert tuple(made.operations)[: len(self.expect)] == self.expect
        feed = self.feed or {spec.name: numbers(*spec.shape) for spec in made.source.inputs}
        made.agree(feed, self.tolerance)

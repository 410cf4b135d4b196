"""Quantizing a model in a test: the stage, its artifact, and both sides' outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from convertkit.artifact import Array, Artifact
from convertkit.data.feeds import load_feeds
from convertkit.onnx.load import load_model
from convertkit.onnx.runner import OnnxRunner
from convertkit.onnx.save import save_model
from convertkit.progress import Silent
from convertkit.quantization.integers import PASSES, Integers
from convertkit.quantization.stage import QuantizeIntegers, build
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from convertkit.targets.onnxruntime.profile import profile as onnxruntime_profile
from convertkit.targets.openvino.profile import profile as openvino_profile
from convertkit.targets.qnn.profile import profile as qnn_profile
from convertkit.targets.tensorrt.profile import profile as tensorrt_profile
from convertkit.targets.tflite.profile import profile as tflite_profile
from tests.quantization.models import artifact_of


@dataclass
class FakeTarget:
    name: str
    profile: Callable[[ExportOptions], object]


TARGETS = {
    "openvino": FakeTarget("openvino", partial(openvino_profile, byte_sums=False)),
    "openvino, any processor": FakeTarget("openvino", partial(openvino_profile, byte_sums=True)),
    "tflite": FakeTarget("tflite", tflite_profile),
    "onnxruntime": FakeTarget("onnxruntime", onnxruntime_profile),
    "qnn": FakeTarget("qnn", qnn_profile),
    "tensorrt": FakeTarget("tensorrt", tensorrt_profile),
}


@dataclass
class Quantized:
    before: Artifact
    after: Artifact
    stage: object

    @property
    def graph(self) -> onnx.GraphProto:
        return onnx.load(self.after.path).graph

    def operators(self) -> list[str]:
        return [node.op_type for node in self.graph.node if not node.op_type.endswith("tizeLinear")]

    def constants(self) -> dict[str, Array]:
        return {each.name: onnx.numpy_helper.to_array(each) for each in self.graph.initializer}

    def pairs(self) -> dict[str, tuple[float, int]]:
        """Scale and zero point of every quantized activation, by the name of the float value."""
        constants = self.constants()
        return {
            node.input[0]: (float(constants[node.input[1]]), int(constants[node.input[2]]))
            for node in self.graph.node
            if node.op_type == "QuantizeLinear"
        }

    def outputs(self, data: Array) -> tuple[Array, Array]:
        """First output before and after, over single samples."""
        name = self.before.inputs[0].name
        with OnnxRunner(self.before) as one, OnnxRunner(self.after) as other:
            both = [(one.run({name: x[None]}), other.run({name: x[None]})) for x in data]
        first = self.before.outputs[0].name
        return np.concatenate([a[first] for a, _ in both]), np.concatenate([b[first] for _, b in both])

    def snr_db(self, data: Array) -> float:
        a, b = self.outputs(data)
        return float(10 * np.log10(np.square(a).sum() / max(np.square(a - b).sum(), 1e-30)))


@pytest.fixture
def quantized(tmp_path: Path) -> Callable[..., Quantized]:
    def run(
        model: onnx.ModelProto | Artifact,
        data: Array | None,
        precision: str = "int8",
        target: str = "tflite",
        *,
        without_costs: bool = False,
        **options: object,
    ) -> Quantized:
        before = model if isinstance(model, Artifact) else artifact_of(model, tmp_path)
        feeds = None if data is None else load_feeds(data, before.inputs)
        chosen = replace(ExportOptions(source="x", precision=precision), **options)  # type: ignore[arg-type]
        stage = build(BuildContext(chosen, TARGETS[target], calibration=feeds))  # type: ignore[arg-type]
        if without_costs:
            assert isinstance(stage, QuantizeIntegers)
            stage.profile = replace(stage.profile, costs={}, least_gain=0.0)
        return Quantized(before, stage.run(before, tmp_path), stage)

    return run


@pytest.fixture
def without_passes(tmp_path: Path) -> Callable[..., Quantized]:
    """int8 for TFLite, whatever it costs, with some passes left out."""

    def run(model: onnx.ModelProto, data: Array, *left_out: str) -> Quantized:
        before = artifact_of(model, tmp_path)
        options = ExportOptions(source="x", precision="int8")
        kept = [name for name in PASSES if name not in left_out]
        feeds = load_feeds(data, before.inputs)
        profile = replace(tflite_profile(options), costs={})
        worker = Integers(load_model(before.path), profile, options, feeds, {}, Silent(), kept)
        return Quantized(before, save_model(worker.quantized(), tmp_path / "without.onnx", "test"), None)

    return run

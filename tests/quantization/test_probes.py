"""Which tensors are read, which follow from others, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

from convertkit.artifact import Array
from convertkit.onnx.load import load_model
from convertkit.quantization.calibrate.histogram import merge_samples
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.probes import instrumented
from convertkit.quantization.graph.replay import open_session, run_all
from tests.quantization.models import artifact_of, images, model_of

CONSTANTS: Mapping[str, Array] = {
    "w": np.random.default_rng(0).normal(0, 0.5, (16, 3, 3, 3)).astype("f4"),
    "v": np.random.default_rng(1).normal(0, 0.5, (16, 16, 1, 1)).astype("f4"),
    "third": np.array(-0.3, "f4"),
    "half": np.array(0.5, "f4"),
    "one": np.array([[1.0]], "f4"),
    "flat": np.array([1, 16, -1], "i8"),
}
FEEDS = [{"x": image[None].repeat(6, 2).repeat(6, 3)} for image in images(3)]
FOLLOWS: Mapping[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "Sigmoid": (("conv",), {}),
    "Tanh": (("conv",), {}),
    "Relu": (("conv",), {}),
    "Neg": (("conv",), {}),
    "LeakyRelu": (("conv",), {"alpha": 0.2}),
    "HardSigmoid": (("conv",), {}),
    "Add": (("one", "conv"), {}),
    "Sub": (("conv", "one"), {}),
    "Mul": (("conv", "third"), {}),
    "Div": (("conv", "third"), {}),
}
STANDS_ALONE: Mapping[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "LeakyRelu": (("conv",), {"alpha": -0.2}),
    "HardSigmoid": (("conv",), {"alpha": -0.2}),
    "Sub": (("one", "conv"), {}),
    "Div": (("one", "conv"), {}),
    "Add": (("conv", "conv"), {}),
    "Abs": (("conv",), {}),
    "Softmax": (("conv",), {"axis": 1}),
    "GlobalAveragePool": (("conv",), {}),
}


def model(folder: Path, *nodes: onnx.NodeProto) -> ir.Model:
    """A convolution with the nodes behind it; the last one makes the output ``y``."""
    conv = helper.make_node("Conv", ["x", "w"], ["conv"], "conv")
    proto = model_of([conv, *nodes], dict(CONSTANTS), {"x": [1, 3, 72, 72]}, {"y": None})
    return load_model(artifact_of(proto, folder).path)


def truth(found: ir.Model, name: str) -> Array:
    """All values of one tensor over all feeds."""
    copy = found.clone()
    copy.graph.outputs[:] = [value for node in copy.graph for value in node.outputs if value.name == name]
    return np.stack([answer[name] for answer in run_all(open_session(copy), [name], FEEDS, {})])


def check(found: ir.Model, *names: str) -> None:
    """Extremes as they are, and values that are distributed like all of them."""
    statistics = observe(found, names, FEEDS, {})
    for name in names:
        values, seen = truth(found, name), statistics[name]
        assert seen.samples == len(FEEDS)
        assert seen.high == pytest.approx(float(values.max()), rel=1e-6)
        assert min(seen.low, 0.0) == pytest.approx(min(float(values.min()), 0.0), rel=1e-6)
        mean = float(seen.histogram.centres @ seen.histogram.counts) / seen.histogram.total
        assert mean == pytest.approx(float(values.mean()), abs=0.05 * float(values.std()) + 1e-3)


@pytest.mark.parametrize("op", FOLLOWS)
def test_what_a_monotone_operator_makes_is_not_read(tmp_path: Path, op: str) -> None:
    inputs, attributes = FOLLOWS[op]
    found = model(tmp_path, helper.make_node(op, inputs, ["y"], "y", **attributes))
    copy, probes = instrumented(found, ["conv", "y"])
    made = {str(value.name): node for node in copy.graph for value in node.outputs}
    assert made[probes["y"].high].op_type == op
    check(found, "conv", "y")


@pytest.mark.parametrize("op", STANDS_ALONE)
def test_other_operators_are_measured(tmp_path: Path, op: str) -> None:
    inputs, attributes = STANDS_ALONE[op]
    found = model(tmp_path, helper.make_node(op, inputs, ["y"], "y", **attributes))
    copy, probes = instrumented(found, ["conv", "y"])
    made = {str(value.name): node for node in copy.graph for value in node.outputs}
    assert made[probes["y"].high].op_type == "ReduceMax"
    if op != "Div":  # close to a pole no part of the values stands for all
        check(found, "conv", "y")


def test_the_least_of_a_source_that_was_not_looked_for_is_not_used(tmp_path: Path) -> None:
    above = helper.make_node("Clip", ["conv", "half"], ["clip"], "clip")
    found = model(tmp_path, above, helper.make_node("Neg", ["clip"], ["y"], "y"))
    _, probes = instrumented(found, ["clip", "y"])
    assert probes["clip"].low is None
    assert probes["y"].low is not None
    check(found, "clip", "y")


def test_moved_numbers_are_measured_once(tmp_path: Path) -> None:
    reshape = helper.make_node("Reshape", ["conv", "flat"], ["moved"], "moved")
    found = model(tmp_path, reshape, helper.make_node("Transpose", ["moved"], ["y"], "y", perm=[0, 2, 1]))
    _, probes = instrumented(found, ["conv", "moved", "y"])
    assert len(set(probes.values())) == 1
    check(found, "conv", "moved", "y")
    statistics = observe(found, ["conv", "y"], FEEDS, {})
    assert statistics["y"].samples == len(FEEDS)
    total = statistics["y"].histogram.total
    merge_samples(statistics, observe(found, ["conv", "y"], FEEDS, {}))
    assert statistics["conv"].histogram.total == statistics["y"].histogram.total == 2 * total


def test_every_tensor_is_measured_before_the_next_ones_are_made(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["conv"], ["m0"], "m0")]
    for index in range(6):
        nodes.append(helper.make_node("Conv", [f"m{index}", "v"], [f"c{index}"], f"c{index}"))
        nodes.append(helper.make_node("Relu", [f"c{index}"], ["y" if index == 5 else f"m{index + 1}"], f"r{index}"))
    names = [f"m{index}" for index in range(6)]
    copy, probes = instrumented(model(tmp_path, *nodes), names)
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "trace")
    session = ort.InferenceSession(ir.to_proto(copy).SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, FEEDS[0])
    events = json.loads(Path(session.end_profiling()).read_text())
    order = [event["name"] for event in events if event["name"].endswith("_kernel_time")]
    for index, name in enumerate(names[:-1]):
        high = order.index(f"{probes[name].high}_kernel_time")
        # A convolution is called after its Relu where both are fused.
        later = next(place for place, each in enumerate(order) if each.startswith((f"c{index}_", f"m{index + 1}_")))
        assert high < later, order

"""What calibration sees of a tensor: exact extremes, and an even part of its values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from convertkit.onnx.load import load_model
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.ranges import affine, noise
from convertkit.quantization.graph.replay import open_session, run_all
from tests.quantization.models import artifact_of, images, model_of

FEEDS = [{"x": image[None].repeat(6, 2).repeat(6, 3)} for image in images(5)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory):
    """Statistics and all values of the tensors of a small network, by name."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.normal(0, 0.5, (24, 3, 3, 3)).astype("f4"), "low": np.float32(0), "high": np.float32(6)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"], "conv"),
        helper.make_node("Relu", ["conv"], ["relu"], "relu"),
        helper.make_node("Clip", ["conv", "low", "high"], ["clip"], "clip"),
        helper.make_node("Add", ["relu", "clip"], ["sum"], "sum"),
    ]
    proto = model_of(nodes, constants, {"x": [1, 3, 72, 72]}, {"sum": [1, 24, 70, 70]})
    folder: Path = tmp_path_factory.mktemp("observe")
    model = load_model(artifact_of(proto, folder).path)
    names = ["conv", "relu", "clip", "sum"]
    statistics = observe(model, names, FEEDS, {})
    made = {str(value.name): value for node in model.graph for value in node.outputs}
    model.graph.outputs.extend(made[name] for name in names[:3])
    answers = [*run_all(open_session(model), names, FEEDS, {})]
    return {name: (statistics[name], np.stack([answer[name] for answer in answers])) for name in names}


@pytest.mark.parametrize("name", ["conv", "relu", "clip", "sum"])
def test_extremes_are_exact(seen, name: str) -> None:
    statistics, values = seen[name]
    assert statistics.samples == len(FEEDS)
    assert statistics.high == pytest.approx(float(values.max()), rel=1e-6)
    assert min(statistics.low, 0.0) == pytest.approx(min(float(values.min()), 0.0), rel=1e-6)


@pytest.mark.parametrize("name", ["conv", "relu", "clip", "sum"])
def test_a_part_of_the_values_stands_for_all(seen, name: str) -> None:
    statistics, values = seen[name]
    assert 1000 * len(FEEDS) < statistics.histogram.total < 5000 * len(FEEDS)
    assert statistics.histogram.zeros / statistics.histogram.total == pytest.approx((values == 0).mean(), abs=0.03)
    clipped = affine((0.0, 0.4 * float(values.max())), "int8", False)
    measured = float(np.square(values - clipped.round_trip(values)).mean())
    assert noise(statistics.histogram, clipped) == pytest.approx(measured, rel=0.15)


def test_values_of_many_samples_are_thinned_and_weigh_the_same(tmp_path: Path) -> None:
    proto = model_of([helper.make_node("Neg", ["x"], ["y"], "y")], {}, {"x": [1, 3, 72, 72]}, {"y": [1, 3, 72, 72]})
    model = load_model(artifact_of(proto, tmp_path).path)
    count = 300
    feeds = [{"x": np.full((1, 3, 72, 72), 1.0 if index < count // 2 else 3.0, "f4")} for index in range(count)]
    statistics = observe(model, ["x"], feeds, {})["x"]
    once = observe(model, ["x"], feeds[:1], {})["x"]
    assert statistics.samples == count
    assert statistics.histogram.total == count * once.histogram.total
    shares = statistics.histogram.counts[np.flatnonzero(statistics.histogram.counts)]
    np.testing.assert_array_equal(shares, [statistics.histogram.total // 2] * 2)


def test_nothing_to_measure(tmp_path: Path) -> None:
    proto = model_of([helper.make_node("Neg", ["x"], ["y"], "y")], {}, {"x": [1, 3, 72, 72]}, {"y": [1, 3, 72, 72]})
    assert observe(load_model(artifact_of(proto, tmp_path).path), [], FEEDS, {}) == {}

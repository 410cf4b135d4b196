"""Targets that measure the same values of the same graph on the same samples do so once, and make the same bytes."""

import numpy as np
import pytest

import convertkit
from convertkit.quantization.calibrate.histogram import Histogram, Statistics
from convertkit.quantization.calibrate.shared import Calibrate, Collected
from convertkit.recipe import ExportOptions
from tests.looking.nets import image_net


@pytest.fixture
def place(tmp_path):
    (tmp_path / "net.onnx").write_bytes(image_net().SerializeToString())
    draw = np.random.default_rng(0).standard_normal
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=draw((40, 3, 8, 8)).astype(np.float32))
    return tmp_path


@pytest.fixture
def measured(monkeypatch):
    """How many samples were measured each time."""
    seen, original = [], Calibrate.measured

    def noting(self):
        seen.append(len(self.feeds))
        return original(self)

    monkeypatch.setattr(Calibrate, "measured", noting)
    return seen


def export(place, output, *targets, data="a", **how):
    options = ExportOptions(
        str(place / "net.onnx"), targets, str(place / output), "int8", calib=str(place / f"{data}.npz"), **how
    )
    return convertkit.export_all(options)


def test_two_targets_measure_once_and_make_what_each_makes_alone(place, measured):
    both = export(place, "both", "onnxruntime", "tflite")
    assert measured == [30, 10], "one part to measure ranges, one to choose by"
    for made in both:
        (alone,) = export(place, f"alone-{made.target}", made.target)
        assert alone.artifact.path.read_bytes() == made.artifact.path.read_bytes()
    assert measured == [30, 10] * 3


def test_a_cache_keeps_what_was_measured(place, measured):
    export(place, "first", "onnxruntime", cache=str(place / "cache"))
    export(place, "other", "onnxruntime", cache=str(place / "cache"), calib_method="minmax")
    assert measured == [30, 10], "how ranges are chosen of what was measured is another thing"
    export(place, "more", "onnxruntime", cache=str(place / "cache"), data="b")
    assert measured == [30, 10] * 2


def test_a_graph_without_anything_to_measure():
    assert Collected.of({}).statistics(()) == {}


def test_statistics_come_back_as_they_were():
    one, two = Statistics(), Statistics()
    for number, each in enumerate((one, two), 1):
        for sample in range(3):
            each.add(-number / 3, sample / 7, np.linspace(-number / 3, sample / 7, 50, dtype=np.float32))
    found = {"a": one, "b": two, "c": one}
    collected = Collected.of(found)
    again = collected.statistics(tuple(found))
    assert again["a"] is again["c"], "tensors with the same numbers take further samples once"
    for name, each in found.items():
        assert (each.low, each.high, each.mean_low, each.mean_high) == (
            again[name].low, again[name].high, again[name].mean_low, again[name].mean_high,
        )  # fmt: skip
        ours, theirs = each.histogram, again[name].histogram
        assert (ours.exponent, ours.zeros, ours.counts.tolist()) == (
            theirs.exponent,
            theirs.zeros,
            theirs.counts.tolist(),
        )
    again["b"].merge(Statistics(-9.0, 9.0, -9.0, 9.0, 1, Histogram()))
    assert collected.statistics(tuple(found))["b"].low == two.low, "whoever asks gets new ones"

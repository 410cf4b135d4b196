"""The headline figure: on samples that no range was measured on and on others, and on enough of them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import convertkit
from convertkit.data.held_out import held_out_positions
from convertkit.findings.quality import beyond_ranges, judged, unseen
from convertkit.findings.values import Quality
from convertkit.formatting import quality_text


class Samples(list):
    """Feeds with the attributes of loaded data."""

    description, sha256, warnings = "samples", "", ()


def feeds(count: int) -> Samples:
    return Samples({"x": np.float32([[index]]), "label": np.int64([index])} for index in range(count))


@pytest.mark.parametrize(
    ("calibration", "evaluation", "origin", "count"),
    [
        (200, None, "held-out", 50),
        (40, None, "held-out", 10),
        (7, None, "calibration", 7),
        (200, 1000, "evaluation", 50),
        (None, 20, "evaluation", 20),
    ],
)
def test_the_samples_that_are_judged_on(calibration, evaluation, origin, count) -> None:
    given = [None if size is None else feeds(size) for size in (calibration, evaluation)]
    found = unseen(*given)
    assert found is not None
    chosen = list(found[1])
    assert (found[0], len(chosen)) == (origin, count)
    assert all(set(feed) == {"x"} for feed in chosen), "labels are not input"
    if origin == "held-out":
        assert {int(feed["x"][0, 0]) for feed in chosen} <= set(held_out_positions(calibration))


def test_without_data_there_is_none() -> None:
    assert unseen(None, None) is None
    assert judged(None, None) == ()


@pytest.mark.parametrize(
    ("calibration", "evaluation", "parts"),
    [
        (40, None, {"held-out": 10, "calibration": 10}),
        (400, None, {"held-out": 50, "calibration": 50}),
        (7, None, {"calibration": 7}),
        (40, 30, {"evaluation": 30}),
    ],
)
def test_calibration_data_judges_by_both_kinds_of_its_samples(calibration, evaluation, parts) -> None:
    given = [None if size is None else feeds(size) for size in (calibration, evaluation)]
    found = {origin: [int(feed["x"][0, 0]) for feed in part] for origin, part in judged(*given)}
    assert {origin: len(part) for origin, part in found.items()} == parts
    if len(found) > 1:
        assert set(found["held-out"]) <= set(held_out_positions(calibration))
        assert not set(found["calibration"]) & set(held_out_positions(calibration))


def test_weights_tuned_on_a_few_samples_are_not_judged_by_those(tmp_path) -> None:
    """A layer of 90 × 4 that 25 samples were held out for: those keep 3 dB more than any others."""
    rng, path = np.random.default_rng(2), tmp_path / "dense.onnx"
    weights = ", ".join(f"{value:.6f}" for value in rng.standard_normal(360))
    text = f"""<ir_version: 8, opset_import: ["" : 18]> g (float[2,90] x) => (float[2,4] y)
        <float[90,4] w = {{{weights}}}> {{ y = MatMul(x, w) }}"""
    onnx.save(onnx.parser.parse_model(text), path)

    def drawn(count: int) -> np.ndarray:
        return (rng.standard_normal((count, 2, 90)) * rng.uniform(0.5, 1.5, (count, 2, 1))).astype(np.float32)

    np.savez(tmp_path / "calib.npz", x=drawn(100).reshape(200, 90))
    how = {"int8": True, "full_integer": True, "calib": tmp_path / "calib.npz"}
    made = convertkit.export(path, "onnxruntime", output=tmp_path / "out", **how)
    kernel, source = (ort.InferenceSession(str(each)) for each in (made.artifact.path, path))
    pairs = [(source.run(None, {"x": x})[0], kernel.run(None, {"x": x})[0]) for x in drawn(400)]
    noise = sum(float(np.square(a - b).sum()) for a, b in pairs)
    unseen_db = 10 * np.log10(sum(float(np.square(a).sum()) for a, _ in pairs) / noise)
    assert made.report["quality"]["snr_db"] < unseen_db + 1


@pytest.mark.parametrize(
    ("diagnosis", "changes", "told"),
    [
        ({"requested": "int8"}, {}, True),
        ({"requested": "int16x8"}, {}, True),
        ({"requested": "int8"}, {"snr_db": 25.5}, False),
        ({"requested": "int8"}, {"origin": "evaluation"}, False),
        ({"requested": "w8"}, {}, False),
        ({"requested": "int16x8", "effective": "mixed"}, {}, True),
        ({"requested": "int16x8", "effective": "float32"}, {}, False),
        ({"requested": "int8", "recovered": {}}, {}, False),
        ({"requested": "int8", "held_out": {"snr_db": 25.0, "seen": True}}, {}, False),
        ({"requested": "int8", "held_out": None}, {}, False),
    ],
)
def test_what_lies_beyond_the_ranges_is_told(diagnosis, changes, told) -> None:
    notes = beyond_ranges(quality(**changes), [{"held_out": {"snr_db": 25.0, "seen": False}, **diagnosis}])
    assert bool(notes) == told
    assert all("kept 25.0 dB before the ranges took them in" in note for note in notes)


def quality(**changes) -> Quality:
    return Quality(**{"samples": 50, "origin": "held-out", "output": "y", "snr_db": 30.0, "median_db": 31.0,
                      "low_db": 25.0, "agreement": 1.0, **changes})  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "weak"),
    [
        ({}, False),
        ({"snr_db": 15.2}, True),
        ({"median_db": 15.2}, True),
        ({"low_db": 10.2}, False),
        ({"low_db": 9.8}, True),
        ({"agreement": 0.98}, False),
        ({"agreement": 0.92}, True),
        ({"agreement": 0.98, "samples": 1000}, True),
        ({"agreement": None}, False),
    ],
)
def test_what_is_below_the_warning_is_not_good(changes, weak) -> None:
    assert quality(**changes).weak == weak


def test_the_figure_of_a_real_export(digits, tmp_path) -> None:
    """200 samples: 50 are held out, and the figure is theirs or that of as many others."""
    made = convertkit.export(digits.model, "tflite", int8=True, calib=digits.calib, output=tmp_path / "out")
    found = made.report["quality"]
    assert (found["samples"], found["agreement"]) == (50, 1.0)
    assert 40 < found["low_db"] <= found["snr_db"] < 60
    assert f"on {found['where']}" in quality_text(found)
    assert found["where"] in (tmp_path / "out" / "report.html").read_text()


def test_state_is_carried_over_the_samples(tmp_path) -> None:
    """A running sum: each answer depends on all before it."""
    from onnx import TensorProto, helper

    names = {"x": "state.h", "y": "next_state.h"}
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("x", "state.h")]
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3]) for name in ("y", "next_state.h")]
    nodes = [
        helper.make_node("Add", ["x", names["x"]], ["y"]),
        helper.make_node("Identity", ["y"], [names["y"]]),
    ]
    graph = helper.make_graph(nodes, "sum", info, outs)
    path = tmp_path / "sum.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    np.savez(tmp_path / "initial_state.npz", **{"state.h": np.zeros((1, 3), np.float32)})
    from convertkit.artifact import Artifact, TensorSpec
    from convertkit.findings.quality import measure
    from convertkit.onnx.runner import OnnxRunner

    specs = [tuple(TensorSpec(n, (1, 3), "float32") for n in side) for side in (("x", "state.h"), ("y", names["y"]))]
    artifact = Artifact(path, "onnx", *specs, "", initial_state=tmp_path / "initial_state.npz")
    samples = [{"x": np.full((1, 3), index, np.float32)} for index in range(1, 5)]
    found = measure([("held-out", samples)], (artifact, OnnxRunner(artifact)), (artifact, OnnxRunner(artifact)))
    assert (found.samples, found.snr_db) == (4, float("inf"))

"""The headline figure: on samples that no range was measured on, and on enough of them."""

from __future__ import annotations

import numpy as np
import pytest

import convertkit
from convertkit.data.held_out import held_out_positions
from convertkit.findings.quality import unseen
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


def quality(**changes) -> Quality:
    return Quality(**{"samples": 50, "origin": "held-out", "output": "y", "snr_db": 30.0, "median_db": 31.0,
                      "low_db": 25.0, "agreement": 1.0, **changes})  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "weak"),
    [
        ({}, False),
        ({"snr_db": 15.2}, True),
        ({"median_db": 15.2}, True),
        ({"agreement": 0.98}, False),
        ({"agreement": 0.92}, True),
        ({"agreement": 0.98, "samples": 1000}, True),
        ({"agreement": None}, False),
    ],
)
def test_what_is_below_the_warning_is_not_good(changes, weak) -> None:
    assert quality(**changes).weak == weak


def test_the_figure_of_a_real_export(digits, tmp_path) -> None:
    """200 samples: 50 are held out, and the figure is theirs with its number."""
    made = convertkit.export(digits.model, "tflite", int8=True, calib=digits.calib, output=tmp_path / "out")
    found = made.report["quality"]
    assert (found["samples"], found["origin"], found["agreement"]) == (50, "held-out", 1.0)
    assert 40 < found["low_db"] <= found["snr_db"] < 60
    assert "on 50 held-out samples of --calib" in quality_text(found)
    assert "50 held-out samples of --calib" in (tmp_path / "out" / "report.html").read_text()


def test_state_is_carried_over_the_samples(tmp_path) -> None:
    """A running sum: each answer depends on all before it."""
    import onnx
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
    found = measure("held-out", samples, (artifact, OnnxRunner(artifact)), (artifact, OnnxRunner(artifact)))
    assert (found.samples, found.snr_db) == (4, float("inf"))

"""Golden inputs are ones on which the model has an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.artifact import Artifact, TensorSpec
from convertkit.errors import ToolError
from convertkit.parity.golden import answered

SPECS = (
    TensorSpec("x", (1, 4), "float32"),
    TensorSpec("by", (1, 4), "int64"),
    TensorSpec("place", (1, 4), "int64", value_range=(0, 9)),
)


def artifact(*specs: TensorSpec) -> Artifact:
    return Artifact(Path("m.onnx"), "onnx", specs, specs[:1], "", "")


def divided(feed):
    if not feed["by"].all():
        raise ToolError("division by zero")
    return feed["x"] // feed["by"]


def test_whole_numbers_without_bounds_become_one_where_the_model_fails():
    seen = []

    def run(feed):
        seen.append(feed)
        return divided(feed)

    found = list(answered(artifact(*SPECS), None, 0, run))
    assert len(found) == 3
    assert len(seen) > 3, "an input that was drawn first has to have failed"
    failed = [feed for feed in seen if not feed["by"].all()]
    for feed, got in found:
        np.testing.assert_array_equal(got, divided(feed))
    for feed in failed:
        (again,) = [each for each, _ in found if np.array_equal(each["x"], feed["x"])]
        np.testing.assert_array_equal(again["by"], np.ones((1, 4), np.int64))
        np.testing.assert_array_equal(again["place"], feed["place"])


def test_what_fails_with_ones_too_is_raised():
    def run(feed):
        raise ToolError("always")

    with pytest.raises(ToolError, match="always"):
        list(answered(artifact(*SPECS), None, 0, run))


def test_a_sample_of_the_user_s_is_not_changed():
    sample = {"x": np.ones((1, 4), np.float32), "by": np.zeros((1, 4), np.int64), "place": np.zeros((1, 4), np.int64)}
    with pytest.raises(ToolError, match="by zero"):
        list(answered(artifact(*SPECS), [sample], 0, divided))


@pytest.mark.parametrize("how", [{"target": "onnxruntime", "package": "triton"}, {"target": "ios"}], ids=str)
def test_a_division_of_whole_numbers_is_packaged(tmp_path: Path, how: dict[str, str]) -> None:
    ends = [helper.make_tensor_value_info(name, TensorProto.INT64, [4]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("Div", ["a", "b"], ["c"])], "div", ends[:2], ends[2:])
    source = tmp_path / "div.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), source)
    assert convertkit.export(source, output=tmp_path / "out", **how).report["passed"]

"""Channel shuffles between integer convolutions: the layout's transposes move integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import convertkit
from tests.quantization.models import model_of


def shuffled(batch: int | str, groups: int) -> onnx.ModelProto:
    """Two grouped convolutions with a shuffle behind each, the second in front of a mean over the image."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.normal(0, 0.3, (16, 3, 3, 3)).astype(np.float32),
        "w1": rng.normal(0, 0.3, (16, 16 // groups, 1, 1)).astype(np.float32),
        "w2": rng.normal(0, 0.3, (16, 1, 3, 3)).astype(np.float32),
        "apart": np.array([0, groups, 16 // groups, 12, 12], np.int64),
        "together": np.array([0, 16, 12, 12], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "stem", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "mixed", group=groups),
        helper.make_node("Reshape", ["c", "apart"], ["d"], "split"),
        helper.make_node("Transpose", ["d"], ["e"], "turn", perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["e", "together"], ["f"], "join"),
        helper.make_node("Conv", ["f", "w2"], ["g"], "depthwise", group=16, pads=[1] * 4),
        helper.make_node("Reshape", ["g", "apart"], ["h"], "split2"),
        helper.make_node("Transpose", ["h"], ["i"], "turn2", perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["i", "together"], ["j"], "join2"),
        helper.make_node("GlobalAveragePool", ["j"], ["k"], "mean"),
        helper.make_node("Flatten", ["k"], ["y"], "flat"),
    ]
    return model_of(nodes, weights, {"x": [batch, 3, 12, 12]}, {"y": [batch, 16]})


@pytest.mark.parametrize("batch", [1, "N"])
@pytest.mark.parametrize("groups", [2, 4])
def test_a_shuffle_is_all_integers(tmp_path, batch: int | str, groups: int) -> None:
    onnx.save(shuffled(batch, groups), tmp_path / "model.onnx")
    data = np.random.default_rng(1).normal(0, 1, (24, 3, 12, 12)).astype(np.float32)
    result = convertkit.export(
        tmp_path / "model.onnx", "tflite", int8=True, full_integer=True, calib=data, output=tmp_path / "out"
    )
    steps = result.report["steps"]
    assert steps[-1]["parity"]["versus_previous"]["passed"]
    assert [step["diagnosis"]["effective"] for step in steps if step["stage"] == "quantize"] == ["int8"]

"""The sizes at which routes from TensorFlow are tried."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.errors import ToolError
from tests.installed import needs

MODELS = """
import sys
import tensorflow as tf
kernel = tf.reshape(tf.sin(tf.range(300.0) * 1.7), [5, 5, 3, 4])
ways = {
    "valid": ((None, None, None, 3), lambda x: tf.nn.conv2d(tf.nn.max_pool2d(x, 3, 2, "VALID"), kernel, 2, "VALID")),
    "mean": ((None, None, None, 3), lambda x: tf.reduce_mean(tf.nn.conv2d(x, kernel, 1, "VALID"), [1, 2])),
    "dilated": ((None, None, None, 3), lambda x: tf.nn.conv2d(x, kernel, 1, "SAME", dilations=2)),
    "one": ((None, None), lambda x: tf.reshape(x, [-1, 7, 11]) * 2),
}
for name, (shape, way) in ways.items():
    model = tf.Module()
    model.call = tf.function(lambda x: {"y": way(x)}, input_signature=[tf.TensorSpec(shape, name="x")])
    tf.saved_model.save(model, f"{sys.argv[1]}/{name}", signatures=model.call)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("tf2onnx")
    folder = tmp_path_factory.mktemp("saved")
    subprocess.run([sys.executable, "-c", MODELS, str(folder)], check=True, capture_output=True)
    return folder


def test_windows_larger_than_two_elements_leave_sizes_dynamic(saved: Path, tmp_path: Path):
    made = convertkit.export(saved / "valid", output=tmp_path / "out")
    assert made.artifact.inputs[0].shape == ("batch", "x_1", "x_2", 3)
    x = np.random.default_rng(3).standard_normal((1, 26, 31, 3)).astype(np.float32)
    assert made.run({"x": x})["y"].shape == (1, 4, 6, 4)


@pytest.mark.parametrize("name", ["mean", "dilated"])
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_windows_that_give_nothing_of_two_elements(saved: Path, tmp_path: Path, name: str, target: str):
    """TensorFlow gives empty tensors, and NaN for their means, where ONNX Runtime fails."""
    made = convertkit.export(saved / name, target, output=tmp_path / "out")
    assert made.artifact.inputs[0].shape == ("batch", "x_1", "x_2", 3)


def test_a_model_that_takes_none_of_the_sizes_is_told_which_and_why(saved: Path, tmp_path: Path):
    with pytest.raises(ToolError) as refusal:
        convertkit.export(saved / "one", output=tmp_path / "out")
    assert "Input to reshape is a tensor with 32 values" in str(refusal.value)
    assert "it was run with batch=1, x_1=32; batch=1, x_1=64" in str(refusal.value)
    assert "--static batch=SIZE --static x_1=SIZE, with sizes that it takes" in str(refusal.value)
    made = convertkit.export(saved / "one", output=tmp_path / "sized", static={"x_1": 77})
    assert made.artifact.inputs[0].shape == ("batch", 77)

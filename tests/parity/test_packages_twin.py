"""A step that packages a compiled file is judged by the float64 twin of the ONNX that the file was compiled from."""

from __future__ import annotations

import pytest

from convertkit.artifact import Artifact, TensorSpec
from convertkit.parity.values import Recording
from convertkit.steps.comparing import _onnx_of

SPEC = TensorSpec("x", (1,), "float32")


def of_format(tmp_path, kind):
    artifact = Artifact(tmp_path / kind, kind, (SPEC,), (SPEC,), "0")
    return Recording(kind, artifact, (), ())


@pytest.mark.parametrize(
    ("previous", "current", "told"),
    [("onnx", "tflite", "onnx"), ("onnx", "onnx", "onnx"), ("torch", "onnx", "onnx"), ("tflite", "android", "before")],
)
def test_the_nearest_onnx_tells(tmp_path, previous, current, told):
    before = Artifact(tmp_path / "before", "onnx", (SPEC,), (SPEC,), "1")
    one, other = of_format(tmp_path, previous), of_format(tmp_path, current)
    found = _onnx_of(one, other, before)
    assert found is (before if told == "before" else one.artifact if previous == "onnx" else other.artifact)

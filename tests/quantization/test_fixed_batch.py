"""Calibration data has the batch that the user fixes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convertkit
from tests.quantization.models import images, small_cnn


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("full_integer", [False, True])
def test_a_fixed_batch_is_calibrated_with(tmp_path: Path, batch: int, full_integer: bool) -> None:
    onnx.save(small_cnn(), tmp_path / "model.onnx")
    free = next(dim.dim_param for dim in small_cnn().graph.input[0].type.tensor_type.shape.dim if dim.dim_param)
    given = {"static": {free: batch}, "calib": {"x": images(48)}, "full_integer": full_integer}
    result = convertkit.export(tmp_path / "model.onnx", "tflite", int8=True, output=tmp_path / "out", **given)
    assert result.artifact.inputs[0].shape[0] == batch
    outputs = result.run({"x": images(batch, 5)})
    assert all(np.isfinite(each).all() and len(each) == batch for each in outputs.values())

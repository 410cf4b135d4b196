"""Sizes at which a pool's window is larger than its input are not those that a model is verified on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convertkit
from convertkit.artifact import Artifact
from convertkit.errors import ToolError
from convertkit.onnx.load import load_model
from convertkit.onnx.overhang import refuse_overhang
from convertkit.onnx.specs import interface

POOLS = {
    "kernel_shape = [40, 2], strides = [3, 2]": (40, 2),
    "kernel_shape = [3, 2], strides = [3, 2], dilations = [20, 1]": (41, 2),
    "kernel_shape = [3, 2], pads = [1, 0, 0, 0]": (2, 2),
}


def model(options: str, operator: str = "MaxPool") -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 18]> g (float[n,3,H,W] x) => (float[n,3,h,w] y)'
    return onnx.parser.parse_model(f"{head} {{ y = {operator}<{options}>(x) }}")


@pytest.mark.parametrize("options", POOLS)
def test_the_least_size_is_taken_and_no_smaller_one(tmp_path: Path, options: str) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(model(options), path)
    inputs, outputs = interface(load_model(path))
    source = Artifact(path, "onnx", inputs, outputs, "")
    height, width = POOLS[options]
    refuse_overhang(source, [{"x": np.zeros((1, 3, height, width), np.float32)}])
    with pytest.raises(ToolError, match="elements has no result"):
        refuse_overhang(source, [{"x": np.zeros((1, 3, height - 1, width), np.float32)}])


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
def test_larger_sizes_are_tried(tmp_path: Path, target: str) -> None:
    """ONNX Runtime pools 32 rows by a window of 40 to one row, which LiteRT does not."""
    onnx.save(model("kernel_shape = [40, 2], strides = [40, 2]", "AveragePool"), tmp_path / "m.onnx")
    assert convertkit.export(tmp_path / "m.onnx", target=target, output=tmp_path / "out").passed

"""A small image model as a file and as it is delivered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import convertkit
from tests import onnx_models
from tests.looking.nets import image_net


@pytest.fixture(scope="session")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image model as ONNX."""
    return onnx_models.write(tmp_path_factory.mktemp("net"), image_net(), "net.onnx")


@pytest.fixture(scope="session")
def delivered(net: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, convertkit.Result]:
    """The same, delivered: ``onnxruntime``, ``tflite``, and ``int8`` for TFLite."""
    place = tmp_path_factory.mktemp("delivered")
    samples = np.random.default_rng(0).standard_normal((32, 3, 8, 8)).astype(np.float32)
    made = {name: convertkit.export(net, name, output=place / name) for name in ("onnxruntime", "tflite")}
    made["int8"] = convertkit.export(
        net, "tflite", int8=True, full_integer=True, calib={"x": samples}, output=place / "int8"
    )
    return made

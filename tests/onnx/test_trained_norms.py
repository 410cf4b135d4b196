"""Norms in training mode: by the batch's own statistics, whether or not anything reads the running ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import convertkit

STATISTICS = {"s": [0.5, 2.0, 1.0], "b": [0.1, -0.2, 0.0], "m": [1.0, 2.0, 3.0], "v": [1.0, 4.0, 9.0]}


@pytest.mark.parametrize("target", ["tflite", "onnxruntime"])
@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("read", [False, True])
def test_they_are_delivered(tmp_path: Path, target: str, shape: tuple[int, ...], read: bool) -> None:
    sizes = ",".join(map(str, shape))
    outputs = f"(float[{sizes}] y" + (", float[3] n, float[3] w)" if read else ")")
    path = tmp_path / "model.onnx"
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 15]> g (float[{sizes}] x) => {outputs}'
        " { y, n, w = BatchNormalization <epsilon = 0.001, momentum = 0.7, training_mode = 1> (x, s, b, m, v) }"
    )
    numbers = {name: np.array(each, np.float32) for name, each in STATISTICS.items()}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(each, name) for name, each in numbers.items())
    onnx.save(model, path)
    done = convertkit.export(path, target, output=tmp_path / "out")
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 3 + 1
    axes = (0, *range(2, len(shape)))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    s, b = (numbers[name].reshape(-1, *[1] * (len(shape) - 2)) for name in "sb")
    found = done.run({"x": x})
    np.testing.assert_allclose(found["y"], (x - mean) / np.sqrt(variance + 0.001) * s + b, rtol=0, atol=1e-5)
    if read:
        for name, old, new in (("n", "m", mean), ("w", "v", variance)):
            np.testing.assert_allclose(found[name], 0.7 * numbers[old] + 0.3 * new.reshape(-1), rtol=0, atol=1e-5)

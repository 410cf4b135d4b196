"""A quantized program gives ONNX Runtime's integers: sums are whole multiples of a step that keeps away from ties."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from onnx import helper, numpy_helper

import convertkit
from tests import onnx_models


def convolutions(folder, channels=(3, 24, 24, 24), size=48):
    """Layers with biases whose results are quantized as they are."""
    rng = np.random.default_rng(2)
    nodes, stored = [], []
    for place, (taken, made) in enumerate(pairwise(channels)):
        weight = rng.normal(0, 1 / np.sqrt(9 * taken), (made, taken, 3, 3)).astype(np.float32)
        stored += [numpy_helper.from_array(weight, f"w{place}")]
        stored += [numpy_helper.from_array(rng.normal(0, 0.3, made).astype(np.float32), f"b{place}")]
        operands = [f"v{place}", f"w{place}", f"b{place}"]
        nodes.append(helper.make_node("Conv", operands, [f"v{place + 1}"], f"conv{place}", pads=[1] * 4))
    ends = {"v0": [1, channels[0], size, size]}, {f"v{len(nodes)}": [1, channels[-1], size, size]}
    return onnx_models.write(folder, onnx_models.model(nodes, *ends, stored))


def test_integers_are_equal_in_onnx_runtime_and_in_the_evaluator(tmp_path):
    samples = np.random.default_rng(1).normal(0, 1, (12, 3, 48, 48)).astype(np.float32)
    made = convertkit.export(
        convolutions(tmp_path), "coreml", int8=True, calib={"v0": samples}, output=tmp_path / "out"
    )
    (told,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert told["max_abs"] == 0

"""LEAKY_RELU and RELU of integers: scales that their kernels hold exactly, where 256ths express them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.quantization.place.ties import sloped_ratio

RNG = np.random.default_rng(1)
IMAGES = RNG.standard_normal((16, 3, 16, 16)).astype(np.float32)


def network(path: Path, alpha: float, depth: int) -> Path:
    """Convolutions with a leaky ReLU behind each, and one without."""
    widths = [3, *[16] * depth, 8]
    weights, nodes = [], []
    for place, (deep, wide) in enumerate(pairwise(widths)):
        drawn = RNG.standard_normal((wide, deep, 3, 3)) / np.sqrt(deep * 4.5)
        weights.append(numpy_helper.from_array(drawn.astype(np.float32), f"w{place}"))
    for place in range(depth):
        nodes.append(helper.make_node("Conv", [f"x{place}", f"w{place}"], [f"c{place}"], pads=[1] * 4))
        nodes.append(helper.make_node("LeakyRelu", [f"c{place}"], [f"x{place + 1}"], alpha=alpha))
    nodes.append(helper.make_node("Conv", [f"x{depth}", f"w{depth}"], ["y"], pads=[1] * 4))
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["N", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8, 16, 16])], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.mark.parametrize(("alpha", "least_db"), [(0.1, 40), (0.01, 30)])
def test_integers_behind_convolutions_are_delivered(tmp_path: Path, alpha: float, least_db: float) -> None:
    source = network(tmp_path / "net.onnx", alpha, 2)
    result = convertkit.export(
        source, "tflite", int8=True, full_integer=True, calib={"x0": IMAGES}, output=tmp_path / "out"
    )
    (tensor,) = result.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert tensor["snr_db"] > least_db


@pytest.mark.parametrize("slope", [0.1, 0.2, 0.25, 0.3])
@pytest.mark.parametrize("wanted", [0.9, 1.0, 1.31, 1.97])
def test_both_factors_are_whole_256ths(slope: float, wanted: float) -> None:
    ratio = sloped_ratio(wanted, slope)
    assert abs(ratio / wanted - 1) <= 0.03
    for factor in (256 * ratio, 256 * ratio * slope):
        assert abs(factor - round(factor)) < 1e-3


def test_a_ratio_that_256ths_do_not_express_stays() -> None:
    assert sloped_ratio(1e-4, 0.1) == 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_a_relu_alone_between_integers_is_exact(tmp_path: Path, seed: int) -> None:
    """It is a conversion between bytes of two scales: 17 of 256 were one off at a scale between two 256ths."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])
    source = tmp_path / "relu.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), source)
    samples = np.random.default_rng(seed).standard_normal((32, 64)).astype(np.float32)
    result = convertkit.export(
        source, "tflite", int8=True, full_integer=True, io_dtype="int8", calib={"x": samples}, output=tmp_path / "out"
    )
    (tensor,) = result.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert tensor["max_abs"] == 0

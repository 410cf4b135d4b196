"""HARD_SWISH of integers: what its kernel computes in fixed point, and scales at which that is what the graph says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.quantization.place.curves import Curve, CurvedScales
from convertkit.targets.tflite.hard_swish import other_results
from convertkit.targets.tflite.inspection import operators
from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import compiled
from tests.targets.tflite.test_tabulate import every, model

IMAGES = np.random.default_rng(1).standard_normal((16, 3, 16, 16)).astype(np.float32)
RANGES = [(0.0412, -48, 0.0297, -115), (0.0893, -91, 0.0776, -123), (0.019, 127, 0.00147, 127), (0.3, -128, 0.3, -128)]
"""Scale and zero point that are read, and those that are written."""


@pytest.mark.parametrize(("given", "given_zero", "scale", "zero"), RANGES)
def test_as_many_results_are_off_as_the_rule_counts(given: float, given_zero: int, scale: float, zero: int) -> None:
    case = compiled(model("HardSwish", (given, given_zero), (scale, zero)), Options(full_integer=True))
    assert case.operators["HARD_SWISH"] == 1
    ((expected, results),) = case.both([every((given, given_zero))])
    off = int((np.abs(expected["fd"] - results["fd"]) > scale / 2).sum())
    assert count(given, given_zero, scale, zero) == off


def count(given: float, given_zero: int, scale: float, zero: int) -> int:
    """Results that are off."""
    (found,) = other_results(np.array([given], np.float32), given_zero, np.array([scale], np.float32), zero)
    return int(found)


def test_what_the_kernel_refuses_has_no_right_result() -> None:
    """A step that is read may be 128 that are written, and no more."""
    assert count(0.38, 127, 0.0014, 127) == 256


GIVEN, GIVEN_ZERO, SCALE, ZERO = RANGES[1]


def moved(*others: float, sharing: list[tuple[int, ...]], kept: tuple[int, ...] = ()) -> dict[int, float]:
    """What becomes of the scales that are off, beside ``others``."""
    assert count(GIVEN, GIVEN_ZERO, SCALE, ZERO) == 1
    scales = CurvedScales([GIVEN, SCALE, *others], [GIVEN_ZERO, ZERO, 0, 0], sharing, kept)
    scales.meet(Curve(0, 1, other_results))
    return scales.decided


def test_the_scale_that_is_read_moves_to_where_nothing_is_off() -> None:
    found = moved(sharing=[(0,), (1,)])
    assert found == {0: pytest.approx(GIVEN, rel=0.01), 1: SCALE}
    assert count(found[0], GIVEN_ZERO, SCALE, ZERO) == 0


def test_else_the_one_that_is_written_moves_with_its_multiples() -> None:
    found = moved(3 * SCALE, sharing=[(0,), (1, 2), (1, 2)], kept=(0,))
    assert found[0] == GIVEN
    assert found[1] == pytest.approx(SCALE, rel=0.01)
    assert found[2] == pytest.approx(3 * found[1])
    assert count(GIVEN, GIVEN_ZERO, found[1], ZERO) == 0


def test_scales_that_have_to_stay_stay() -> None:
    assert moved(3 * SCALE, sharing=[(0,), (1, 2), (1, 2)], kept=(0, 2)) == {0: GIVEN, 1: SCALE}


def network(path: Path, depth: int) -> Path:
    """Convolutions with a HardSwish behind each, sums over two of them, and a gate."""
    rng = np.random.default_rng(depth)
    widths = [3, *[16] * depth, 8]
    weights, nodes = [], []
    for place, (deep, wide) in enumerate(pairwise(widths)):
        drawn = rng.standard_normal((wide, deep, 3, 3)) / np.sqrt(deep * 3)
        weights.append(numpy_helper.from_array(drawn.astype(np.float32), f"w{place}"))
    for place in range(depth):
        nodes.append(helper.make_node("Conv", [f"x{place}", f"w{place}"], [f"c{place}"], pads=[1] * 4))
        nodes.append(helper.make_node("HardSwish", [f"c{place}"], [f"h{place}"]))
        if place % 3 == 1:
            nodes.append(helper.make_node("Add", [f"h{place}", f"x{place}"], [f"x{place + 1}"]))
        elif place % 3 == 2:
            nodes.append(helper.make_node("GlobalAveragePool", [f"h{place}"], [f"p{place}"]))
            nodes.append(helper.make_node("HardSigmoid", [f"p{place}"], [f"g{place}"], alpha=1 / 6))
            nodes.append(helper.make_node("Mul", [f"h{place}", f"g{place}"], [f"x{place + 1}"]))
        else:
            nodes[-1].output[0] = f"x{place + 1}"
    nodes.append(helper.make_node("Conv", [f"x{depth}", f"w{depth}"], ["y"], pads=[1] * 4))
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["N", 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8, 16, 16])], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.mark.parametrize("depth", [1, 5])
def test_the_integers_are_those_of_the_graph(tmp_path: Path, depth: int) -> None:
    choices = {"int8": True, "full_integer": True, "calib": {"x0": IMAGES}, "output": tmp_path / "out"}
    result = convertkit.export(network(tmp_path / "net.onnx", depth), "tflite", **choices)
    (tensor,) = result.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert tensor["snr_db"] == "inf"
    kinds = {each.kind for each in operators(result.artifact.path)}
    assert "HARD_SWISH" in kinds
    assert "GATHER" not in kinds

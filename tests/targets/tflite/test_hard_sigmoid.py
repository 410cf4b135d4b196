"""HardSigmoid of integers: a product and a sum where these give what the graph says, else a table."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from convertkit.targets.tflite.passes import Options
from tests.targets.tflite.compiled import Case, compiled
from tests.targets.tflite.test_tabulate import every, model

PARTS = {"QUANTIZE": 1, "MUL": 1, "ADD": 1, "DEQUANTIZE": 1}


def case(given: tuple[float, int], wanted: tuple[float, int], alpha: float, beta: float) -> Case:
    """HardSigmoid between these integers, with all integers as data."""
    proto = model("HardSigmoid", given, wanted)
    del proto.graph.node[2].attribute[:]
    proto.graph.node[2].attribute.extend(helper.make_attribute(*each) for each in (("alpha", alpha), ("beta", beta)))
    return compiled(proto, Options(full_integer=True))


@pytest.mark.parametrize(
    ("given", "wanted", "alpha", "beta"),
    [
        ((0.037, 5), (1 / 256, -128), 1 / 6, 0.5),
        ((0.037, -128), (1 / 256, -128), 0.2, 0.5),
        ((0.2, 127), (1 / 256, -128), 0.2, 0.5),
        ((0.037, 5), (1 / 256, -128), -0.3, 0.25),
        ((0.0001, 5), (1 / 256, -128), 0.2, 0.5),
    ],
)
def test_product_and_sum(given: tuple[float, int], wanted: tuple[float, int], alpha: float, beta: float) -> None:
    found = case(given, wanted, alpha, beta)
    assert found.operators == PARTS
    ((expected, got),) = found.both([every(given)])
    np.testing.assert_array_equal(got["fd"], expected["fd"])


@pytest.mark.parametrize(
    ("given", "wanted", "beta"),
    [
        ((6 / 512, 5), (1 / 256, -128), 0.5),  # every second result is a tie
        ((0.037, 5), (1 / 256, -128), 0.4),  # 102.4 steps
        ((0.037, 5), (1 / 256, 50), 0.5),  # a zero point of 178
        ((0.013, 5), (1 / 128, -64), 0.25),  # integers that stand for less than 0
    ],
)
def test_else_a_table(given: tuple[float, int], wanted: tuple[float, int], beta: float) -> None:
    found = case(given, wanted, 1 / 6, beta)
    assert found.operators["GATHER"] == 1
    ((expected, got),) = found.both([every(given)])
    np.testing.assert_array_equal(got["fd"], expected["fd"])

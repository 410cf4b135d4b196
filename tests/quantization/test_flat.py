"""A range ends where what reads the tensor is flat: the integers go to where they show."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.quantization.calibrate.flat import flat_values, narrowed, shown_db
from convertkit.quantization.calibrate.histogram import Histogram
from convertkit.quantization.calibrate.ranges import affine, snr_db
from tests.quantization.models import images, model_of

SIDES = {
    "Sigmoid": (True, True),
    "HardSigmoid": (True, True),
    "Tanh": (True, True),
    "HardSwish": (True, False),
    "Elu": (True, False),
    "Gelu": (True, False),
    "Softplus": (True, False),
    "Mish": (True, False),
}


def graph_of(*nodes: tuple[str, list[str], str], outputs: tuple[str, ...] = ("y",)) -> ir.Graph:
    """Nodes behind ``v``, a value of the graph."""
    made = [helper.make_node("Neg", ["x"], ["v"]), *(helper.make_node(op, read, [to]) for op, read, to in nodes)]
    model = ir.from_proto(model_of(made, {}, {"x": [2, 3]}, {name: [2, 3] for name in outputs}))
    for node in model.graph:
        node.outputs[0].dtype = ir.DataType.FLOAT
    return model.graph


@pytest.mark.parametrize("op", SIDES)
def test_functions_that_are_flat_somewhere(op: str) -> None:
    flat = flat_values(graph_of((op, ["v"], "y")))["v"]
    assert (flat.below, flat.above) == SIDES[op]
    ends = np.array([-30.0, -40.0, 30.0, 40.0])
    reached = flat.functions[0](ends)
    assert (abs(reached[0] - reached[1]) < 1e-6, abs(reached[2] - reached[3]) < 1e-6) == SIDES[op]


@pytest.mark.parametrize("gate", ["Sigmoid", "HardSigmoid"])
def test_a_value_times_its_own_gate(gate: str) -> None:
    flat = flat_values(graph_of((gate, ["v"], "g"), ("Mul", ["v", "g"], "y")))["v"]
    assert (flat.below, flat.above) == (True, False)
    assert len(flat.functions) == 1
    np.testing.assert_allclose(flat.functions[0](np.array([-30.0, 30.0])), [0.0, 30.0], atol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        graph_of(("Sigmoid", ["v"], "g"), ("Add", ["v", "g"], "y")),
        graph_of(("Sigmoid", ["v"], "y"), ("Exp", ["v"], "z"), outputs=("y", "z")),
        graph_of(("Tanh", ["v"], "g"), ("Mul", ["v", "g"], "y")),
        graph_of(("Sigmoid", ["v"], "y"), outputs=("y", "v")),
    ],
    ids=["added", "read otherwise, too", "a gate that does not close", "an output"],
)
def test_values_that_something_reads_as_they_are(graph: ir.Graph) -> None:
    assert "v" not in flat_values(graph)


def test_a_narrower_range_loses_nothing_below_and_wins_above() -> None:
    values = np.random.default_rng(0).standard_t(4, 200_000).astype(np.float32) * 2
    histogram = Histogram()
    histogram.add(values)
    flat = flat_values(graph_of(("Sigmoid", ["v"], "g"), ("Mul", ["v", "g"], "y")))["v"]
    whole = float(values.min()), float(values.max())
    low, high = narrowed(whole, histogram, flat, "int8", symmetric=False)
    assert high == whole[1]
    assert -10 < low < -3
    silu = values / (1 + np.exp(-values.astype(np.float64)))
    noise = {}
    for span in (whole, (low, high)):
        parameters = affine(span, "int8", symmetric=False)
        rounded = parameters.round_trip(values)
        noise[span] = float(np.square(rounded / (1 + np.exp(-rounded)) - silu).mean())
        expected = 10 * np.log10(float(np.square(silu).mean()) / noise[span])
        assert shown_db(histogram, parameters, flat) == pytest.approx(expected, abs=0.3)
        assert shown_db(histogram, parameters, None) == snr_db(histogram, parameters)
    assert noise[low, high] < noise[whole] / 2


def test_a_network_of_silu_gains(quantized) -> None:
    rng = np.random.default_rng(0)
    weights = {"a": rng.normal(0, 2.0, (16, 3, 3, 3)), "b": rng.normal(0, 0.3, (8, 16, 3, 3))}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["c"], "first"),
        helper.make_node("Sigmoid", ["c"], ["g"], "gate"),
        helper.make_node("Mul", ["c", "g"], ["s"], "silu"),
        helper.make_node("Conv", ["s", "b"], ["y"], "second"),
    ]
    constants = {name: array.astype("f4") for name, array in weights.items()}
    model = model_of(nodes, constants, {"x": ["N", 3, 12, 12]}, {"y": ["N", 8, 8, 8]})
    data = images(32)
    result = quantized(model, data, "int8", "tflite", calib_method="minmax", without_costs=True)
    (tensor,) = [each for each in result.stage.diagnosis["tensors"] if each["name"] == "c"]
    assert tensor["quantized_range"][0] > tensor["range"][0] / 2

"""Tables that a Gather looks up become integers with ``--full-integer``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from convertkit.quantization.prepare.look_ups import store_tables, tables_as_values
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of

ROWS, WIDTH, PLACES = 60, 16, 6


def embedding(rng):
    nodes = [
        helper.make_node("Cast", ["x"], ["places"], "cast", to=7),
        helper.make_node("Gather", ["table", "places"], ["rows"], "embedding"),
        helper.make_node("Transpose", ["rows"], ["y"], "transpose", perm=[0, 2, 1]),
    ]
    table = rng.normal(size=(ROWS, WIDTH)).astype("f4")
    table[ROWS // 2 :] *= 3  # rows that the data does not hold are larger
    return model_of(nodes, {"table": table}, {"x": [1, PLACES]}, {"y": [1, WIDTH, PLACES]})


@pytest.mark.parametrize("target", ["tflite", "qnn"])
def test_rows_that_no_sample_has_are_in_range(quantized, target) -> None:
    rng = np.random.default_rng(0)
    seen, unseen = rng.integers(0, ROWS // 2, (24, PLACES)), rng.integers(ROWS // 2, ROWS, (24, PLACES))
    model = embedding(rng)
    result = quantized(model, seen.astype("f4"), target=target, full_integer=True)
    (look_up,) = [node for node in result.graph.node if node.op_type == "Gather"]
    made = {name: node for node in result.graph.node for name in node.output}
    assert made[look_up.input[0]].op_type == "DequantizeLinear"
    integers, scale, point = (result.constants()[each] for each in made[look_up.input[0]].input)
    assert integers.shape == (ROWS, WIDTH)
    table = model.graph.initializer[0]
    off = scale * (integers.astype(np.float32) - point) - numpy_helper.to_array(table)
    assert np.abs(off).max() <= 0.51 * scale  # the nearest, and none cut off
    assert "Identity" not in result.operators()
    assert result.snr_db(unseen.astype("f4")) > 25


def test_without_the_flag_the_rows_have_scales_of_their_own(quantized) -> None:
    rng = np.random.default_rng(0)
    data = rng.integers(0, ROWS, (24, PLACES)).astype("f4")
    assert "Identity" not in quantized(embedding(rng), data, without_costs=True).operators()


def test_a_constant_that_is_an_output_stays_one() -> None:
    """The Identity is the model's own and stands for no table."""
    copies = helper.make_node("Identity", ["anchors"], ["a"], "copy")
    model = ir.from_proto(model_of([copies], {"anchors": np.ones((3, 2), "f4")}, {}, {"a": [3, 2]}))
    store_tables(model)
    assert [node.op_type for node in model.graph] == ["Identity"]
    assert [each.name for each in model.graph.outputs] == ["a"]


@pytest.mark.parametrize(("kind", "rows", "is_value"), [("f4", True, True), ("f4", False, False), ("i8", True, False)])
def test_tables_of_floats_become_values_where_rows_of_integers_are_looked_up(kind, rows, is_value) -> None:
    look_up = helper.make_node("Gather", ["table", "places"], ["y"], "look_up")
    constants = {"table": np.ones((3, 2), kind), "places": np.array([0, 2])}
    model = ir.from_proto(model_of([look_up], constants, {}, {"y": None}))
    chosen = profile(ExportOptions(source="x", precision="int8", full_integer=True))
    tables_as_values(model, replace(chosen, integer_rows=rows))
    assert [node.op_type for node in model.graph] == (["Identity", "Gather"] if is_value else ["Gather"])

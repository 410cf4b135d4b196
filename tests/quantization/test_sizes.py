"""Sizes that shape arithmetic hides are those of one sample: costs go by them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.quantization.graph import sizes as module
from convertkit.quantization.graph.sizes import elements, measure_sizes, sizes
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.costs import unit_cost
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of

INT8 = profile(ExportOptions(source="x", precision="int8"))
FEED = {"x": np.ones((1, 8, 6, 6), np.float32)}


def halves() -> ir.Model:
    """The second half of the channels, cut where the model computes it to be, and a convolution of that."""
    rng = np.random.default_rng(0)
    constants = {
        "one": np.array([1]),
        "two": np.array([2]),
        "w": rng.normal(0, 1, (4, 4, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "shape", start=1, end=2),
        helper.make_node("Div", ["shape", "two"], ["half"], "half"),
        helper.make_node("Slice", ["x", "half", "shape", "one"], ["cut"], "cut"),
        helper.make_node("Conv", ["cut", "w"], ["y"], "conv"),
    ]
    model = model_of(nodes, constants, {"x": ["N", 8, "H", "W"]}, {"y": ["N", 4, "H", "W"]})
    return ir.from_proto(onnx.shape_inference.infer_shapes(model))


def unit(model: ir.Model, name: str) -> Unit:
    return next(each for each in find_units(model.graph, INT8) if each.name == name)


def test_sizes_of_a_sample() -> None:
    model = halves()
    cut, made = unit(model, "cut").node.outputs[0], unit(model, "conv").node.outputs[0]
    assert sizes(cut) == (1, 32, 32, 32)
    guessed = unit_cost(unit(model, "conv"), INT8)
    measure_sizes(model, FEED, {})
    assert sizes(cut) == (1, 4, 6, 6)
    assert elements(made) == 144
    assert unit_cost(unit(model, "conv"), INT8)[1] < guessed[1] / 5
    assert [len(value.shape or ()) for value in model.graph.outputs] == [4]
    assert sizes(model.clone().graph.node(3).outputs[0]) == (1, 4, 6, 6)


def test_nothing_found_in_the_sample_costs_a_little_all_the_same() -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"], "nonzero"),
        helper.make_node("Cast", ["places"], ["y"], "cast", to=onnx.TensorProto.FLOAT),
    ]
    model = ir.from_proto(model_of(nodes, {}, {"x": ["N", 4]}, {"y": [2, "found"]}))
    measure_sizes(model, {"x": np.zeros((1, 4), np.float32)}, {})
    assert sizes(model.graph.outputs[0]) == (2, 1)


def test_a_model_that_tells_its_sizes_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"], "first"), helper.make_node("Abs", ["r"], ["y"], "second")]
    proto = model_of(nodes, {}, {"x": ["N", 3, 4]}, {"y": ["N", 3, 4]})
    model = ir.from_proto(onnx.shape_inference.infer_shapes(proto))
    monkeypatch.setattr(module, "open_session", None)
    measure_sizes(model, {}, {})
    assert sizes(model.graph.outputs[0]) == (1, 3, 4)


def test_arithmetic_of_sizes_stays_float() -> None:
    """``floor(height * 0.25)`` of 32 rows was 7 where 0.25 was an integer with a scale: an internal error, or worse."""
    model = ir.from_proto(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,3,h,w] x) => (float[n,3,a,b] y, float[n,3,h,w] z) {
            quarter = Constant<value_float=0.25>() first = Constant<value_ints=[0]>() two = Constant<value_ints=[2]>()
            four = Constant<value_ints=[4]>() shape = Shape(x) ahead = Slice(shape, first, two)
            rest = Slice(shape, two, four) real = Cast<to=1>(rest) less = Mul(real, quarter) whole = Floor(less)
            small = Cast<to=7>(whole) sizes = Concat<axis=0>(ahead, small)
            y = Resize<mode="linear">(x, , , sizes) z = Mul(x, quarter) }""")
    )
    units = {unit.node.outputs[0].name: unit for unit in find_units(canonicalize(model).graph, INT8)}
    assert units["less"].rule is None
    assert units["whole"].rule is None
    assert units["z"].rule is not None

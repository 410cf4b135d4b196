"""Where integers pay: what a call costs, what is saved in all, and sizes that the file does not tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import convertkit
from convertkit.onnx.canonical import canonicalize
from convertkit.profile import OpCost, QuantProfile
from convertkit.quantization.graph.kinds import node_kinds
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.costs import unit_work
from convertkit.quantization.place.precision_assignment import choose_integer, with_float_end
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime.profile import profile
from convertkit.targets.tflite.profile import profile as tflite_profile
from tests.quantization.models import model_of

INT8 = profile(ExportOptions(source="x", precision="int8"))
TFLITE = tflite_profile(ExportOptions(source="x", precision="int8"))
FREE = {"QuantizeLinear": OpCost(0, 0)}


def convolution(size: int | str) -> tuple[Unit, ...]:
    weight = np.random.default_rng(0).normal(0, 0.3, (8, 8, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv")]
    shape: list[int | str] = ["N", 8, size, size]
    model = model_of(nodes, {"w": weight}, {"x": shape}, {"y": shape})
    return find_units(canonicalize(ir.from_proto(onnx.shape_inference.infer_shapes(model))).graph, INT8)


def priced(cost: OpCost, least_gain: float = 0.0) -> QuantProfile:
    return replace(INT8, costs={"Conv": cost, **FREE}, least_gain=least_gain)


@pytest.mark.parametrize(
    ("size", "integer"), [(4, False), (40, True)], ids=["the call is dear", "the products are cheap"]
)
def test_a_call_costs_something_whatever_its_size(size: int, integer: bool) -> None:
    dear = priced(OpCost(1.0, 0.5, integer_call=10_000.0))
    assert bool(choose_integer(convolution(size), dear, insist=False)) is integer


def test_elements_cost_beside_products() -> None:
    """8 products for an element that is read and one that is written: 2 × 4 ns more outweigh 8 × 0.5 ns less."""
    assert not choose_integer(convolution(8), priced(OpCost(1.0, 0.5, integer_element=4.0)), insist=False)
    assert choose_integer(convolution(8), priced(OpCost(1.0, 0.5, integer_element=1.0)), insist=False)


def test_small_gains_do_not_pay() -> None:
    four_percent = OpCost(1.0, 0.96)
    assert choose_integer(convolution(8), priced(four_percent), insist=False)
    assert not choose_integer(convolution(8), priced(four_percent, least_gain=0.05), insist=False)
    assert choose_integer(convolution(8), priced(four_percent, least_gain=0.05), insist=True)


def test_symbolic_sizes_count_as_usual_ones() -> None:
    work = {size: unit_work(convolution(size)[0]) for size in ("H", 32)}
    assert work["H"] == work[32]


def test_a_value_times_its_own_sigmoid_has_a_cost_of_its_own() -> None:
    """ONNX Runtime computes both in one float kernel, so integers there save nothing."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["g"], "gate"),
        helper.make_node("Mul", ["x", "g"], ["s"], "silu"),
        helper.make_node("Sigmoid", ["s"], ["h"], "other"),
        helper.make_node("Mul", ["x", "h"], ["y"], "mul"),
    ]
    model = ir.from_proto(model_of(nodes, {}, {"x": [1, 8, 4, 4]}, {"y": [1, 8, 4, 4]}))
    kinds = {node.name: node_kinds(node) for node in model.graph}
    assert kinds["silu"] == ("Mul.gated", "Mul")
    assert kinds["mul"] == ("Mul",)
    assert INT8.cost(kinds["silu"]) != INT8.cost(kinds["mul"])
    assert INT8.rule(kinds["silu"]) == INT8.rule(kinds["mul"]) is not None


def classifier_model(size: int, classes: int = 10) -> onnx.ModelProto:
    """Two convolutions over a square, and a dense layer over the mean of each channel."""
    rng = np.random.default_rng(0)
    constants = {f"w{i}": rng.normal(0, 0.3, (32, 32, 3, 3)).astype(np.float32) for i in range(2)}
    constants |= {"axes": np.array([2, 3]), "shape": np.array([1, 32]), "w": np.ones((classes, 32), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "conv0", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c0", "w1"], ["c1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("ReduceMean", ["c1", "axes"], ["m"], "mean"),
        helper.make_node("Reshape", ["m", "shape"], ["r"], "flat"),
        helper.make_node("Gemm", ["r", "w"], ["y"], "dense", transB=1),
    ]
    return model_of(nodes, constants, {"x": [1, 32, size, size]}, {"y": [1, classes]})


def classifier(size: int, classes: int = 10) -> tuple[Unit, ...]:
    model = onnx.shape_inference.infer_shapes(classifier_model(size, classes))
    return find_units(canonicalize(ir.from_proto(model)).graph, TFLITE)


@pytest.mark.parametrize(("io_dtype", "conversions"), [("float32", 2), ("int8", 0)])
def test_an_end_that_is_delivered_as_integers_is_computed_in_integers(
    io_dtype: str, conversions: int, tmp_path: Path
) -> None:
    """A float end would be rounded behind, and its weights made real when the file is loaded."""
    source = tmp_path / "net.onnx"
    model = classifier_model(32, 64)
    model.graph.initializer.remove(next(each for each in model.graph.initializer if each.name == "w"))
    weight = np.random.default_rng(3).normal(0, 0.3, (64, 32)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, source)
    data = {"x": np.random.default_rng(1).normal(0.3, 1, (16, 32, 32, 32)).astype(np.float32)}
    made = convertkit.export(source, "tflite", int8=True, calib=data, io_dtype=io_dtype, output=tmp_path / "out")
    kinds = [each["kind"] for each in made.report["operators"]]
    assert kinds.count("DEQUANTIZE") == conversions
    assert kinds[-1] == "FULLY_CONNECTED"


def test_an_end_that_costs_nothing_is_float() -> None:
    """The mean's input would have to be made real, which is too dear; the dense layer reads 32 numbers."""
    units = classifier(96)
    whole = frozenset(unit for unit in units if unit.rule is not None)
    found = with_float_end(units, TFLITE, whole)
    assert {unit.name for unit in whole - found} == {"dense"}
    assert with_float_end(units, replace(TFLITE, dynamic=frozenset()), whole) == whole


@pytest.mark.parametrize(("load_ns", "left"), [(0.0, {"dense"}), (1.0, {"dense"}), (300.0, set())])
def test_an_end_whose_real_weights_are_dear_to_load_stays(load_ns: float, left: set[str]) -> None:
    """Behind integers a float product is not quantized on the fly: each of its weights is read as float32."""
    units = classifier(384, 1024)
    whole = frozenset(unit for unit in units if unit.rule is not None)
    assert TFLITE.kernel_costs is not None
    costs = replace(TFLITE.kernel_costs, float32_weight_ns=load_ns)
    found = with_float_end(units, replace(TFLITE, kernel_costs=costs), whole)
    assert {unit.name for unit in whole - found} == left


def test_an_end_that_is_much_of_the_model_stays() -> None:
    units = classifier(96)[:2]
    assert with_float_end(units, TFLITE, frozenset(units)) == frozenset(units)

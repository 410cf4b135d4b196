"""Integers are written only where the whole model gains by them, conversions as they are written included."""

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
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.graph_cost import exact_choices, is_float_faster, written_cost
from convertkit.quantization.place.precision_assignment import total_cost
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of

INT8 = profile(ExportOptions(source="x", precision="int8"))
SIZES: list[int | str] = ["N", 4, 4, 4]


def chain(length: int = 2) -> onnx.ModelProto:
    """Convolutions with a HardSwish behind each: conv0 → swish0 → conv1 → … → a last convolution."""
    rng = np.random.default_rng(0)
    constants = {f"w{i}": rng.normal(0, 0.3, (4, 4, 1, 1)).astype(np.float32) for i in range(length + 1)}
    nodes, at = [], "x"
    for i in range(length):
        nodes += [
            helper.make_node("Conv", [at, f"w{i}"], [f"c{i}"], f"conv{i}"),
            helper.make_node("HardSwish", [f"c{i}"], [f"h{i}"], f"swish{i}"),
        ]
        at = f"h{i}"
    nodes.append(helper.make_node("Conv", [at, f"w{length}"], ["y"], "last"))
    model = model_of(nodes, constants, {"x": SIZES}, {"y": SIZES})
    return onnx.shape_inference.infer_shapes(model)


def costs(conv: OpCost) -> QuantProfile:
    """A call of 10 for everything else, a conversion of 1."""
    call, one = OpCost(0, 0, 10.0, 10.0), OpCost(0, 0, 1.0, 1.0)
    return replace(INT8, kernel_costs=None, machines=(), costs={"Conv": conv, "HardSwish": call, "QuantizeLinear": one})


def units_of(model: onnx.ModelProto, rules: QuantProfile) -> tuple[Unit, ...]:
    return find_units(canonicalize(ir.from_proto(model)).graph, rules)


def named(units: tuple[Unit, ...], *names: str) -> frozenset[Unit]:
    return frozenset(unit for unit in units if unit.name in names)


def test_float_between_integers_is_converted_on_both_sides_of_every_border() -> None:
    rules = costs(OpCost(0, 0, 10.0, 4.0))
    units = units_of(chain(), rules)
    assert written_cost(units, frozenset(), frozenset(), rules) == 50
    integer, real = named(units, "conv0", "conv1", "last"), named(units, "swish0", "swish1")
    # Three integer convolutions, two in float; x and y, and the four tensors around the HardSwish once each.
    assert written_cost(units, integer, frozenset(), rules) == 3 * 4 + 2 * 10 + 6
    # In float, between integers: the convolution's own two tensors are converted there and back.
    fewer = integer - named(units, "conv1")
    assert written_cost(units, fewer, real | named(units, "conv1"), rules) == 2 * 4 + 3 * 10 + 2 + 2 + 2 * 2


def test_float_where_integers_make_it_slower() -> None:
    for integer_call, slow in ((4.0, False), (9.0, False), (12.0, True)):
        rules = costs(OpCost(0, 0, 10.0, integer_call))
        units = units_of(chain(), rules)
        chosen = named(units, "conv0", "conv1", "last")
        assert is_float_faster(units, chosen, frozenset(), rules) is slow


def gates() -> onnx.ModelProto:
    """first → Sigmoid → 3 × 3 → Sigmoid → 3 × 3 → Sigmoid → last."""
    rng = np.random.default_rng(0)
    constants = {f"w{i}": rng.normal(0, 0.3, (4, 4, *[1 + 2 * (i in (1, 2))] * 2)).astype(np.float32) for i in range(4)}
    nodes, at = [], "x"
    for i in range(4):
        pads = [int(i in (1, 2))] * 4
        nodes.append(helper.make_node("Conv", [at, f"w{i}"], ["y" if i == 3 else f"c{i}"], f"conv{i}", pads=pads))
        if i < 3:
            nodes.append(helper.make_node("Sigmoid", [f"c{i}"], [f"s{i}"], f"gate{i}"))
        at = f"s{i}"
    return onnx.shape_inference.infer_shapes(model_of(nodes, constants, {"x": SIZES}, {"y": SIZES}))


def test_a_choice_counts_as_fast_as_it_is_written() -> None:
    """Convolutions that gates in float join to each other compute integers: all that is between them is converted."""
    kinds = {"Conv.pointwise": (50.0, 10.0), "Conv": (9.9, 10.0), "Sigmoid": (10.0, 10.0)}
    costs = {kind: OpCost(0, 0, real, whole) for kind, (real, whole) in kinds.items()}
    for conversion, offered in ((0.3, False), (0.1, True)):
        costs["QuantizeLinear"] = OpCost(0, 0, conversion, conversion)
        rules = replace(INT8, kernel_costs=None, machines=(), costs=costs, least_gain=0.0)
        units = units_of(gates(), rules)
        real = named(units, "gate0", "conv1", "gate1", "conv2", "gate2")
        # As a cut, two conversions of the ends and six of the middle: 2.3 % more than everything in integers, as
        # written four more: 4 %.
        assert total_cost(units, rules, frozenset(units) - real) == pytest.approx(69.8 + 8 * conversion)
        assert written_cost(units, frozenset(units) - real, real, rules) == pytest.approx(69.8 + 12 * conversion)
        choices = exact_choices(units, rules, frozenset(units), frozenset())
        assert (frozenset(units) - real in choices) is offered


def test_floats_that_float_reads_are_not_converted_back() -> None:
    """x is read as float by the gate and as integers by the convolution."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Sigmoid", ["x"], ["s"], "gate"),
        helper.make_node("Add", ["c", "s"], ["y"], "sum"),
    ]
    weights = {"w": np.ones((4, 4, 1, 1), np.float32)}
    model = onnx.shape_inference.infer_shapes(model_of(nodes, weights, {"x": SIZES}, {"y": SIZES}))
    call, one = OpCost(0, 0, 10.0, 10.0), OpCost(0, 0, 1.0, 1.0)
    rules = replace(
        INT8, kernel_costs=None, machines=(), costs={"Conv": call, "Sigmoid": call, "Add": call, "QuantizeLinear": one}
    )
    units = units_of(model, rules)
    assert written_cost(units, named(units, "conv"), frozenset(), rules) == 3 * 10 + 2


def test_a_model_too_small_for_integers_stays_float_with_integer_weights(quantized) -> None:
    """Hardly more than conversions would be left: 4 pixels of 4 × 4."""
    data = np.random.default_rng(1).normal(0, 1, (16, 4, 4, 4)).astype(np.float32)
    result = quantized(chain(8), data)
    assert not result.pairs()
    assert result.snr_db(data) > 30
    (note,) = result.stage.diagnosis["notes"]
    assert note.startswith("the artifact is the float model: integers would save less than 10 % of the time")
    assert "--full-integer" in note
    insisted = quantized(chain(8), data, full_integer=True)
    assert len(insisted.pairs()) > 16
    assert insisted.stage.diagnosis["notes"] == []


def test_the_result_says_that_nothing_computes_in_integers(tmp_path: Path) -> None:
    """The weights are int8 all the same, where they are large enough to be worth it."""
    onnx.save(chain(8), tmp_path / "m.onnx")
    data = np.random.default_rng(1).normal(0, 1, (16, 4, 4, 4)).astype(np.float32)
    result = convertkit.export(tmp_path / "m.onnx", "tflite", int8=True, calib=data, output=tmp_path / "out")
    assert any("integers would save less" in note for note in result.report["notes"])
    assert "--full-integer insists" in (tmp_path / "out" / "report.html").read_text()

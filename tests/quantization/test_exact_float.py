"""Between integers a float kernel computes the graph's integers; which kernel runs is a matter of speed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.onnx.canonical import canonicalize
from convertkit.profile import OpCost, QuantProfile
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.exact_float import exact_in_float
from convertkit.quantization.place.precision_assignment import choose_integer, total_cost
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of

OPTIONS = ExportOptions(source="x", precision="int8")
INT8 = profile(OPTIONS)


def chain(*, between: str = "Transpose", also_output: bool = False) -> onnx.ModelProto:
    """x → a move or an operator without integers → first → depthwise → last → y, each a convolution of 4 channels."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (4, 4, 3, 3), "w2": (4, 1, 3, 3), "w3": (4, 4, 1, 1)}
    constants = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node(between, ["x"], ["t"], "ahead"),
        helper.make_node("Conv", ["t", "w1"], ["a"], "first", pads=[1] * 4),
        helper.make_node("Conv", ["a", "w2"], ["b"], "depthwise", pads=[1] * 4, group=4),
        helper.make_node("Conv", ["b", "w3"], ["y"], "last"),
    ]
    shape: list[int | str] = [4, 4, 4, 4]
    model = model_of(nodes, constants, {"x": shape}, dict.fromkeys(("y", "b") if also_output else ("y",), shape))
    return onnx.shape_inference.infer_shapes(model)


def units_of(model: onnx.ModelProto) -> tuple[Unit, ...]:
    return find_units(canonicalize(ir.from_proto(model)).graph, INT8)


def exact(units: tuple[Unit, ...], *integer: str, rules: QuantProfile = INT8) -> set[str]:
    return {unit.name for unit in exact_in_float(units, frozenset(u for u in units if u.name in integer), rules)}


def test_everything_from_the_input_to_integers() -> None:
    assert exact(units_of(chain()), "last") == {"ahead", "first", "depthwise"}


def test_behind_reals_and_at_outputs_float_stays() -> None:
    assert exact(units_of(chain(between="Exp")), "last") == set()
    assert exact(units_of(chain(between="Exp")), "first", "last") == {"depthwise"}
    assert exact(units_of(chain()), "first", "depthwise") == set()
    assert exact(units_of(chain(also_output=True)), "first", "last") == set()


@pytest.mark.parametrize("change", [{"tie_free": False}, {"keeps_float": False}, {"dynamic": frozenset({"Conv"})}])
def test_only_where_the_integers_are_the_same(change: dict[str, object]) -> None:
    assert exact(units_of(chain()), "last", rules=replace(INT8, **change)) == set()  # type: ignore[arg-type]


def priced(depthwise: OpCost) -> QuantProfile:
    prices = {"Conv": OpCost(9.0, 1.0), "Conv.depthwise": depthwise, "QuantizeLinear": OpCost(1.0, 1.0)}
    return replace(INT8, kernel_costs=None, machines=(), costs={**INT8.costs, **prices})


def test_float_kernels_between_integers_pay_for_both_conversions() -> None:
    """256 elements are converted twice; 9 products for each have to save more than that."""
    units = units_of(chain())
    for saved, stays in ((1.9, True), (2.1, False)):
        rules = priced(OpCost(1.0, 1.0 + saved / 9))
        chosen = choose_integer(units, rules, insist=False)
        assert ("depthwise" in {unit.name for unit in chosen}) is stays
        others = [chosen ^ {unit} for unit in units if unit.name == "depthwise"]
        assert all(total_cost(units, rules, chosen) < total_cost(units, rules, other) for other in others)


def test_neighbours_in_float_convert_on_their_own() -> None:
    """Two float convolutions in a row have integers between them, unlike others; in a float model nothing has."""
    units = units_of(chain())
    rules = priced(OpCost(1.0, 9.0))
    for names, conversions in (({"last"}, 1 + 2), (set[str](), 0)):
        integer = frozenset(unit for unit in units if unit.name in names)
        alone, joined = (total_cost(units, each, integer) for each in (rules, replace(rules, keeps_float=False)))
        assert alone - joined == pytest.approx(conversions * 256)

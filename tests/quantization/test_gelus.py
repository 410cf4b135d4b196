"""GELU written out is one operator of the target: no part of it becomes integer, and between integers it is a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.recognise.written_gelu import gelu_nodes
from convertkit.profile import OpCost, QuantProfile
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.graph_cost import exact_choices
from convertkit.quantization.place.precision_assignment import choose_integer, total_cost
from convertkit.quantization.search.plan import Plan, Ranges, apply
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of

INT8 = replace(profile(ExportOptions(source="x", precision="int8", device=("x86",))), least_gain=0.0)
"""What is asked here is which mix is the cheapest, not whether it is worth it."""


def gelu(form: str) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """GELU of ``a`` as ``g``."""
    numbers = {"one": 1.0, "half": 0.5, "root": 2**0.5, "cube": 0.044715, "slope": 0.7978845608, "three": 3.0}
    node = helper.make_node
    steps = {
        "erf": [node("Div", ["a", "root"], ["d"]), node("Erf", ["d"], ["e"])],
        "tanh": [
            node("Pow", ["a", "three"], ["p"]),
            node("Mul", ["p", "cube"], ["c"]),
            node("Add", ["a", "c"], ["s"]),
            node("Mul", ["s", "slope"], ["d"]),
            node("Tanh", ["d"], ["e"]),
        ],
    }
    last = [node("Add", ["e", "one"], ["f"]), node("Mul", ["a", "half"], ["h"]), node("Mul", ["h", "f"], ["g"])]
    return [*steps[form], *last], {name: np.array(number, np.float32) for name, number in numbers.items()}


def layers(form: str, rows: int = 64) -> tuple[ir.Graph, tuple[Unit, ...]]:
    """x + MatMul(GELU(MatMul(x))), with GELU as the one operator that the hub makes of it."""
    graph = canonicalize(written(form, rows)).graph
    assert "Gelu" in [node.op_type for node in graph]
    return graph, find_units(graph, INT8)


def written_out(form: str) -> ir.Graph:
    """The same with GELU written out."""
    model = written(form, 64)
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    return model.graph


def written(form: str, rows: int) -> ir.Model:
    """The model as an exporter writes it."""
    middle, constants = gelu(form)
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(0, 0.1, (128, 512)), "v": rng.normal(0, 0.1, (512, 128))}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "wide"),
        *middle,
        helper.make_node("MatMul", ["g", "v"], ["b"], "narrow"),
        helper.make_node("Add", ["x", "b"], ["y"], "sum"),
    ]
    arrays = {**constants, **{name: array.astype(np.float32) for name, array in weights.items()}}
    model = model_of(nodes, arrays, {"x": [1, rows, 128]}, {"y": [1, rows, 128]})
    return ir.from_proto(onnx.shape_inference.infer_shapes(model))


@pytest.mark.parametrize(("form", "count"), [("erf", 5), ("tanh", 8)])
def test_all_of_it_and_nothing_else(form: str, count: int) -> None:
    graph = written_out(form)
    found = gelu_nodes(graph)
    assert len(found) == count
    assert not {"wide", "narrow", "sum"} & {node.name for node in found}


@pytest.mark.parametrize("form", ["erf", "tanh"])
def test_it_stays_whole_between_integers(form: str) -> None:
    _, units = layers(form)
    chosen = {unit.name for unit in choose_integer(units, INT8, insist=False)}
    assert chosen >= {"wide", "narrow"}
    assert not chosen & {unit.name for unit in units if unit.kinds[-1] in INT8.lookup}


def test_a_look_up_draws_the_products_beside_it_into_integers() -> None:
    """Where it were computed in float, products that quantize on the fly would be as good."""
    _, units = layers("erf")
    computed = replace(INT8, lookup=frozenset())
    dear: QuantProfile = replace(computed, costs={**computed.costs, "QuantizeLinear": OpCost(0.5, 0.5)})
    assert not choose_integer(units, dear, insist=False)
    looked_up = choose_integer(units, INT8, insist=False)
    assert total_cost(units, INT8, looked_up) < total_cost(units, computed, looked_up)


def test_a_product_costs_what_quantizing_its_rows_takes() -> None:
    _, units = layers("erf")
    by_name = {unit.name: unit for unit in units}
    nothing = frozenset[Unit]()
    dear = replace(INT8, costs={**INT8.costs, "DynamicQuantizeLinear": OpCost(1.0, 0.0, 10.0, float32_element=2.0)})
    free = replace(INT8, costs={**INT8.costs, "DynamicQuantizeLinear": OpCost(0.0, 0.0)})
    products = (by_name["wide"], by_name["narrow"])
    added = total_cost(products, dear, nothing) - total_cost(products, free, nothing)
    assert added == pytest.approx(64 * (128 + 10 + 2 * 512) + 64 * (512 + 10 + 2 * 128))


def test_a_sum_in_float_is_offered_where_it_is_about_as_fast() -> None:
    _, units = layers("erf")
    close = replace(INT8, costs={**INT8.costs, "Add": OpCost(0.32, 0.25), "QuantizeLinear": OpCost(0.05, 0.05)})
    chosen = choose_integer(units, close, insist=False)
    assert "sum" in {unit.name for unit in chosen}
    (offered,) = exact_choices(units, close, chosen, frozenset())
    assert {unit.name for unit in chosen - offered} == {"sum"}
    assert not exact_choices(units, replace(close, dynamic=frozenset()), chosen, frozenset())
    dear = replace(close, costs={**close.costs, "Add": OpCost(2.0, 0.25)})
    assert not exact_choices(units, dear, choose_integer(units, dear, insist=False), frozenset())


def test_products_that_quantize_on_the_fly_have_integer_weights_in_any_case() -> None:
    graph, _ = layers("erf")
    model = ir.Model(graph, ir_version=10)
    apply(model, Plan(frozenset(), "minmax", dynamic=frozenset({"wide"})), Ranges({}, INT8))
    made = {value: node.op_type for node in model.graph for value in node.outputs}
    stored = {
        node.name: made.get(node.inputs[1]) for node in model.graph if node.op_type == "MatMul" and node.inputs[1]
    }
    assert stored == {"wide": "DequantizeLinear", "narrow": None}


@pytest.mark.parametrize(("rows", "integer"), [(1, False), (64, True)])
def test_conversions_of_few_numbers_cost_a_call(rows: int, integer: bool) -> None:
    _, units = layers("erf", rows)
    free = replace(INT8, costs={**INT8.costs, "QuantizeLinear": replace(INT8.costs["QuantizeLinear"], integer_call=0)})
    dear = replace(
        INT8, costs={**INT8.costs, "QuantizeLinear": replace(free.costs["QuantizeLinear"], integer_call=3e3)}
    )
    assert choose_integer(units, free, insist=False)
    assert bool(choose_integer(units, dear, insist=False)) is integer
    assert INT8.costs["QuantizeLinear"].integer_call > 0

"""Small dense layers: a call takes longer in integers than they save, and so does the first product of a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from convertkit.kernel_costs import SMALL_MATRIX, DenseShape
from convertkit.onnx.canonical import canonicalize
from convertkit.quantization.graph.units import Unit, find_units
from convertkit.quantization.place.dense import dense_shape
from convertkit.quantization.place.precision_assignment import choose_integer
from convertkit.recipe import ExportOptions
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of

INT8 = profile(ExportOptions(source="x", precision="int8", device=("x86",)))


def layers(rows: int, width: int, depth: int = 3) -> tuple[Unit, ...]:
    """``depth`` dense layers, each of ``width`` × ``width``, with a Relu behind."""
    rng = np.random.default_rng(0)
    nodes, arrays, last = [], {}, "x"
    for number in range(depth):
        arrays[f"w{number}"] = rng.normal(0, 0.1, (width, width)).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [last, f"w{number}"], [f"m{number}"], f"dense{number}"))
        last = "y" if number == depth - 1 else f"r{number}"
        nodes.append(helper.make_node("Relu", [f"m{number}"], [last], f"relu{number}"))
    model = model_of(nodes, arrays, {"x": [rows, width]}, {"y": [rows, width]})
    return find_units(canonicalize(ir.from_proto(onnx.shape_inference.infer_shapes(model))).graph, INT8)


@pytest.mark.parametrize(
    ("rows", "width", "integer"),
    [
        pytest.param(1, 32, False, id="a few products"),
        pytest.param(34, 16, False, id="rows of a tile's quarter"),
        pytest.param(64, 128, True, id="full tiles"),
        pytest.param(64, 512, True, id="many weights"),
    ],
)
def test_integers_have_to_fill_their_tiles(rows: int, width: int, integer: bool) -> None:
    assert bool(choose_integer(layers(rows, width), INT8, insist=False)) is integer


def test_the_first_product_of_a_model_costs_more() -> None:
    units = layers(64, 64, depth=1)
    assert INT8.kernel_costs is not None
    free, dear = (replace(INT8, kernel_costs=replace(INT8.kernel_costs, start_ns=start)) for start in (0.0, 5e3))
    assert choose_integer(units, free, insist=False)
    assert not choose_integer(units, dear, insist=False)


@pytest.mark.parametrize(("factor", "integer"), [(0.7, True), (0.95, False)])
def test_every_machine_of_the_table_gains(factor: float, integer: bool) -> None:
    """One machine has integer products for nothing: on the mean they pay in either case."""
    units, kernel_costs = layers(64, 128), INT8.kernel_costs
    assert kernel_costs is not None
    (real,) = kernel_costs.float32_dense
    machines = [replace(real, product=share * real.product, output=share * real.output) for share in (0.0, factor)]
    rules = replace(INT8, kernel_costs=replace(kernel_costs, integer_dense=tuple(machines)))
    assert bool(choose_integer(units, rules, insist=False)) is integer


@pytest.mark.parametrize(("factor", "gains"), [(0.9, True), (1.1, False)])
def test_between_floats_no_machine_of_the_table_loses(factor: float, gains: bool) -> None:
    """One machine has integer products for nothing: on the mean they pay in either case."""
    shape, kernel_costs = DenseShape(64, 128, 128), INT8.kernel_costs
    assert kernel_costs is not None
    (real,) = kernel_costs.float32_dense
    machines = [replace(real, product=share * real.product, output=share * real.output) for share in (0.0, factor)]
    free = replace(kernel_costs, integer_dense=tuple(machines), read_ns=0.0, row_ns=0.0)
    assert bool(free.gain_between_floats(shape, read=64 * 128)) is gains


@pytest.mark.parametrize(
    ("op", "sizes", "attributes", "shape"),
    [
        ("MatMul", (24, 8), {}, DenseShape(6, 24, 8)),
        ("Gemm", (8, 24), {"transB": 1}, DenseShape(6, 24, 8)),
        ("MatMul", (24, SMALL_MATRIX), {}, None),
    ],
)
def test_shape(op: str, sizes: tuple[int, int], attributes: dict[str, int], shape: DenseShape | None) -> None:
    model = model_of(
        [helper.make_node(op, ["x", "w"], ["y"], **attributes)],
        {"w": np.ones(sizes, np.float32)},
        {"x": [6, 24]},
        {"y": [6, sizes[0] if attributes else sizes[1]]},
    )
    (node,) = ir.from_proto(model).graph
    assert dense_shape(node) == shape

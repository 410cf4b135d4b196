"""What ONNX Runtime's files take elsewhere, by its cost tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit.errors import Unsupported
from convertkit.onnx.inspection import operators
from convertkit.targets.onnxruntime import as_fused as fusing
from convertkit.targets.onnxruntime.as_fused import as_fused
from convertkit.targets.onnxruntime.devices import MACHINES, error_of
from convertkit.targets.onnxruntime.estimate import estimates, prices
from convertkit.targets.onnxruntime.fused_kinds import _ROWS, Priced, priced
from tests import onnx_models

CHANNELS, FILTERS, SIZE = 8, 12, 14
CALIB = {"x": np.random.default_rng(1).normal(0, 1, (16, CHANNELS, SIZE, SIZE + 2)).astype(np.float32)}


def written(place: Path, *, scores: bool) -> Path:
    """A convolution with its activation, a depthwise one, a mean, a product and a Softmax; the batch is free."""
    rng = np.random.default_rng(0)
    shapes = {"w": (FILTERS, CHANNELS, 3, 3), "v": (FILTERS, 1, 3, 3), "m": (FILTERS, 10)}
    weights = [
        numpy_helper.from_array(rng.normal(0, 0.2, shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "v"], ["d"], "wise", pads=[1] * 4, group=FILTERS),
        helper.make_node("GlobalAveragePool", ["d"], ["g"], "mean"),
        helper.make_node("Flatten", ["g"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "m"], ["p" if scores else "y"], "product"),
        *([helper.make_node("Softmax", ["p"], ["y"], "scores")] if scores else []),
    ]
    ends = {"x": ["n", CHANNELS, SIZE, SIZE + 2]}, {"y": ["n", 10]}
    return onnx_models.write(place, onnx_models.model(nodes, *ends, weights))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("estimated"), scores=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, convertkit.Result]:
    place = tmp_path_factory.mktemp("made")
    source = written(place, scores=False)
    ways = {
        "float32": ("onnxruntime", {}),
        "int8": ("onnxruntime", {"int8": True, "full_integer": True, "calib": CALIB, "device": "arm64-a76"}),
        "ort": ("ort-mobile", {}),
    }
    return {name: convertkit.export(source, target, output=place / name, **how)
            for name, (target, how) in ways.items()}  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
def test_every_row_that_an_operator_may_have_has_a_price(machine: str) -> None:
    table = prices(machine)
    rows = {*_ROWS.values(), "ReduceMean.maps", "Resize", "Resize.interpolated", "Mul.gated", "LayerNormalization"}
    assert rows - table.rows.keys() == set()
    assert 0 < table.node < table.call


def test_a_float_file_takes_what_its_kernels_take_and_a_batch_is_one(source: Path) -> None:
    (found,) = estimates(source, ("arm64-a76",))
    table, pixels = prices("arm64-a76"), SIZE * (SIZE + 2)
    work = {
        "Conv": Priced("Conv", False, pixels * FILTERS * CHANNELS * 9.0, pixels * (CHANNELS + FILTERS)),
        "wise": Priced("Conv.depthwise", False, pixels * FILTERS * 9.0, pixels * 2.0 * FILTERS),
        "mean": Priced("GlobalAveragePool", False, float(pixels * FILTERS)),
        "Gemm": Priced("Gemm", False, FILTERS * 10.0, FILTERS + 10.0),
        "Softmax": Priced("Softmax", False, 10.0),
    }
    wanted = [table.nanoseconds([each]) / 1e6 for each in work.values()]
    # The Relu is a part of the convolution, and what is reshaped is not moved.
    assert [node.kind for node in found.nodes] == [each.kind for each in operators(source)]
    assert [node.ms for node in found.nodes] == pytest.approx(
        [wanted[0], 0, *wanted[1:3], table.node / 1e6, *wanted[3:]]
    )
    assert found.ms == pytest.approx(sum(node.ms for node in found.nodes) + table.call / 1e6)


def test_integers_are_faster_and_stand_at_the_operators_of_the_file(made: dict[str, convertkit.Result]) -> None:
    report = made["int8"].report
    (told,) = (each for each in report["estimates"]["devices"] if each["shown"])
    (found,) = convertkit.bench(made["int8"].path, device="arm64-a76").estimated
    assert told["ms"] == pytest.approx(found.ms, rel=1e-3)
    assert len(told["layers_ms"]) == len(report["operators"]) == len(found.nodes)
    convolutions = [node.ms for node in found.nodes if node.kind == "Conv"]
    plain = convertkit.bench(made["float32"].path, device="arm64-a76").estimated[0]
    assert all(
        own < real.ms for own, real in zip(convolutions, (n for n in plain.nodes if n.kind == "Conv"), strict=True)
    )
    assert min(convolutions) > prices("arm64-a76").node / 1e6


def test_a_file_that_came_fused_takes_as_long(made: dict[str, convertkit.Result]) -> None:
    plain, fused = (convertkit.bench(made[name].path, device="x86").estimated[0] for name in ("float32", "ort"))
    assert fused.ms == pytest.approx(plain.ms)
    assert "FusedConv" in {node.kind for node in fused.nodes}


def test_a_report_of_a_fused_file_tells_its_time_and_no_layers(tmp_path: Path) -> None:
    source = written(tmp_path, scores=False)
    how = {"int8": True, "full_integer": True, "calib": CALIB, "device": "arm64-a76"}
    report = convertkit.export(source, "ort-mobile", output=tmp_path / "out", **how).report
    (told,) = (each for each in report["estimates"]["devices"] if each["shown"])
    assert told["ms"] < told["float32_ms"]
    assert told["layers_ms"] == []


def test_several_devices_are_each_for_themselves(source: Path) -> None:
    both = estimates(source, ("x86", "arm64-a76"))
    assert [each.device for each in both] == ["x86", "arm64-a76"]
    assert both[0].ms < both[1].ms
    assert both == estimates(source, ("x86", "arm64-a76"))


def test_an_operator_that_no_table_knows_is_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("Det", ["x"], ["y"], "volume")]
    path = onnx_models.write(tmp_path, onnx_models.model(nodes, {"x": [3, 4, 4]}, {"y": [3]}))
    with pytest.raises(Unsupported, match="y: no cost table knows Det"):
        estimates(path, ("x86",))


def test_what_is_too_large_is_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "_MOST_BYTES", 100)
    with pytest.raises(Unsupported, match="a file above 512 MiB is not estimated"):
        as_fused(source)


@pytest.mark.parametrize(
    ("op", "found"),
    [
        ("NhwcMaxPool", Priced("MaxPool", True, 70.0)),
        ("QLinearAdd", Priced("Add", True, 70.0)),
        ("QLinearSoftmax", Priced("Softmax", True, 70.0)),
        ("Relu", Priced("Relu", False, 70.0)),
    ],
)
def test_kernels_of_bytes_are_known_by_their_names(op: str, found: Priced) -> None:
    """ONNX Runtime does not tell the types of what they write."""
    node = ir.Node("com.microsoft", op, [ir.val("a", None, (2, 35))])
    node.outputs[0].name, node.outputs[0].shape = "y", ir.Shape((2, 35))
    assert priced(node) == (found,)


def test_an_integer_kernel_without_a_price_takes_what_floats_take() -> None:
    table = prices("arm64-a76")
    real, whole = (table.nanoseconds([Priced("Softmax", each, 1e5)]) for each in (False, True))
    assert whole == real > table.node


def test_a_product_that_quantizes_what_it_reads_takes_that_too() -> None:
    read, weight = (ir.val(name, ir.DataType.FLOAT, shape) for name, shape in (("a", (5, 7)), ("b", (7, 3))))
    weight.const_value = ir.tensor(np.zeros((7, 3), np.int8))
    node = ir.Node("com.microsoft", "DynamicQuantizeMatMul", [read, weight])
    node.outputs[0].name, node.outputs[0].shape = "y", ir.Shape((5, 3))
    assert priced(node) == (Priced("QuantizeLinear", False, 35.0), Priced("MatMul", True, 105.0, 50.0))


def test_what_the_runtime_adds_counts_beside_the_nodes_of_the_file(tmp_path: Path) -> None:
    """It computes float16 in float32, with casts that no operator of the file stands for."""
    nodes = [helper.make_node("Sin", ["x"], ["s"], "sine"), helper.make_node("Exp", ["s"], ["y"], "power")]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, [1, 5000]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = onnx_models.write(tmp_path, model)
    fused = as_fused(path).graph
    assert any(node.op_type == "Cast" for node in fused)
    (found,) = estimates(path, ["arm64-a76"])
    table = prices("arm64-a76")
    assert found.ms * 1e6 == pytest.approx(table.call + sum(table.nanoseconds(priced(node)) for node in fused))
    assert found.ms * 1e6 > 1.01 * table.call + sum(node.ms for node in found.nodes) * 1e6


def test_how_far_off_is_told_of_times_that_were_compared() -> None:
    assert [error_of("arm64-a76", ms) is None for ms in (0.5, 2.0)] == [True, False]
    assert error_of("arm64-a55", 2.0) is None

"""The cost table of ONNX Runtime's kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.save import save_model
from convertkit.profile import WEIGHTED
from convertkit.quantization.graph.sizes import measure_sizes
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.precision_assignment import choose_integer
from convertkit.quantization.prepare.prepare import prepare
from convertkit.recipe import ExportOptions
from convertkit.targets.onnxruntime import stage
from convertkit.targets.onnxruntime.devices import MACHINES
from convertkit.targets.onnxruntime.profile import costs, costs_for, profile
from convertkit.targets.onnxruntime.stage import DeliverOnnx


@pytest.mark.parametrize(("machine", "most"), [("x86", 0.1), ("arm64-a76", 0.5), ("arm64-i8mm", 0.5), ("arm64-a55", 3)])
def test_whatever_has_weights_has_a_price(machine: str, most: float) -> None:
    """Without one a multiply-add counts a nanosecond: a hundred times what it takes on x86, twice on the core.

    Of windows of 7 × 7, the only ones that were measured, a price of an element says as much as one of a product.
    """
    priced = costs(machine)
    assert priced.keys() == costs().keys()
    for kind in WEIGHTED:
        assert 0 < max(priced[kind].float32, priced[kind].float32_element / 49) < most, kind


def test_a_device_decides_and_names_what_it_chooses() -> None:
    plain, own = (profile(ExportOptions(source="", precision="int8", device=each)) for each in ((), ("arm64-a76",)))
    assert (plain.name, plain.devices) == ("onnxruntime int8", ())
    assert (own.name, own.devices) == ("onnxruntime int8 for arm64-a76", ("arm64-a76",))
    assert own.costs["Conv"] == costs("arm64-a76")["Conv"] != plain.costs["Conv"]


def test_several_devices_count_the_same_and_each_has_to_gain() -> None:
    found = profile(ExportOptions(source="", precision="int8", device=MACHINES))
    assert found.devices == MACHINES
    alone = [each.costs["Conv"].integer for each in found.alone()]
    assert alone == [costs(name)["Conv"].integer for name in found.devices]
    assert found.costs["Conv"].integer == pytest.approx(sum(alone) / len(MACHINES))


def test_devices_of_another_target_leave_the_servers_table() -> None:
    found = profile(ExportOptions(source="", precision="int8", device=("x86-vnni",)))
    assert (found.name, found.costs["Conv"]) == ("onnxruntime int8", costs()["Conv"])
    assert costs_for(("x86-vnni", "arm64-a76")) == costs("arm64-a76")


def test_the_step_says_for_which_device_it_is() -> None:
    assert DeliverOnnx(None, "int8", devices=("arm64-a76",)).options["devices"] == ("arm64-a76",)
    assert "devices" not in DeliverOnnx(None, "w8", devices=("arm64-a76",)).options
    assert DeliverOnnx(None, "int8").options == DeliverOnnx(None, "int8", devices=("x86-vnni",)).options


@pytest.mark.parametrize(
    ("devices", "kept"),
    [((), "UINT8"), (("arm64-a76",), "INT8"), (("phone",), "UINT8"), (("arm64-a76", "x86"), "UINT8")],
)
def test_an_a76_alone_gets_signed_activations(tmp_path: Path, devices: tuple[str, ...], kept: str) -> None:
    """MobileNetV2 takes 0.94 of the time there by them, 1.26 with integer matrix products."""
    scale, zero = numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.int8(3), "z")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(name, 1, (2, 3)) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [scale, zero])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    source = save_model(ir.from_proto(proto), tmp_path / "source.onnx", "test")
    made = DeliverOnnx(None, "int8", devices=devices).run(source, tmp_path)
    (written,) = (node for node in ir.load(made.path).graph if node.op_type == "QuantizeLinear")
    point = written.inputs[2]
    assert point is not None
    assert point.const_value is not None
    assert point.const_value.dtype.name == kept


def test_the_step_chooses_products_by_the_table_of_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[object] = []
    monkeypatch.setattr(stage, "make_dynamic", lambda _, table: used.append(table))
    infos = [helper.make_tensor_value_info(name, 1, (2, 3)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    source = save_model(ir.from_proto(proto), tmp_path / "source.onnx", "test")
    for devices in ((), ("arm64-a76",)):
        DeliverOnnx(None, "int8", devices=devices).run(source, tmp_path)
    assert used == [costs(), costs("arm64-a76")]


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_integers_around_a_float_convolution_pay(op: str) -> None:
    """A decoder's transposed convolution, which has no integer kernel, is a tenth of the time, not most of it."""
    rng, channels = np.random.default_rng(0), 32
    weights = {f"w{n}": rng.normal(0, 0.1, (channels, channels, 3, 3)).astype(np.float32) for n in range(4)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w1"], ["b"], pads=[1] * 4),
        helper.make_node(op, ["b", "w2"], ["c"], pads=[1] * 4),
        helper.make_node("Conv", ["c", "w3"], ["y"], pads=[1] * 4),
    ]
    shape = [1, channels, 28, 28]
    infos = [helper.make_tensor_value_info(name, 1, shape) for name in ("x", "y")]
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], stored)
    model = canonicalize(
        ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    )
    prepare(model)
    measure_sizes(model, {"x": np.zeros(shape, np.float32)}, {})
    rules = profile(ExportOptions(source="", precision="int8"))
    chosen = choose_integer(find_units(model.graph, rules), rules, insist=False)
    assert len(chosen) == 3 + (op == "Conv")

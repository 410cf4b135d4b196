"""``--device``: tables of several devices, what has to pay on each, and names that nobody knows."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper, numpy_helper

import convertkit
from convertkit.errors import UsageError
from convertkit.kernel_costs import ConvShape, DenseShape, TransposedShape
from convertkit.onnx.canonical import canonicalize
from convertkit.options.flags import options_from
from convertkit.profile import OpCost
from convertkit.quantization.graph.units import find_units
from convertkit.quantization.place.estimates import estimates
from convertkit.quantization.place.precision_assignment import choose_integer
from convertkit.recipe import ExportOptions
from convertkit.targets.forms.devices import machines_of
from convertkit.targets.tflite.costs import tables as module
from convertkit.targets.tflite.costs.tables import tables
from convertkit.targets.tflite.devices import DEVICES, LIKELY, MACHINES
from convertkit.targets.tflite.inspection import placed_operators
from convertkit.targets.tflite.profile import profile
from tests.quantization.models import model_of

SHAPES = (
    ConvShape(784, 28, (3, 3), 1, 24, 40),
    ConvShape(784, 28, (1, 1), 1, 24, 40),
    TransposedShape(784, 2.25, 16, 8),
    DenseShape(4, 64, 32),
)

NO_DOT_PRODUCTS = ("x86-avx512",)
"""Where integers of 8 bits save next to nothing over floats: docs/measurements/device-costs.md."""


def options(*devices: str) -> ExportOptions:
    return ExportOptions(source="x", precision="int8", device=devices)


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_prices_what_the_servers_tables_do(name: str) -> None:
    folder = Path(module.__file__).parent
    rows = {each: tomllib.loads((folder / f"{each}.toml").read_text())["ns_per_unit"] for each in (name, "x86")}
    assert rows[name].keys() == rows["x86"].keys()
    for kind, row in rows[name].items():
        assert all(np.isfinite(value) and value >= 0 for value in row.values()), kind
    for shape in SHAPES:
        integer, real = tables((name,)).kernel_costs.times(shape)
        assert integer > 0, shape
        assert real > 0, shape
    fills_every_tile = ConvShape(784, 28, (3, 3), 1, 64, 64)
    integer, real = tables((name,)).kernel_costs.times(fills_every_tile)
    assert integer < (1.1 * real if name in NO_DOT_PRODUCTS else real / 2)


@pytest.mark.parametrize("kind", ["Add", "Conv.depthwise", "QuantizeLinear"])
def test_what_the_second_level_of_a_server_with_amx_lacks_is_dearer(kind: str) -> None:
    """2 MB of it hold the 200,704 elements of 56 × 56 × 64 in float32, read and written, and not four times as many."""
    cost, work = tables(("x86-amx",)).costs[kind], 9 if kind == "Conv.depthwise" else 1
    near, far = (cost.times(work * elements, 2 * elements)[1] / elements for elements in (200704.0, 802816.0))
    assert far > 1.2 * near


@pytest.mark.parametrize(("device", "outputs"), [("x86-amx", 4), ("x86-vnni", 0)])
def test_tiles_of_64_channels_are_filled_with_neighbours(device: str, outputs: int) -> None:
    assert tables((device,)).kernel_costs.together(ConvShape(56 * 56, 56, (1, 1), 1, 16, 16)) == outputs


@pytest.mark.parametrize("devices", [("phone",), ("phone", "x86"), ("arm64-a76", "phone"), ()])
def test_shares_are_one_in_all(devices: tuple[str, ...]) -> None:
    assert sum(machines_of(devices).values()) == pytest.approx(1.0)


def test_a_mix_is_the_weighted_sum_of_its_machines() -> None:
    shares = machines_of(("phone",))
    mixed, alone = tables(("phone",)), {name: tables((name,)) for name in shares}
    for shape in SHAPES:
        expected = [
            sum(share * alone[name].kernel_costs.times(shape)[i] for name, share in shares.items()) for i in (0, 1)
        ]
        assert mixed.kernel_costs.times(shape) == pytest.approx(expected)
    for kind, cost in mixed.costs.items():
        expected = sum(share * alone[name].costs[kind].times(1e4, 2e4)[1] for name, share in shares.items())
        assert cost.times(1e4, 2e4)[1] == pytest.approx(expected), kind
    assert len(mixed.machines) == len(mixed.kernel_costs.machines())


def test_servers_and_a_phone_together_are_three_machines() -> None:
    both = tables(("x86", "arm64-a76"))
    assert both.kernel_costs.weights == (0.25, 0.25, 0.5)
    assert [each is not None for each in both.machines] == [True] * 3
    assert {tile for each in both.kernel_costs.machines() for tile in each.integer} == set(both.kernel_costs.integer)


def test_integers_have_to_pay_on_each_machine() -> None:
    """Half the time on the mean, and slower than float on one of the two."""
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    proto = model_of(nodes, {}, {"x": [1, 64, 64, 64]}, {"y": [1, 64, 64, 64]})
    model = canonicalize(ir.from_proto(proto))
    known = profile(options("phone"))
    free, cheap, dear = OpCost(0.0, 0.0), OpCost(1.0, 0.1), OpCost(1.0, 1.1)
    units = find_units(model.graph, known)

    def chosen(*each: OpCost) -> bool:
        machines = tuple({"Relu": cost, "QuantizeLinear": free} for cost in each)
        mean = {"Relu": OpCost(1.0, 0.6), "QuantizeLinear": free}
        return bool(choose_integer(units, replace(known, costs=mean, machines=machines), insist=False))

    assert chosen(cheap, cheap)
    assert not chosen(cheap, dear)


def test_fewer_integers_that_gain_on_each_machine_are_better_than_none() -> None:
    """Both operators are best for the sum, but lose on the second machine; the first alone gains on each."""
    nodes = [helper.make_node("Relu", ["x"], ["m"], "first"), helper.make_node("HardSwish", ["m"], ["y"], "second")]
    proto = model_of(nodes, {}, {"x": [1, 64, 64, 64]}, {"y": [1, 64, 64, 64]})
    known = profile(options("phone"))
    units = find_units(canonicalize(ir.from_proto(onnx.shape_inference.infer_shapes(proto))).graph, known)
    free = OpCost(0.0, 0.0)
    slow = {"Relu": OpCost(10.0, 1.0), "HardSwish": OpCost(10.0, 1.0), "QuantizeLinear": free}
    fast = {"Relu": OpCost(1.0, 0.1), "HardSwish": OpCost(1.0, 2.0), "QuantizeLinear": free}
    both = {"Relu": OpCost(5.5, 0.55), "HardSwish": OpCost(5.5, 1.5), "QuantizeLinear": free}

    def chosen(*machines: dict[str, OpCost]) -> set[str]:
        rules = replace(known, costs=both, machines=machines)
        return {unit.name for unit in choose_integer(units, rules, insist=False)}

    assert chosen(slow, slow) == {"first", "second"}
    assert chosen(slow, fast) == {"first"}


def test_what_other_tables_choose_has_another_key() -> None:
    assert profile(options()).name == "tflite int8"
    assert profile(options("x86")).name == "tflite int8 for x86"
    assert profile(options("x86", "arm64-a76")).name == "tflite int8 for x86 + arm64-a76"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"target": "tflite", "device": "arm64-a67"}, "no device is called so, did you mean 'arm64-a76'"),
        ({"target": "openvino", "device": "phone"}, "--device does nothing for openvino; it is for"),
    ],
)
def test_what_no_target_knows_is_refused(given: dict[str, str], sentence: str, tmp_path: Path) -> None:
    calib = {"x": np.zeros((8, 4), np.float32)}
    with pytest.raises(UsageError, match=sentence):
        convertkit.export("model.onnx", int8=True, calib=calib, output=tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_a_device_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="--device phone is given twice"):
        options_from({"source": "m.onnx", "target": "tflite", "device": "phone,phone", "w8": True})


@pytest.mark.parametrize(
    ("device", "has_loop"), [((), True), (("phone",), True), (("x86-vnni",), False), (("x86-amx",), True)]
)
def test_a_device_says_how_a_float_gru_is_written(device: tuple[str, ...], has_loop: bool, tmp_path: Path) -> None:
    """40 steps: longer than what is written out where no device is named."""
    rng = np.random.default_rng(0)
    constants = {"w": (1, 192, 12), "r": (1, 192, 64)}
    stored = [
        numpy_helper.from_array(rng.normal(0, 0.1, shape).astype("f4"), name) for name, shape in constants.items()
    ]
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], "gru", hidden_size=64)
    given = helper.make_tensor_value_info("x", 1, [40, 1, 12])
    computed = helper.make_tensor_value_info("y", 1, [40, 1, 1, 64])
    proto = helper.make_model(
        helper.make_graph([node], "g", [given], [computed], stored), opset_imports=[helper.make_opsetid("", 18)]
    )
    onnx.save(proto, tmp_path / "model.onnx")
    made = convertkit.export(tmp_path / "model.onnx", "tflite", device=device, output=tmp_path / "out")
    kinds = {each.told.kind for each in placed_operators(made.path / "model.tflite")}
    assert ("WHILE" in kinds) is has_loop
    told = [each["device"] for each in made.report["estimates"]["devices"] if each["shown"]]
    assert told == list(device or LIKELY)


def test_names_come_with_commas_or_one_by_one() -> None:
    given = {"source": "m.onnx", "target": "tflite", "w8": True}
    assert options_from({**given, "device": "phone,x86"}).device == ("phone", "x86")
    assert options_from({**given, "device": ["phone", "x86"]}).device == ("phone", "x86")
    assert set(options_from({**given, "device": ",".join(DEVICES)}).device) == set(DEVICES)


def exported(tmp_path: Path, *devices: str, precision: str = "int8") -> list[dict[str, object]]:
    """What the report's quantization estimates."""
    onnx.save(wide_cnn(), tmp_path / "model.onnx")
    calib = {"x": np.random.default_rng(0).normal(0, 1, (24, 3, 24, 24)).astype(np.float32)}
    result = convertkit.export(
        tmp_path / "model.onnx", "tflite", **{precision: True}, calib=calib, device=devices, output=tmp_path / "out"
    )
    (step,) = (each for each in result.report["steps"] if each["stage"].startswith("quantize"))
    found: list[dict[str, object]] = step["diagnosis"]["estimated"]
    return found


def wide_cnn() -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], "second", pads=[1] * 4),
    ]
    constants = {
        "w": rng.normal(0, 0.2, (32, 3, 3, 3)).astype(np.float32),
        "v": rng.normal(0, 0.06, (32, 32, 3, 3)).astype(np.float32),
    }
    return model_of(nodes, constants, {"x": [1, 3, 24, 24]}, {"y": [1, 32, 24, 24]})


@pytest.mark.parametrize("precision", ["int8", "w8"])
def test_the_export_tells_what_the_tables_make_of_it(precision: str, tmp_path: Path) -> None:
    estimated = exported(tmp_path, "phone", precision=precision)
    assert [each["device"] for each in estimated] == ["arm64-a76", "arm64-i8mm"]
    for each in estimated:
        own, real = float(str(each["artifact_ms"])), float(str(each["float32_ms"]))
        assert 0 < own < real
        alone = tables((str(each["device"]),)).kernel_costs
        products = [alone.times(ConvShape(576, 24, (3, 3), 1, channels, 32)) for channels in (3, 32)]
        assert real == pytest.approx(sum(times[1] for times in products) / 1e6)
        assert sum(times[0] for times in products) / 1e6 < own


def test_without_a_device_the_choice_tells_no_times(tmp_path: Path) -> None:
    assert exported(tmp_path) == []


def test_what_the_tables_lack_is_not_estimated() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"], "relu"), helper.make_node("Det", ["r"], ["y"], "det")]
    units = {}
    for name, some in (("all known", nodes[:1]), ("one unknown", nodes)):
        proto = model_of(some, {}, {"x": [1, 4, 4]}, {some[-1].output[0]: None})
        units[name] = find_units(canonicalize(ir.from_proto(proto)).graph, profile(options("phone")))
    assert estimates(units["all known"], profile(options("phone")), frozenset()).keys() == {"arm64-a76", "arm64-i8mm"}
    assert not estimates(units["one unknown"], profile(options("phone")), frozenset())

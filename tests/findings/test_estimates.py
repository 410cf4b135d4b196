"""What the report of a TFLite export estimates for devices that are not here."""

from __future__ import annotations

import math
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.findings.estimates import compiled_estimates
from convertkit.formatting import error_text, estimate_lines
from convertkit.operators import CompilingTarget, ErrorOfEstimates, Estimate
from convertkit.recipe import ExportOptions
from convertkit.report.html import figure, render
from convertkit.report.jsonable import jsonable
from convertkit.report.schema import schema
from convertkit.result import Result
from convertkit.stage import execution
from convertkit.targets.tflite.devices import DEVICES, LIKELY, error_of
from tests import onnx_models
from tests.targets.tflite.test_devices import NO_DOT_PRODUCTS

ROOT = Path(__file__).parents[2]
OF_SMALL = r"0\.05 to 0\.7 ms: \d+ % off emulation in the median, at worst [\d.]+ [×%]"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and a pooling."""
    weight = np.random.default_rng(0).normal(0, 0.06, (32, 24, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("MaxPool", ["c"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    model = onnx_models.model(
        nodes, {"x": [1, 24, 28, 28]}, {"y": [1, 32, 14, 14]}, [numpy_helper.from_array(weight, "w")]
    )
    return onnx_models.write(tmp_path_factory.mktemp("estimates"), model)


@pytest.fixture(scope="module")
def made(source: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """As float32 and, for one device, as integers."""
    place = tmp_path_factory.mktemp("made")
    calib = {"x": np.random.default_rng(0).normal(0, 1, (16, 24, 28, 28)).astype(np.float32)}
    whole = {"int8": True, "full_integer": True, "calib": calib, "device": "arm64-a76"}
    return {
        name: convertkit.export(source, "tflite", output=place / name, **how)
        for name, how in (("float32", {}), ("int8", whole))
    }


def test_the_finished_files_are_estimated_as_bench_does(made: dict[str, Result]) -> None:
    by_bench = {
        name: {each.device: each for each in convertkit.bench(result.artifact.path, device=DEVICES).estimated}
        for name, result in made.items()
    }
    for name, result in made.items():
        jsonschema.validate(result.report, schema())
        found = result.report["estimates"]["devices"]
        assert [each["device"] for each in found] == list(DEVICES)
        for each in found:
            told = by_bench[name][each["device"]]
            assert each["ms"] == pytest.approx(told.ms, rel=1e-3)
            if each["shown"]:
                assert each["layers_ms"] == pytest.approx([node.ms for node in told.nodes], rel=1e-3)
                assert len(each["layers_ms"]) == len(result.report["operators"])
    for each in made["int8"].report["estimates"]["devices"]:
        assert each["float32_ms"] == pytest.approx(by_bench["float32"][each["device"]].ms, rel=1e-3)
        assert each["ms"] < each["float32_ms"] * (1.1 if each["device"] in NO_DOT_PRODUCTS else 1)
    assert {each["float32_ms"] for each in made["float32"].report["estimates"]["devices"]} == {None}


def test_what_is_shown_are_the_named_devices_else_the_likely_ones(made: dict[str, Result]) -> None:
    shown = {
        name: [each["device"] for each in result.report["estimates"]["devices"] if each["shown"]]
        for name, result in made.items()
    }
    assert shown == {"float32": list(LIKELY), "int8": ["arm64-a76"]}
    assert all(not each["layers_ms"] for each in made["int8"].report["estimates"]["devices"] if not each["shown"])


def test_the_summary_calls_them_estimates_with_their_error(made: dict[str, Result]) -> None:
    (line,) = estimate_lines(made["int8"].report["estimates"])
    (each,) = (each for each in made["int8"].report["estimates"]["devices"] if each["shown"])
    assert line == f"arm64-a76 {each['ms']:.3g} ms, float32 {each['float32_ms']:.3g} ms ({error_text(each['error'])})"
    assert re.fullmatch(rf".* \(by cost tables; {OF_SMALL}\)", line)
    (plain,) = estimate_lines(made["float32"].report["estimates"])
    assert plain.startswith("arm64-a76 ")
    assert "; arm64-i8mm " in plain
    assert "float32" not in plain
    unknown = {**each, "device": "x86", "error": None}
    told = list(estimate_lines({"devices": [each, unknown], "lacking": ""}))
    assert len(told) == 2
    assert told[1].endswith("(by cost tables, error not known)")


def test_the_page_has_the_time_of_each_layer_on_what_is_shown(made: dict[str, Result]) -> None:
    report = made["int8"].report
    page = render(report)
    (each,) = (each for each in report["estimates"]["devices"] if each["shown"])
    assert "Time by layer, estimated for arm64-a76" in page
    assert re.search(OF_SMALL, page)
    told = [f'data-label="estimated ms, arm64-a76">{figure(ms, 3) if ms else "–"}<' for ms in each["layers_ms"]]
    assert len(told) > 2
    assert page.count('data-label="estimated ms, arm64-a76"') == len(told)
    assert all(cell in page for cell in told)
    assert "arm64-i8mm" not in page
    lacking = {"devices": [], "lacking": "gate: no cost table knows WHILE"}
    assert "Not estimated: gate: no cost table knows WHILE." in render({**report, "estimates": lacking})
    assert "estimated" not in render({**report, "estimates": None, "steps": report["steps"][:1]})


@pytest.mark.parametrize(
    ("name", "begin", "device", "sizes"),
    [
        ("device-costs", "<!-- bench/table_estimates.py -->", "phone", (0.001, 0.05, 0.6, 0.7, 100.0)),
        ("device-zoo", "<!-- bench/device_zoo.py -->", "x86-vnni", (0.05, 0.6, 0.7, 100.0)),
        ("device-zoo", "<!-- bench/device_zoo.py --server x86-amx -->", "x86-amx", (0.05, 0.6, 0.7, 100.0)),
    ],
)
def test_the_error_is_the_one_that_was_measured(name: str, begin: str, device: str, sizes: tuple[float, ...]) -> None:
    whole = (ROOT / "docs" / "measurements" / f"{name}.md").read_text()
    page = whole.partition(begin)[2].partition("<!-- end -->")[0]
    told = re.findall(r"estimated (?:from|above) (\S+) (?:to (\S+) )?ms: median error (\d+) %, worst (\d+) %", page)
    by_size = {(float(first), float(last or 0)): rest for first, last, *rest in reversed(told)}
    found = {size: (int(middle), int(worst)) for size, (middle, worst) in by_size.items()}
    for size in sizes:
        error = error_of(device, size)
        assert error is not None
        assert error.from_ms <= size < (error.to_ms or math.inf)
        own = found[error.from_ms, error.to_ms or 0.0]
        assert own == (round(100 * error.median), pytest.approx(100 * error.worst, rel=0.01))


@pytest.mark.parametrize(
    ("device", "size"), [("x86", 1.0), ("x86-avx512", 1.0), ("x86-vnni", 0.04), ("x86-amx", 0.04), ("this", 1.0)]
)
def test_what_was_compared_with_nothing_has_no_error(device: str, size: float) -> None:
    assert error_of(device, size) is None


@pytest.mark.parametrize(
    ("size", "told"), [(0.001, "below 0.05 ms: "), (0.1, "0.05 to 0.7 ms: "), (5.0, "above 0.7 ms: ")]
)
def test_the_error_is_told_for_estimates_of_that_size(size: float, told: str) -> None:
    assert f"by cost tables; {told}" in error_text(jsonable(error_of("arm64-a76", size)))


def test_an_error_of_more_than_half_is_told_as_a_factor() -> None:
    told = error_text(jsonable(ErrorOfEstimates(0.0, 0.05, 0.74, 16.49)))
    assert told == "by cost tables; below 0.05 ms: 1.7 × off emulation in the median, at worst 17 ×"


def test_the_error_of_a_measured_table_is_told_beside_a_clock() -> None:
    told = error_text(jsonable(error_of("x86-vnni", 5.0)))
    assert re.search(r"above 0.7 ms: \d+ % off a clock in the median", told)


def test_an_operator_that_no_table_knows_is_told(tmp_path: Path) -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Cos", ["x"], ["y"], "cosine")], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    made = convertkit.export(onnx_models.write(tmp_path, model), "tflite", output=tmp_path / "out")
    found = made.report["estimates"]
    assert found["devices"] == []
    assert "no cost table knows COS" in found["lacking"]
    assert list(estimate_lines(found)) == []


class Compiled:
    """A target whose compiler estimates."""

    def compiled_estimate(self, artifact: Artifact) -> Estimate:
        return Estimate("npu-128", 0.23712345, (), by="Compiler 5.2", cycles=118544, memory_bytes={"SRAM": 6144})


def test_a_compilers_estimate_is_told_as_its_own() -> None:
    target = Compiled()
    assert isinstance(target, CompilingTarget)
    found = compiled_estimates(target, Artifact(Path("m"), "npu", (), (), ""))
    (line,) = estimate_lines(jsonable(found))
    assert line == "npu-128 0.237 ms, 118,544 cycles, SRAM 6,144 bytes (Compiler 5.2's estimate, not measured)"


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("tflite", {}, "here"),
        ("coreml", {}, "simulated"),
        ("tensorrt", {}, "elsewhere"),
        ("litert-npu", {}, "simulated"),
        ("litert-npu", {"soc": ("sm8650", "mt6991")}, "elsewhere"),
    ],
)
def test_what_executes_an_artifact_has_three_values(name: str, given: dict[str, object], told: str) -> None:
    assert execution(plugins.target(name), ExportOptions("m", target_options={name: given})) == told


def test_targets_without_tables_estimate_nothing(source: Path, tmp_path: Path) -> None:
    assert convertkit.export(source, "openvino", output=tmp_path / "out").report["estimates"] is None


def test_a_large_file_that_nobody_asked_about_is_not_estimated(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime writes it once more as it fuses it, which holds the weights several times."""
    monkeypatch.setattr("convertkit.findings.measure._UNASKED_BYTES", source.stat().st_size // 2)
    told = convertkit.export(source, "onnxruntime", output=tmp_path / "out").report["estimates"]
    assert (told["devices"], told["lacking"]) == ([], "a file above 32 MiB is estimated by convertkit bench --device")
    monkeypatch.undo()
    told = convertkit.export(source, "onnxruntime", output=tmp_path / "small").report["estimates"]
    assert "arm64-a76" in {each["device"] for each in told["devices"]}

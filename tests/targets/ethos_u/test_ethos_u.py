"""The package for an Ethos-U: where operators run, what stays as it was, what is refused."""

from __future__ import annotations

from configparser import ConfigParser
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated
from onnx import helper, numpy_helper

import convertkit
from convertkit import plugins
from convertkit.artifact import sha256_of
from convertkit.errors import SourceError, ToolError, Unsupported
from convertkit.report.schema import schema
from convertkit.result import Result
from convertkit.targets.ethos_u import devices
from convertkit.targets.ethos_u.placement import check_placement
from convertkit.targets.ethos_u.vela import compile_for
from convertkit.targets.ethos_u.weights import check_weights
from convertkit.targets.tflite_micro.c_array import read_model
from convertkit.targets.tflite_micro.file import read_graphs
from tests import onnx_models
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION = "fixtures/digits/model.pt", "fixtures/digits/calib.npz"
INTEGERS = {"int8": True, "full_integer": True, "io_dtype": "int8"}
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The digits network for an Ethos-U55."""
    output = tmp_path_factory.mktemp("made") / "out"
    return convertkit.export(NETWORK, "ethos-u", calib=CALIBRATION, output=output, **INTEGERS)


@pytest.fixture(scope="module")
def graphs(made: Result) -> tuple[tuple, tuple]:
    """The file before Vela, and after."""
    return tuple(read_graphs((made.path / name).read_bytes()) for name in ("model.tflite", "model_vela.tflite"))


def test_all_of_it_is_placed_on_the_npu(made, graphs):
    before, after = graphs
    assert [each.code for graph in after for each in graph.operators] == ["CUSTOM ethos-u"]
    told = made.report["steps"][-1]["diagnosis"]
    assert told["cpu"] == []
    assert [each["operator"] for each in told["npu"]] == [each.code for each in before[0].operators]
    assert "CONV_2D" in {each["operator"] for each in told["npu"]}
    assert sum(each["cycles"] for each in told["npu_layers"]) > 10_000


def test_the_report_says_that_the_npu_was_not_executed(made):
    jsonschema.validate(made.report, schema())
    assert (made.report["execution"], made.report["latency"]) == ("elsewhere", None)
    assert any("NPU part is not executed here" in note for note in made.report["notes"])
    assert "NPU part is not executed here" in made.report["steps"][-1]["artifact"]["runtime"]
    assert "NPU part was not executed" in (made.path / "README.md").read_text()


def test_cycles_and_memory_are_estimates(made):
    (device,) = made.report["estimates"]["devices"]
    assert device["device"].startswith("ethos-u55-128 (")
    assert device["by"].startswith("Vela ")
    assert device["cycles"] > 10_000
    assert device["ms"] == pytest.approx(device["cycles"] / 500e6 * 1000, rel=1e-3)
    assert device["memory_bytes"]["SRAM"] < 20_000 < device["memory_bytes"]["off-chip flash"]
    assert "estimate, not measured" in (made.path / "report.html").read_text()


def test_all_weights_are_in_the_streams_that_the_npu_reads(made):
    before, after = ((made.path / name).read_bytes() for name in ("model.tflite", "model_vela.tflite"))
    report = made.report["steps"][-1]["diagnosis"]
    names = frozenset(each["name"] for each in report["npu"])
    root = schema_py_generated.ModelT.InitFromObj(schema_py_generated.Model.GetRootAs(before, 0))
    tensors = root.subgraphs[0].tensors
    weights = {each.buffer for each in tensors if each.type == 9 and len(each.shape) in (2, 4)}
    stored = [root.buffers[each].data for each in weights if root.buffers[each].data is not None]
    counted = sum(int(np.count_nonzero(each)) for each in stored)
    assert report["weights_compared"] == check_weights(before, after, names) == counted > 100_000


@pytest.mark.parametrize("accelerator", ["ethos-u55-32", "ethos-u65-512"])
def test_a_weight_that_was_changed_is_missed(made, accelerator, tmp_path):
    device = devices.Device(accelerator, *devices._DEFAULTS[accelerator.split("-")[1]])
    before = (made.path / "model.tflite").read_bytes()
    after = compile_for(made.path / "model.tflite", device, tmp_path / "out").path.read_bytes()
    names = frozenset(each["name"] for each in made.report["steps"][-1]["diagnosis"]["npu"])
    assert check_weights(before, after, names) > 100_000
    root = schema_py_generated.ModelT.InitFromObj(schema_py_generated.Model.GetRootAs(before, 0))
    largest = max((each.data for each in root.buffers if each.data is not None), key=len)
    place = before.index(bytes(largest))
    changed = before[:place] + bytes([before[place] ^ 1]) + before[place + 1 :]
    with pytest.raises(ToolError, match=r"^1 of [\d,]+ weights are not in what Vela wrote"):
        check_weights(changed, after, names)


def test_the_file_before_vela_is_what_the_tflite_target_makes(made, tmp_path):
    plain = convertkit.export(
        NETWORK, "tflite", calib=CALIBRATION, static={"N": 1}, output=tmp_path / "plain", **INTEGERS
    )
    assert (made.path / "model.tflite").read_bytes() == plain.artifact.path.read_bytes()
    feed = {"input": np.load("fixtures/digits/test.npz")["input"][:1]}
    np.testing.assert_array_equal(made.run(feed)["output"], plain.run(feed)["output"])


def test_the_array_is_the_file(made):
    assert read_model(made.path / "model.cc") == (made.path / "model_vela.tflite").read_bytes()
    header = (made.path / "model.h").read_text()
    assert "kInput0Scale" in header
    assert "kTensorArenaSize" not in header


@pytest.mark.parametrize("accelerator", ["ethos-u55-128", "ethos-u65-512", "ethos-u85-256"])
def test_two_processes_write_the_same_bytes(made, accelerator, tmp_path):
    family = accelerator.split("-")[1]
    device = devices.Device(accelerator, *devices._DEFAULTS[family])
    found = [compile_for(made.path / "model.tflite", device, tmp_path / str(run)) for run in range(2)]
    assert sha256_of(found[0].path) == sha256_of(found[1].path)
    assert found[0].cycles == found[1].cycles


@pytest.mark.parametrize("name", ["model.tflite", "model_vela.tflite"])
def test_a_file_that_was_changed_is_not_run(made, name, tmp_path):
    for path in made.path.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = bytearray((tmp_path / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SourceError, match=f"{name} is not the file"):
        plugins.runner(replace(made.artifact, path=tmp_path / "model_vela.tflite"))


def test_an_interface_that_changed_ends_it(graphs):
    before, after = graphs
    check_placement(before, after, ())
    (index,) = after[0].inputs
    tensors = list(after[0].tensors)
    tensors[index] = replace(tensors[index], scale=2 * tensors[index].scale)
    with pytest.raises(ToolError, match="changed the inputs"):
        check_placement(before, (replace(after[0], tensors=tuple(tensors)),), ())


def shuffled(folder: Path) -> Path:
    """A DepthToSpace, which an Ethos-U55 does not have."""
    weight = RNG.normal(0, 0.1, (8, 4, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4),
        helper.make_node("DepthToSpace", ["c"], ["y"], "shuffle", blocksize=2),
    ]
    shapes = {"x": [1, 4, 32, 32]}, {"y": [1, 2, 64, 64]}
    model = onnx_models.model(nodes, *shapes, [numpy_helper.from_array(weight, "w")])
    return onnx_models.write(folder, model)


def test_what_the_cpu_would_compute_is_named_or_allowed(tmp_path):
    source = shuffled(tmp_path)
    calib = {"x": RNG.normal(0, 1, (8, 4, 32, 32)).astype(np.float32)}
    with pytest.raises(Unsupported, match=r"DEPTH_TO_SPACE\): Vela leaves it to the CPU") as refusal:
        convertkit.export(source, "ethos-u", calib=calib, output=tmp_path / "refused", **INTEGERS)
    assert refusal.value.ways_out[0] == "--ethos-u-allow-cpu DEPTH_TO_SPACE"
    assert not (tmp_path / "refused").exists()
    allowed = {"ethos-u": {"allow-cpu": ("DEPTH_TO_SPACE",)}}
    made = convertkit.export(
        source, "ethos-u", calib=calib, output=tmp_path / "out", target_options=allowed, **INTEGERS
    )
    assert [each["operator"] for each in made.report["steps"][-1]["diagnosis"]["cpu"]] == ["DEPTH_TO_SPACE"]
    assert any("the CPU computes 1 operators" in note for note in made.report["notes"])


def test_norms_of_the_channels_of_an_image_are_the_npus(tmp_path):
    """Of 1 × 9 × 11 × 16: means row by row, and the factor as RSQRT."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["t", "s", "s"], ["y"]),
    ]
    stored = [numpy_helper.from_array(np.linspace(0.5, 2, 16, dtype=np.float32), "s")]
    source = onnx_models.write(tmp_path, onnx_models.model(nodes, {"x": [1, 16, 9, 11]}, {"y": [1, 9, 11, 16]}, stored))
    calib = {"x": RNG.normal(0, 1, (8, 16, 9, 11)).astype(np.float32)}
    made = convertkit.export(source, "ethos-u", calib=calib, output=tmp_path / "out", **INTEGERS)
    told = made.report["steps"][-1]["diagnosis"]
    assert told["cpu"] == []
    assert {"MEAN", "RSQRT"} <= {each["operator"] for each in told["npu"]}
    assert made.report["quality"]["snr_db"] > 30


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ((), "needs --full-integer and --io-dtype int8"),
        (("--full-integer",), "needs --io-dtype int8"),
        (("--io-dtype", "int8"), "needs --full-integer:"),
        (("--full-integer", "--io-dtype", "int8", "--ethos-u-accelerator", "ethos-u99"), "ethos-u55-128"),
        (("--full-integer", "--io-dtype", "int8", "--ethos-u-system-config", "Ethos_U85_SYS_DRAM_Low"), "Ethos_U55_"),
    ],
)
def test_what_does_not_fit_ends_it_before_any_work(flags, said, tmp_path):
    words = ("export", NETWORK, "-t", "ethos-u", "--int8", "--calib", CALIBRATION, "-o", tmp_path / "out", *flags)
    check_refusal(here(*words), 2, said)
    assert not (tmp_path / "out").exists()


def test_without_vela_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.targets.ethos_u.find_spec", lambda name: None)
    words = ("export", NETWORK, "-t", "ethos-u", "--int8", "--full-integer", "--io-dtype", "int8")
    said = here(*words, "--calib", CALIBRATION, "-o", tmp_path / "out")
    check_refusal(said, 4, "ethos-u-vela is not installed")
    assert not any(tmp_path.iterdir())


def test_names_are_those_of_vela():
    ini = ConfigParser()
    ini.read_string(resources.files("ethosu").joinpath(f"config_files/{devices.CONFIG_FILE}").read_text())
    kinds = {kind: [name.partition(".")[2] for name in ini.sections() if name.startswith(kind)]
             for kind in ("System_Config", "Memory_Mode")}  # fmt: skip
    assert kinds == {"System_Config": list(devices.SYSTEM_CONFIGS), "Memory_Mode": list(devices.MEMORY_MODES)}
    from ethosu.vela.architecture_features import Accelerator

    assert set(Accelerator.member_list()) == set(devices.ACCELERATORS)


def test_what_vela_does_not_read_is_told_in_its_words(tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"no model at all")
    device = devices.Device("ethos-u55-128", *devices._DEFAULTS["u55"])
    with pytest.raises(ToolError, match=r"Vela does not compile model.tflite for ethos-u55-128: \S+"):
        compile_for(tmp_path / "model.tflite", device, tmp_path / "out")


def test_check_names_what_is_in_the_way(tmp_path):
    calib = {"x": RNG.normal(0, 1, (8, 4, 32, 32)).astype(np.float32)}
    (verdict,) = convertkit.check(shuffled(tmp_path), "ethos-u", calib=calib, **INTEGERS).verdicts
    assert (verdict.converts, verdict.exit_code) == (False, 1)
    assert "DEPTH_TO_SPACE" in verdict.node
    (verdict,) = convertkit.check(NETWORK, "ethos-u", calib=CALIBRATION, **INTEGERS).verdicts
    assert verdict.converts

"""Files for NPUs by LiteRT: the program in them is executed in the simulator, whole or refused, for each chip."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import onnx.parser
import pytest
from ai_edge_litert.aot.vendors.google_tensor import target as google
from ai_edge_litert.aot.vendors.intel_openvino import target as intel
from ai_edge_litert.aot.vendors.mediatek import target as mediatek
from ai_edge_litert.aot.vendors.qualcomm import target as qualcomm
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convertkit
from convertkit import plugins
from convertkit.artifact import sha256_of
from convertkit.errors import FeedError, MissingTool, SourceError, ToolError, Unsupported
from convertkit.report.schema import schema
from convertkit.result import Result
from convertkit.targets.litert_npu import compile as compiling
from convertkit.targets.litert_npu.ai_pack import targeting
from convertkit.targets.litert_npu.chips import CHIPS
from convertkit.targets.litert_npu.compile import compile_for, refusal
from convertkit.targets.litert_npu.dispatch import CODE, check_tables, check_whole, program_of
from convertkit.targets.litert_npu.flat import packed, unpacked
from convertkit.targets.litert_npu.narrow import narrowed
from convertkit.targets.litert_npu.places import with_places
from convertkit.targets.litert_npu.stage import CompileNpu, listing
from convertkit.targets.tflite_micro.file import read_graphs
from tests import onnx_models
from tests.command_line import check_refusal, here

NETWORK, CALIBRATION, TEST = (f"fixtures/digits/{name}" for name in ("model.pt", "calib.npz", "test.npz"))
INTEGERS = {"int8": True, "full_integer": True, "calib": CALIBRATION}
CHOSEN = {"litert-npu": {"soc": ("sm8750", "sm8550"), "ai-pack": True}}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The digits network for two chips, with inputs and outputs in int8, in an AI pack."""
    output = tmp_path_factory.mktemp("made") / "out"
    return convertkit.export(
        NETWORK, "litert-npu", output=output, io_dtype="int8", target_options=CHOSEN, **INTEGERS
    )  # fmt: skip


def test_the_program_for_each_chip_is_executed_in_the_simulator(made):
    jsonschema.validate(made.report, schema())
    assert (made.report["execution"], made.report["runs_here"], made.report["latency"]) == ("simulated", False, None)
    steps = made.report["steps"][-2:]
    assert [step["stage"] for step in steps] == ["litert-npu sm8750", "litert-npu sm8550"]
    assert all("HTP simulator" in step["artifact"]["runtime"] for step in steps)
    assert float(made.report["quality"]["snr_db"]) > 35


def test_one_operator_hands_everything_to_the_npu(made):
    for soc in ("sm8750", "sm8550"):
        (graph,) = read_graphs((made.path / f"model_{soc}.tflite").read_bytes())
        assert [each.code for each in graph.operators] == [CODE]
    assert made.report["steps"][-1]["diagnosis"]["npu"] > 5
    ours = np.load(TEST)
    right = [int(made.run({"input": each[None]})["output"].argmax()) for each in ours["input"][:20]]
    assert right == list(ours[next(name for name in ours if name != "input")][:20])


def test_the_program_is_what_runs(made, tmp_path):
    """Not the file beside it: where the program's bytes are zeros, nothing runs."""
    feed = {"input": np.load(TEST)["input"][:1]}
    shutil.copytree(made.path, tmp_path / "copy")
    path = tmp_path / "copy" / made.artifact.path.name
    content, program = bytearray(path.read_bytes()), program_of(path)
    start = bytes(content).index(program.content)
    content[start : start + len(program.content)] = bytes(len(program.content))
    path.write_bytes(content)
    told = (tmp_path / "copy" / "litert-npu.json").read_text()
    (tmp_path / "copy" / "litert-npu.json").write_text(
        told.replace(sha256_of(made.artifact.path), sha256_of(path))
    )  # fmt: skip
    with plugins.runner(made.artifact) as runner:
        assert runner.run(feed)["output"].any()
    with pytest.raises(ToolError, match=r"QNN does not load context.onnx for sm8550"):
        plugins.runner(replace(made.artifact, path=path)).__enter__()


def test_a_file_without_its_program_is_told(made, tmp_path):
    content = made.artifact.path.read_bytes()
    assert program_of(made.artifact.path).content in content
    (tmp_path / "short.tflite").write_bytes(content[:-1000])
    with pytest.raises(ToolError, match=r"short\.tflite ends before the program of the NPU does"):
        program_of(tmp_path / "short.tflite")
    with pytest.raises(ToolError, match=r"model\.tflite is not one program for an NPU"):
        program_of(made.path / "model.tflite")


def test_two_runs_write_the_same_bytes(made, tmp_path):
    for run in ("one", "other"):
        (tmp_path / run).mkdir()
        shutil.copyfile(made.path / "model.tflite", tmp_path / run / "model.tflite")
        compile_for(tmp_path / run / "model.tflite", CHIPS["sm8550"], tmp_path / run / "npu.tflite", ())
        assert sha256_of(tmp_path / run / "npu.tflite") == sha256_of(made.path / "model_sm8550.tflite")


@pytest.mark.parametrize("name", ["model.tflite", "model_sm8550.tflite", "model_sm8750.tflite"])
def test_a_file_that_was_changed_is_not_run(made, name, tmp_path):
    shutil.copytree(made.path, tmp_path / "copy")
    content = bytearray((tmp_path / "copy" / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / "copy" / name).write_bytes(content)
    with pytest.raises(SourceError, match=f"{name} is not the file"):
        plugins.runner(replace(made.artifact, path=tmp_path / "copy" / made.artifact.path.name))


def test_a_package_that_tells_of_other_chips_is_refused(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "copy")
    facts = tmp_path / "copy" / "litert-npu.json"
    facts.write_text(facts.read_text().replace("sm8750", "sm0000"))
    with pytest.raises(SourceError, match=r"litert-npu.json beside the model is not what an export writes"):
        plugins.runner(replace(made.artifact, path=tmp_path / "copy" / made.artifact.path.name))


def test_a_package_that_names_files_elsewhere_is_refused(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "copy")
    shutil.copyfile(made.path / "model.tflite", tmp_path / "other.tflite")
    facts = tmp_path / "copy" / "litert-npu.json"
    told = json.loads(facts.read_text())
    told["sha256"]["../other.tflite"] = told["sha256"]["model.tflite"]
    facts.write_text(json.dumps(told))
    with pytest.raises(SourceError, match=r"\.\./other\.tflite is not the file"):
        plugins.runner(replace(made.artifact, path=tmp_path / "copy" / made.artifact.path.name))


@pytest.mark.parametrize("name", ["model.tflite", "model_sm8550.tflite", None])
def test_a_package_that_does_not_tell_of_all_its_files_is_refused(made, tmp_path, name):
    """A file whose digest nobody knows may be anyone's."""
    shutil.copytree(made.path, tmp_path / "copy")
    facts = tmp_path / "copy" / "litert-npu.json"
    told = json.loads(facts.read_text())
    told["sha256"] = {} if name is None else {key: value for key, value in told["sha256"].items() if key != name}
    facts.write_text(json.dumps(told))
    with pytest.raises(SourceError, match="it does not name all files"):
        plugins.runner(replace(made.artifact, path=tmp_path / "copy" / made.artifact.path.name))


def test_a_file_of_another_chip_is_not_run_as_the_one_before(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "copy")
    other = tmp_path / "copy" / "model_mt6991.tflite"
    shutil.copyfile(made.artifact.path, other)
    with pytest.raises(SourceError, match=r"model_mt6991\.tflite is not a file that litert-npu\.json tells of"):
        plugins.runner(replace(made.artifact, path=other))


def test_another_kit_in_the_same_folder_compiles_anew(tmp_path):
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "libneuron.so"
    library.write_bytes(b"first")
    first, again = (CompileNpu("mt6991", [str(tmp_path)]).options for _ in range(2))
    assert first == again
    library.write_bytes(b"second")
    assert CompileNpu("mt6991", [str(tmp_path)]).options != first


def test_an_empty_file_is_no_program(made, tmp_path, monkeypatch):
    shutil.copyfile(made.path / "model.tflite", tmp_path / "model.tflite")
    ended = subprocess.CompletedProcess([], 0, "", "")
    monkeypatch.setattr(compiling, "run_to_end", lambda *_, **__: ended)
    (tmp_path / "npu.tflite").touch()
    for name in ("npu.tflite", "none.tflite"):
        with pytest.raises(ToolError, match="it leaves no file, and says nothing"):
            compile_for(tmp_path / "model.tflite", CHIPS["sm8550"], tmp_path / name, ())


def test_verify_says_what_executed_it(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "copy")
    said = here("verify", tmp_path / "copy")
    assert (said.code, "loads, simulated" in said.out) == (0, True)
    report = tmp_path / "copy" / "report.json"
    told = json.loads(report.read_text())
    del told["execution"]
    report.write_text(json.dumps(told))
    said = here("verify", tmp_path / "copy")
    assert (said.code, "loads, not on litert-npu" in said.out) == (0, True)


def test_another_batch_does_not_fit(made):
    with plugins.runner(made.artifact) as runner, pytest.raises(FeedError, match=r"\(2, .*the program"):
        runner.run({"input": np.zeros((2, 1, 8, 8), np.float32)})


def test_the_ai_pack_has_a_file_for_each_chip_and_one_for_the_others(made):
    assets = made.path / "ai_pack/model_pack/src/main/assets"
    found = {path.parent.name.partition("#group_")[2]: sha256_of(path) for path in assets.glob("*/model.tflite")}
    names = {"Qualcomm_SM8750": "model_sm8750", "Qualcomm_SM8550": "model_sm8550", "other": "model"}
    assert found == {group: sha256_of(made.path / f"{name}.tflite") for group, name in names.items()}
    config = ET.parse(made.path / "ai_pack" / "device_targeting_configuration.xml").getroot()
    groups = [each.attrib["name"] for each in config]
    assert sorted(groups) == sorted(names)[:2]
    chips = [each.attrib for each in config.iter() if each.tag.endswith("system-on-chip")]
    assert {(each["manufacturer"], each["model"]) for each in chips} == {
        (name, model) for name in ("Qualcomm", "QTI") for model in ("SM8750", "SM8550")
    }
    assert 'packName = "model_pack"' in (assets.parents[2] / "build.gradle.kts").read_text()
    assert '"model/model.tflite", options, environment' in (made.path / "README.md").read_text()
    assert 'deviceTargetingConfig = file("device_targeting_configuration.xml")' in (made.path / "README.md").read_text()


def test_inputs_and_outputs_in_float_are_rounded_by_the_npu(tmp_path):
    made = convertkit.export(NETWORK, "litert-npu", output=tmp_path / "out", **INTEGERS)
    assert made.artifact.path.name == "model_sm8650.tflite"
    assert [each.dtype for each in (*made.artifact.inputs, *made.artifact.outputs)] == ["float32", "float32"]
    assert not (made.path / "ai_pack").exists()
    assert '"model_sm8650.tflite", options, environment' in (made.path / "README.md").read_text()
    plain = convertkit.export(NETWORK, "tflite", output=tmp_path / "plain", static={"N": 1}, **INTEGERS)
    assert (made.path / "model.tflite").read_bytes() == plain.artifact.path.read_bytes()
    assert "was not executed" not in (made.path / "README.md").read_text()


def of_functions(folder, *nodes):
    """A model of these on 64 numbers, and what goes in."""
    weight = numpy_helper.from_array(np.random.default_rng(1).normal(0, 0.2, (64, 64)).astype(np.float32), "w")
    used = [weight] if any("w" in node.input for node in nodes) else []
    source = onnx_models.write(folder, onnx_models.model(list(nodes), {"x": [1, 64]}, {"y": [1, 64]}, used))
    return source, {"x": np.random.default_rng(0).normal(0, 2, (32, 64)).astype(np.float32)}


@pytest.fixture(scope="module")
def looked_up(tmp_path_factory):
    """The error function of an input: nothing but a table."""
    folder = tmp_path_factory.mktemp("looked_up")
    source, calib = of_functions(folder, helper.make_node("Erf", ["x"], ["y"]))
    choices = INTEGERS | {"calib": calib, "io_dtype": "int8"}
    return convertkit.export(source, "litert-npu", output=folder / "out", **choices)


def test_a_function_that_is_a_table_is_read_at_the_same_places(looked_up):
    """As TFLite has it, erf of 124 steps of 0.04 came out as that of 5 steps in the simulator."""
    (tensor,) = looked_up.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert tensor["lsb"] == 0
    assert "GATHER" in {each.code for each in read_graphs((looked_up.path / "model.tflite").read_bytes())[0].operators}


def test_tables_between_products_are_read_at_the_same_places(tmp_path):
    """Where a RESHAPE gave the bytes their other meaning, a layer in front took that for its own: 3 dB."""
    source, calib = of_functions(
        tmp_path,
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mish", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("Abs", ["c"], ["d"]),
        helper.make_node("Sqrt", ["d"], ["y"]),
    )
    made = convertkit.export(source, "litert-npu", output=tmp_path / "out", **(INTEGERS | {"calib": calib}))
    (tensor,) = made.report["steps"][-1]["parity"]["versus_previous"]["tensors"]
    assert float(tensor["snr_db"]) > 30


def test_a_cast_of_bytes_that_is_no_place_in_a_table_is_refused_by_name(looked_up):
    content = (looked_up.path / "model.tflite").read_bytes()
    assert with_places(content) != content
    root = unpacked(content)
    for buffer in root.buffers:
        if buffer.data is not None and bytes(buffer.data) == np.int32(128).tobytes():
            buffer.data = np.frombuffer(np.int32(127).tobytes(), np.uint8)
    other = packed(root)
    for refuse in (with_places, lambda each: check_tables(read_graphs(each))):
        with pytest.raises(Unsupported, match=r"\(CAST\): it casts integers that stand for numbers") as told:
            refuse(other)
        assert told.value.ways_out == ("--target tflite", "--target qnn")


MASKED = """<ir_version: 9, opset_import: ["" : 18]> g (float[1,8] x, int64[8] mask) => (float[1,8] y)
    <float half = {0.5}, float one = {1.0}, float far = {-10000.0}, int64[1] zero = {0}> {
    p = Mul (x, half) u = Unsqueeze (mask, zero) m = Cast <to = 1> (u) n = Sub (one, m) t = Mul (n, far)
    a = Add (p, t) y = Softmax (a) }"""


def test_a_mask_of_whole_numbers_is_read_with_32_bits(tmp_path):
    rng = np.random.default_rng(2)
    data = [{"x": rng.normal(0, 2, (1, 8)).astype("f4"), "mask": rng.integers(0, 2, 8)} for _ in range(24)]
    proto = onnx.parser.parse_model(MASKED)
    choices = {"int8": True, "full_integer": True, "calib": lambda: data, "output": tmp_path / "out"}
    made = convertkit.export(proto, "litert-npu", **choices)
    assert made.report["steps"][-1]["diagnosis"]["notes"] == ["sm8650 reads 32 bits of the numbers of mask"]
    feed = {"x": np.linspace(-1, 1, 8, dtype="f4")[None], "mask": np.array([1, 0, 1, 1, 0, 1, 1, 0])}
    (wanted,) = ReferenceEvaluator(proto).run(None, feed)
    assert np.abs(made.run(feed)["y"] - wanted).max() < 0.02


def test_other_uses_of_whole_numbers_stay_as_they_are(tmp_path):
    """A number that is added to has all its bits."""
    text = MASKED.replace("u = Unsqueeze (mask, zero)", "v = Mul (mask, mask) u = Unsqueeze (v, zero)")
    rng = np.random.default_rng(2)
    data = [{"x": rng.normal(0, 2, (1, 8)).astype("f4"), "mask": rng.integers(0, 2, 8)} for _ in range(24)]
    choices = {"int8": True, "full_integer": True, "calib": lambda: data, "output": tmp_path / "out"}
    made = convertkit.export(onnx.parser.parse_model(text), "tflite", **choices)
    content = made.artifact.path.read_bytes()
    assert narrowed(content) == (content, ())


def test_what_the_npu_does_not_take_is_named(made):
    before = read_graphs((made.path / "model.tflite").read_bytes())
    after = read_graphs((made.path / "model_sm8550.tflite").read_bytes())
    check_whole(before, after)
    with pytest.raises(Unsupported, match=r"\(CONV_2D\): the NPU does not take it .*, and \d+ more: ") as told:
        check_whole(before, before)
    assert told.value.ways_out == ("--target tflite", "--target qnn")
    twice = (replace(after[0], operators=after[0].operators * 2),)
    with pytest.raises(Unsupported, match="makes 2 programs of the model, not one"):
        check_whole(before, twice)
    tensors = tuple(replace(each, scale=2 * each.scale) for each in after[0].tensors)
    with pytest.raises(ToolError, match="LiteRT's compiler changed the inputs"):
        check_whole(before, (replace(after[0], tensors=tensors),))


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ((), 2, "needs --full-integer"),
        (("--full-integer", "--litert-npu-soc", "sm1"), 2, "sm8650"),
        (("--full-integer", "--litert-npu-kit", "nowhere"), 2, "there is no such folder"),
        (("--full-integer", "--litert-npu-kit", "fixtures"), 2, "is a folder with libQnnHtp.so; there is none"),
        (("--full-integer", "--litert-npu-soc", "ptl", "--litert-npu-ai-pack"), 2, "no device with ptl"),
        (("--full-integer", "--litert-npu-soc", "mt6991"), 4, "takes libraries of MediaTek's NeuroPilot SDK"),
    ],
)
def test_what_does_not_fit_ends_it_before_any_work(flags, code, said, tmp_path):
    words = ("export", NETWORK, "-t", "litert-npu", "--int8", "--calib", CALIBRATION, "-o", tmp_path / "out", *flags)
    check_refusal(here(*words), code, said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("soc", "lacking", "kit"),
    [
        ("mt6991", "NeuronAdapter", "MediaTek's NeuroPilot SDK"),
        ("tensor-g5", "liblitert_plugin_compiler.so", "Google's Tensor SDK"),
        ("ptl", "libopenvino.so.", "Intel's OpenVINO"),
    ],
)
def test_a_kit_that_is_not_there_is_named(made, soc, lacking, kit, tmp_path):
    shutil.copyfile(made.path / "model.tflite", tmp_path / "model.tflite")
    with pytest.raises(MissingTool) as told:
        compile_for(tmp_path / "model.tflite", CHIPS[soc], tmp_path / "npu.tflite", ())
    assert f"for {CHIPS[soc].model} lacks {lacking}" in str(told.value)
    assert f"which {kit} has; --litert-npu-kit has to be" in str(told.value)
    assert told.value.exit_code == 4


def test_a_kit_s_own_libraries_come_first(made, tmp_path):
    """A folder that has an HTP library is taken for Qualcomm's kit, and nothing else is looked into."""
    shutil.copyfile(made.path / "model.tflite", tmp_path / "model.tflite")
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "libQnnHtp.so").write_bytes(b"no library")
    with pytest.raises((MissingTool, ToolError)):
        compile_for(tmp_path / "model.tflite", CHIPS["sm8550"], tmp_path / "npu.tflite", [str(tmp_path / "kit")])


def test_what_the_compiler_says_is_told(made, tmp_path):
    (tmp_path / "model.tflite").write_bytes(b"no model at all")
    with pytest.raises(ToolError, match=r"LiteRT does not compile the model for SM8550: \S+"):
        compile_for(tmp_path / "model.tflite", CHIPS["sm8550"], tmp_path / "npu.tflite", ())
    assert "it leaves no file, and says nothing" in str(refusal(CHIPS["sm8550"], "", 0))
    assert "it ended with -11, and says nothing" in str(refusal(CHIPS["sm8550"], "", -11))


TRANSPOSED = helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="only", auto_pad="SAME_UPPER", strides=[2, 2])
NOT_TAKEN = [
    (helper.make_node("LogSoftmax", ["x"], ["y"], name="only"), [1, 7], [1, 7], "LOG_SOFTMAX"),
    (TRANSPOSED, [1, 1, 3, 3], [1, 2, 6, 6], "TRANSPOSE_CONV"),
]


@pytest.mark.parametrize(("node", "given", "made", "operator"), NOT_TAKEN)
def test_an_operator_is_named_where_the_npu_takes_nothing_of_the_file(node, given, made, operator, tmp_path):
    """LiteRT's compiler leaves no file then, and says it in words of Qualcomm's."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(size=(1, 2, 3, 3)).astype(np.float32), "w")]
    stored = weights if "w" in node.input else []
    source = onnx_models.write(tmp_path, onnx_models.model([node], {"x": given}, {"y": made}, stored))
    choices = {"int8": True, "full_integer": True, "io_dtype": "int8", "output": tmp_path / "out"}
    calibration = {"x": rng.normal(size=(24, *given[1:])).astype(np.float32)}
    with pytest.raises(Unsupported, match=rf"\({operator}\): the NPU does not take it in this form") as refused:
        convertkit.export(source, "litert-npu", calib=calibration, **choices)
    assert refused.value.ways_out


def test_without_the_simulator_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr("convertkit.targets.litert_npu.find_spec", lambda name: None)
    words = ("export", NETWORK, "-t", "litert-npu", "--int8", "--full-integer", "--calib", CALIBRATION)
    check_refusal(here(*words, "-o", tmp_path / "out"), 4, "onnxruntime-qnn is not installed")
    assert not any(tmp_path.iterdir())


def test_without_a_compiler_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "COMPILER", Path("tools", "none"))
    with pytest.raises(MissingTool, match="has no compiler for NPUs"):
        compile_for(tmp_path / "model.tflite", CHIPS["sm8550"], tmp_path / "npu.tflite", ())
    words = ("export", NETWORK, "-t", "litert-npu", "--int8", "--full-integer", "--calib", CALIBRATION)
    told = here(*words, "-o", tmp_path / "out")
    check_refusal(told, 4, "has no compiler for NPUs")
    assert "pytorch-to-onnx" not in told.err, "steps were made before it was said"
    assert not (tmp_path / "out").exists()


def test_an_export_for_a_chip_without_a_simulator_says_so(tmp_path, monkeypatch):
    """With a kit in its place: what is compiled is Qualcomm's program under another chip's name.

    It comes before Qualcomm's chips in whatever order they are asked for: behind one, it would be compared with what
    the simulator gave, which is not exactly what ``model.tflite`` gives.
    """
    monkeypatch.setattr(
        "convertkit.targets.litert_npu.stage.compile_for",
        lambda model, _, made, kits, limit: compile_for(model, CHIPS["sm8550"], made, kits, limit),
    )
    (tmp_path / "kit").mkdir()
    chosen = {"litert-npu": {"soc": ["sm8650", "mt6991"], "kit": [str(tmp_path / "kit")], "ai-pack": True}}
    made = convertkit.export(NETWORK, "litert-npu", output=tmp_path / "out", target_options=chosen, **INTEGERS)
    assert made.report["execution"] == "elsewhere"
    unrun, run = made.report["steps"][-2:]
    assert [unrun["stage"], run["stage"]] == ["litert-npu mt6991", "litert-npu sm8650"]
    assert "the NPU's program is not executed here" in unrun["artifact"]["runtime"]
    assert "HTP simulator" in run["artifact"]["runtime"]
    assert (made.path / "ai_pack/model_pack/src/main/assets/model#group_Mediatek_MT6991/model.tflite").is_file()
    assert any("mt6991's program is not executed here" in note for note in made.report["notes"])
    assert "compiled and not executed" in (made.path / "README.md").read_text()


def test_chips_are_those_of_litert():
    models = {
        "Qualcomm": {each.value for each in qualcomm.SocModel},
        "MediaTek": {each.value for each in mediatek.SocModel},
        "Google": {each.value for each in google.SocModel},
        "IntelOpenVINO": {each.value for each in intel.SocModel},
    }
    for name, chip in CHIPS.items():
        assert chip.model in models[chip.vendor.manufacturer], name
        assert name == chip.model.lower().replace("_", "-")
    assert {each.value for each in mediatek.SocModel if mediatek.map_soc_to_np_version(each) == "v9"} - {"ALL"} == {
        chip.model for chip in CHIPS.values() if chip.flags
    }


def test_device_groups_have_google_plays_names():
    text = targeting([CHIPS["tensor-g5"], CHIPS["mt6991"]])
    assert '<config:device-group name="Google_Tensor_G5">' in text
    assert 'manufacturer="Google" model="Tensor G5"' in text
    assert 'manufacturer="Mediatek" model="MT6991"' in text


def test_a_kit_may_lie_around_what_comes_and_goes(tmp_path, monkeypatch):
    """A user's kit above the folder that is worked in; the listing ended in an internal error."""
    (tmp_path / "a").write_bytes(b"kit")
    before = listing(tmp_path)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert listing(tmp_path) == before
    monkeypatch.setattr("os.walk", lambda kit: [(str(kit), [], ["a", "vanished"])])
    assert listing(tmp_path) == before

"""``convertkit check`` says what ``export`` will do, for every target, without verifying it."""

import json
import shutil
import time
from types import SimpleNamespace

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit import listing, plugins
from convertkit.errors import ConvertKitError, UsageError
from convertkit.looking import checking
from convertkit.summary import schema
from tests import onnx_models
from tests.command_line import check_refusal, here
from tests.looking.nets import image_net
from tests.looking.planted import everything

TARGETS = ("onnxruntime", "tensorrt", "tflite")


def graph(nodes, inputs, outputs, stored=(), opset=20):
    """A model of any element types: ``{name: (dtype, shape)}``."""
    ends = [[helper.make_tensor_value_info(n, t, s) for n, (t, s) in each.items()] for each in (inputs, outputs)]
    made = helper.make_graph(nodes, "test", *ends, list(stored))
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def one(kind, inputs, output, opset=20, **attributes):
    node = helper.make_node(kind, list(inputs), ["y"], name="culprit", **attributes)
    return graph([node], inputs, {"y": output}, opset=opset)


def quantized(dtype, zero):
    """Rounded to integers and back with a zero point, which TensorRT takes for int8 at 0 alone."""
    stored = [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.asarray(zero, dtype), "z")]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="rounds"),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], name="back"),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    return graph(nodes, {"x": (FLOAT, [1, 8])}, {"y": (FLOAT, [1, 8])}, stored)


FLOAT, INT64, DOUBLE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE
MODELS = {
    "image": image_net(),
    "everything": everything(),
    "mlp": onnx_models.mlp(),
    "einsum": one("Einsum", {"a": (FLOAT, [2, 3]), "b": (FLOAT, [3, 4, 2])}, (FLOAT, [4]), equation="ij,jki->k"),
    "divides": one("Div", {"a": (INT64, [4]), "b": (INT64, [4])}, (INT64, [4])),
    "double": one("Det", {"a": (FLOAT, [2, 3, 3])}, (FLOAT, [2])),
    "nonzero": one("NonZero", {"a": (FLOAT, [3, 4])}, (INT64, [2, "K"])),
    "unique": one("Unique", {"a": (FLOAT, [9])}, (FLOAT, ["K"])),
    "grid": one("GridSample", {"a": (FLOAT, [1, 2, 4, 4]), "b": (FLOAT, [1, 3, 3, 2])}, (FLOAT, [1, 2, 3, 3])),
    "uint8": quantized(np.uint8, 128),
    "int8": quantized(np.int8, 0),
    "shifted": quantized(np.int8, 3),
    "string": graph(
        [helper.make_node("StringNormalizer", ["x"], ["y"], name="culprit", case_change_action="LOWER")],
        {"x": (TensorProto.STRING, [3])}, {"y": (TensorProto.STRING, [3])},
    ),
}  # fmt: skip
MODELS["everything"].graph.input[1].name = "h"
for _node in MODELS["everything"].graph.node:
    _node.input[:] = ["h" if name == "state.h" else name for name in _node.input]
    _node.output[:] = ["next" if name == "next_state.h" else name for name in _node.output]
MODELS["everything"].graph.output[1].name = "next"


def exported(source, target, place, **how):
    """How an export ends: its error, None where it delivers; one that only verification stops has converted."""
    try:
        convertkit.export(source, target, output=place, progress=False, **how)
    except ConvertKitError as error:
        return None if error.exit_code == 3 else error
    return None


@pytest.mark.parametrize("name", MODELS)
def test_says_what_export_does(name, tmp_path):
    source = onnx_models.write(tmp_path, MODELS[name])
    found = convertkit.check(source, TARGETS)
    assert [each.target for each in found.verdicts] == list(TARGETS)
    for verdict in found.verdicts:
        error = exported(source, verdict.target, tmp_path / verdict.target)
        assert verdict.converts == (error is None), (verdict, error)
        if error is not None:
            assert (verdict.kind, verdict.exit_code) == (type(error).__name__, error.exit_code)
            assert verdict.reason in str(error)
            assert verdict.node in str(error)
    assert found.passed == (name not in ("uint8", "shifted", "string", "double", "unique"))
    assert not list(tmp_path.glob("*-onnxruntime")), "nothing is written"


def same_verdict(name, target, tmp_path):
    source = onnx_models.write(tmp_path, MODELS[name])
    (verdict,) = convertkit.check(source, target).verdicts
    error = exported(source, target, tmp_path / "made")
    assert verdict.converts == (error is None), (verdict, error)
    if error is not None:
        assert (verdict.kind, verdict.exit_code) == (type(error).__name__, error.exit_code)
        assert verdict.reason in str(error)
        assert verdict.node in str(error)
    return verdict.converts


@pytest.mark.parametrize(
    ("name", "target", "converts"),
    [
        ("divides", "android", True), ("string", "android", False), ("everything", "ios", True),
        ("nonzero", "tflite-micro", False), ("mlp", "tflite-micro", True), ("grid", "coreml", True),
        ("string", "tf-serving", False),
    ],
)  # fmt: skip
def test_a_packaging_stage_foretells_what_it_refuses(name, target, converts, tmp_path):
    assert same_verdict(name, target, tmp_path) == converts


@pytest.mark.nightly
@pytest.mark.parametrize("target", ["android", "ios", "tflite-micro", "coreml", "tf-serving", "ort-mobile"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "string"])  # it needs a locale to run
def test_every_packaging_stage_foretells_what_it_refuses(name, target, tmp_path):
    same_verdict(name, target, tmp_path)


def test_what_is_foretold_is_not_run(tmp_path, monkeypatch):
    """Golden vectors of a deep image model took a minute in the reference kernels of TensorFlow Lite Micro."""
    from convertkit.targets.tflite_micro.stage import PackageMicro

    monkeypatch.setattr(PackageMicro, "run", lambda *given: pytest.fail("the stage was run"))
    assert convertkit.check(onnx_models.write(tmp_path, MODELS["mlp"]), "tflite-micro").passed


def test_a_refusal_is_taken_apart(tmp_path):
    source = onnx_models.write(tmp_path, MODELS["shifted"])
    verdicts = {each.target: each for each in convertkit.check(source, ("tensorrt", "onnxruntime")).verdicts}
    refused = verdicts["tensorrt"]
    assert (refused.converts, refused.kind, refused.exit_code) == (False, "Unsupported", 1)
    assert refused.node == "rounds (QuantizeLinear)"
    assert "zero point" in refused.reason
    assert any("--target tensorrt --int8" in way for way in refused.ways_out)
    assert verdicts["onnxruntime"].converts


def test_precisions(net):
    for flag in ("fp16", "w8", "w4"):
        found = convertkit.check(net, TARGETS, **{flag: True})
        assert found.passed, found.headline
    samples = {"x": np.random.default_rng(0).standard_normal((24, 3, 8, 8)).astype(np.float32)}
    assert convertkit.check(net, "tflite", int8=True, calib=samples).passed
    found = convertkit.check(net, ("tflite", "tensorrt"), int16x8=True, calib=samples)
    assert [each.converts for each in found.verdicts] == [True, False]
    assert "does not deliver int16x8" in found.verdicts[1].reason
    with pytest.raises(UsageError, match="--calib"):
        convertkit.check(net, int8=True)


def test_a_target_of_some_sources_is_checked_for_these_and_where_it_is_named(net, tmp_path, monkeypatch):
    """ONNX Runtime GenAI takes a decoder's folder, and is no obstacle to any other source."""
    target = plugins.target("genai")
    monkeypatch.setattr(listing, "everything", lambda: {"targets": [SimpleNamespace(name="genai", installed=True)]})
    (tmp_path / "config.json").write_text("{}")
    assert checking.asked_for(str(tmp_path), {}).targets == ("genai",)
    assert "genai" not in checking.asked_for(str(net), {}).targets
    assert not target.takes(str(net))
    with pytest.raises(UsageError, match="takes a decoder's folder"):
        convertkit.check(net, "genai")


def test_a_source_that_cannot_be_read_is_refused_for_every_target(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no model at all")
    found = convertkit.check(tmp_path / "model.onnx")
    assert not found.passed
    assert {each.kind for each in found.verdicts} == {"SourceError"}
    assert found.failure.exit_code == 1


def test_a_runtime_that_is_not_installed(net, monkeypatch):
    from convertkit.errors import MissingFramework

    target = plugins.target("tflite")

    def lacking(self, context):
        raise MissingFramework("ai-edge-litert", "tflite")

    monkeypatch.setattr(type(target), "stages", lacking)
    found = convertkit.check(net)
    (verdict,) = (each for each in found.verdicts if each.target == "tflite")
    assert (verdict.target, verdict.converts, verdict.exit_code) == ("tflite", False, 4)
    assert "pip install" in verdict.reason
    assert found.failure.exit_code == 4


def test_every_target_has_its_line_where_one_is_for_other_sources(net):
    found = convertkit.check(net, ["onnxruntime", "litert-lm"])
    assert [(each.target, each.converts, each.exit_code) for each in found.verdicts] == [
        ("onnxruntime", True, 0), ("litert-lm", False, 2),
    ]  # fmt: skip
    assert "takes a decoder's folder" in found.verdicts[1].reason
    (net.parent / "broken.onnx").write_bytes(net.read_bytes()[:-40])
    first, second = convertkit.check(net.parent / "broken.onnx", ["onnxruntime", "litert-lm"]).verdicts
    assert (first.converts, second.converts) == (False, False)
    assert "takes a decoder's folder" in second.reason
    with pytest.raises(UsageError, match="takes a decoder's folder"):
        convertkit.check(net, "litert-lm")


def test_command(tmp_path, net):
    said = here("check", net)
    assert said.code == 0, said.err
    there = {each.name for each in listing.everything()["targets"] if each.installed}
    every = [name for name in plugins.target_names() if "float32" in plugins.target(name).precisions and name in there]
    assert "ethos-u" not in every
    apart = ("genai", "litert-lm", "triton-openvino")  # which take a decoder's folder, or have to be accepted first
    every = [name for name in every if name not in apart]
    assert f"converts for {', '.join(every)}" in said.out
    told = json.loads(here("check", net, "--json").out)
    jsonschema.validate(told, schema(), cls=jsonschema.Draft202012Validator)
    assert [each["converts"] for each in told["check"]["verdicts"]] == [True] * len(every)
    source = onnx_models.write(tmp_path, MODELS["string"])
    some = here("check", source, "-t", "tflite", "--json")
    told = json.loads(some.out)
    jsonschema.validate(told, schema(), cls=jsonschema.Draft202012Validator)
    assert (some.code, told["passed"]) == (1, False)
    check_refusal(here("check", net, "-t", "tflight"), 2, "tflight")
    check_refusal(here("check", net, "--static", "M=3"), 2, "M")


@pytest.mark.parametrize("source", ["digits/model.pt", "flax-digits/model.stablehlo"])
def test_models_of_frameworks(root, source, tmp_path):
    begun = time.perf_counter()
    found = convertkit.check(root / "fixtures" / source, TARGETS)
    assert found.passed, found.headline
    assert time.perf_counter() - begun < 60
    assert not any(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.parametrize("source", ["keywords/model.pt2", "keras-digits/model.keras", "detector/saved_model"])
def test_more_fixtures_agree_with_export(root, source, tmp_path):
    for verdict in convertkit.check(root / "fixtures" / source, TARGETS).verdicts:
        error = exported(root / "fixtures" / source, verdict.target, tmp_path / verdict.target)
        assert verdict.converts == (error is None), (verdict, error)
        shutil.rmtree(tmp_path / verdict.target, ignore_errors=True)


@pytest.mark.case
@pytest.mark.nightly
def test_real_models_agree_with_export(cases, tmp_path):
    """All that lie there as files of their own; a verdict takes seconds."""
    files = [path for path in sorted(cases.rglob("*")) if path.suffix in (".onnx", ".tflite") and path.stat().st_size]
    assert len(files) > 5
    for number, path in enumerate(files):
        for verdict in convertkit.check(path, TARGETS).verdicts:
            error = exported(path, verdict.target, tmp_path / f"{number}-{verdict.target}")
            assert verdict.converts == (error is None), (path.name, verdict, error)
            assert error is None or verdict.reason in str(error)


def test_the_source_line_is_told(tmp_path):
    """Where the exporter has noted it."""
    model = MODELS["string"]
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    entry = changed.graph.node[0].metadata_props.add()
    entry.key, entry.value = "pkg.torch.onnx.stack_trace", 'File "net.py", line 12, in forward\n    text.lower()'
    verdict = convertkit.check(onnx_models.write(tmp_path, changed), "tflite").verdicts[0]
    assert verdict.location == "net.py:12, in forward"
    assert verdict.node.startswith("culprit (StringNormalizer")


def test_options_of_targets_are_checked_as_an_export_has_them(tmp_path):
    path = onnx_models.write(tmp_path, MODELS["mlp"], "m.onnx")
    said = here("check", path, "-t", "tensorrt", "--tensorrt-profile", "Q=1,2,3")
    assert said.code == 2
    assert "Q" in said.out
    with pytest.raises(
        UsageError, match="--tensorrt-profile does nothing for onnxruntime; it is for --target tensorrt"
    ):
        convertkit.check(path, "onnxruntime", target_options={"tensorrt": {"profile": ("N=1,2,3",)}})

"""Packages for iOS: what ships is what was verified, sources parse, manifests say what they have to."""

import os
import plistlib
import re
import shutil
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import convertkit
from convertkit.artifact import files_of
from convertkit.errors import SourceError, ToolError, Unsupported
from convertkit.release.verify import verify_release
from convertkit.targets.ios import target
from convertkit.targets.ios.checks import PRIVACY, check_package, packaged_model
from convertkit.targets.ios.limits import check_limits
from convertkit.targets.ios.names import RESERVED
from convertkit.targets.ios.runner import IosRunner
from convertkit.targets.ios.runtimes import RUNTIMES
from convertkit.targets.ios.swift import quoted
from convertkit.targets.mobile import opsets
from convertkit.targets.mobile.golden import little
from convertkit.targets.mobile.opsets import check_opset
from convertkit.targets.mobile.order import names_of
from convertkit.targets.mobile.ports import ports_of
from convertkit.targets.ort_mobile import reading
from convertkit.targets.ort_mobile.file import write_ort
from convertkit.targets.ort_mobile.required import CONFIG, kinds
from tests.command_line import here
from tests.installed import needs
from tests.targets.mobile.android_packages import DETECTIONS, detector, pixels, saved, several_types, waveform

needs("ai_edge_litert")
needs("PIL")

SAMPLES = np.random.default_rng(0).random((24, 3, 24, 17), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ios")
    (made / "labels.txt").write_text("cat\ndog\n$bird\nfish\nzebra\n")
    saved(pixels(3, 24, 17), made / "net.onnx")
    return made


def exported(folder, name, **options):
    return convertkit.export(
        folder / "net.onnx", "ios", output=folder / name, label_file=str(folder / "labels.txt"),
        calib=SAMPLES, normalization="image:127.5/127.5",
        target_options={"ios": {"module": "Zoo", "image": "image", **options}},
    )  # fmt: skip


@pytest.fixture(scope="module")
def onnxruntime(folder):
    return exported(folder, "onnxruntime")


@pytest.fixture(scope="module")
def ort(folder):
    return exported(folder, "ort", runtime="ort-mobile")


@pytest.fixture(scope="module")
def litert(folder):
    return exported(folder, "litert", runtime="litert")


def test_what_was_verified_is_the_resource(folder, onnxruntime, ort, litert):
    for result, name in ((onnxruntime, "onnxruntime"), (ort, "ort-mobile")):
        plainly = convertkit.export(folder / "net.onnx", name, static={"N": 1}, output=folder / f"plain {name}")
        assert packaged_model(result.artifact.path) == plainly.artifact.path.read_bytes()
    for result, runtime in ((onnxruntime, "ONNX Runtime"), (ort, "ONNX Runtime"), (litert, "LiteRT")):
        with IosRunner(result.artifact) as runner:
            before = runner.run({"image": SAMPLES[:1]})["scores"]
            assert re.match(rf"{runtime} [\d.]+.*, out of the package", runner.runtime)
        copy = folder / f"{result.path.name} copy"
        shutil.copytree(result.artifact.path, copy)
        (resource,) = [path for path in copy.rglob("Resources/*") if path.suffix in (".onnx", ".ort", ".tflite")]
        model = bytearray(resource.read_bytes())
        weight = np.frombuffer(pixels(3, 24, 17).graph.initializer[0].raw_data, np.float32).reshape(5, 3, 3, 3)
        laid = weight.transpose(0, 2, 3, 1) if resource.suffix == ".tflite" else weight
        place = bytes(model).index(laid.tobytes())
        model[place : place + 400] = np.full(100, 2, np.float32).tobytes()
        resource.write_bytes(model)
        with IosRunner(replace(result.artifact, path=copy)) as runner:
            assert np.abs(runner.run({"image": SAMPLES[:1]})["scores"] - before).max() > 1e-3
        resource.unlink()
        with pytest.raises(SourceError, match="has 0 models among its resources"):
            packaged_model(copy)


def test_golden_vectors_are_what_the_packaged_model_gives(onnxruntime, ort, litert):
    for result in (onnxruntime, ort, litert):
        golden = result.artifact.path / "Tests" / "ZooTests" / "Golden"
        ports = ports_of(result.artifact, *names_of(packaged_model(result.artifact.path)), RESERVED)
        with IosRunner(result.artifact) as runner:
            for at in range(3):
                (image,) = ports.inputs
                assert (golden / f"{at}/in_image.bin").read_bytes() == little(image.given(SAMPLES[at : at + 1]))
                found = runner.run({"image": SAMPLES[at : at + 1]})["scores"]
                assert (golden / f"{at}/out_scores.bin").read_bytes() == little(found)
        assert (golden / "picture.bin").stat().st_size == 41 * 53 * 4
        picture = np.frombuffer((golden / "picture_image.bin").read_bytes(), np.float32)
        assert picture.size == 24 * 17 * 3
        assert -1 <= picture.min() < picture.max() <= 1


@pytest.mark.parametrize("runtime", ["onnxruntime", "litert"])
def test_a_detector_tells_typed_detections(folder, runtime, tmp_path):
    """The Swift code parses, and its test holds what the packaged model tells of pictures."""
    needs("tree_sitter_swift")
    import tree_sitter
    import tree_sitter_swift

    noise = np.random.default_rng(0).integers(0, 256, (24, 24, 17, 3), np.uint8)
    np.savez(tmp_path / "noise.npz", image=noise)
    result = convertkit.export(
        saved(detector(24, 17), tmp_path / "net.onnx"), "ios", output=tmp_path / "out", calib=tmp_path / "noise.npz",
        preprocess="image:24x17,mean:127.5,std:127.5", postprocess=DETECTIONS,
        label_file=str(folder / "labels.txt"), target_options={"ios": {"module": "Finder", "runtime": runtime}},
    )  # fmt: skip
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language()))
    for file in result.artifact.path.rglob("*.swift"):
        assert not parser.parse(file.read_bytes()).root_node.has_error, file
    code = (result.artifact.path / "Sources/Finder/Finder.swift").read_text()
    assert "public func detections(_ outputs: Outputs) -> [Detection] {" in code
    assert "points: Array(outputs.detectionPoints[(2 * place)..<(2 * (place + 1))])" in code
    assert "func names" not in code
    test = (result.artifact.path / "Tests/FinderTests/FinderTests.swift").read_text()
    assert "XCTAssertEqual(each.label, model.labels[each.index]" in test
    golden = result.artifact.path / "Tests/FinderTests/Golden"
    counts = [np.frombuffer(file.read_bytes(), np.int64)[0] for file in golden.glob("*/out_detectionCount.bin")]
    assert len(counts) == 3
    assert max(counts) > 1


@pytest.mark.parametrize(("runtime", "kind"), [("onnxruntime", "int32"), ("litert", "int16")])
def test_sounds_come_out_of_wav_files(runtime, kind, tmp_path):
    """The Swift code parses, and its test has the first vector's PCM as a WAV file."""
    needs("tree_sitter_swift")
    import tree_sitter
    import tree_sitter_swift

    words = "audio:16000" + (",int32" if kind == "int32" else "")
    result = convertkit.export(
        saved(waveform(), tmp_path / "net.onnx"), "ios", output=tmp_path / "out", preprocess=words,
        target_options={"ios": {"module": "Ear", "runtime": runtime}},
    )  # fmt: skip
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language()))
    for file in result.artifact.path.rglob("*.swift"):
        assert not parser.parse(file.read_bytes()).root_node.has_error, file
    golden = result.artifact.path / "Tests/EarTests/Golden"
    with wave.open(str(golden / "sound.wav")) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        heard = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    np.testing.assert_array_equal(heard, np.frombuffer((golden / "0/in_sound.bin").read_bytes(), kind))
    assert heard.max() > 1000


def test_onnx_runtime_of_ios_has_no_pcm(tmp_path):
    with pytest.raises(Unsupported, match="has no tensors of int16") as refused:
        convertkit.export(
            saved(waveform(), tmp_path / "net.onnx"), "ios", output=tmp_path / "out", preprocess="audio:16000"
        )
    assert "int32, where the input is PCM" in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_package_with_ort_says_what_a_reduced_build_needs(onnxruntime, ort):
    package = ort.artifact.path
    config = (package / CONFIG).read_text()
    assert kinds(config) >= {"FusedConv", "Softmax"}
    assert re.search(r"^# .*zoo\.ort", config, re.MULTILINE)
    assert str(package.parent) not in config
    assert f"--include_ops_by_config {CONFIG}" in (package / "README.md").read_text()
    assert 'try Resources.path("zoo", "ort")' in (package / "Sources/Zoo/Zoo.swift").read_text()
    assert '.copy("Resources/zoo.ort")' in (package / "Package.swift").read_text()
    assert not (onnxruntime.artifact.path / CONFIG).exists()
    assert "smaller ONNX Runtime" not in (onnxruntime.artifact.path / "README.md").read_text()


def test_verify_gives_the_golden_vectors_again(folder, onnxruntime, ort, litert, tmp_path):
    for result in (onnxruntime, ort, litert):
        sentences = {each.name: each.sentence for each in verify_release(result.artifact.path).checks}
        assert sentences["Zoo"] == "3 golden vectors, not on ios"
    copy = tmp_path / "Zoo"
    shutil.copytree(onnxruntime.artifact.path, copy)
    moved, golden = replace(onnxruntime.artifact, path=copy), copy / "Tests" / "ZooTests" / "Golden"
    shutil.copyfile(golden / "0" / "in_image.bin", golden / "2" / "in_image.bin")
    (wrong,) = target.replay(moved, "float32").wrong
    assert wrong.startswith("vector 3: output scores differs by")
    (golden / "1" / "out_scores.bin").write_bytes(b"")
    with pytest.raises(SourceError, match="holds 0 elements, and scores has 5"):
        target.replay(moved, "float32")
    shutil.rmtree(golden)
    with pytest.raises(SourceError, match="golden vectors lie in 0 folders"):
        target.replay(moved, "float32")


def test_manifests(onnxruntime, litert):
    package = onnxruntime.artifact.path
    text = (package / "Package.swift").read_text()
    assert text.startswith("// swift-tools-version: 5.9\n")
    library = RUNTIMES["onnxruntime"].library
    assert f'.package(url: "{library.url}", exact: "{library.version}")' in text
    listed = set(re.findall(r'\.copy\("Resources/([^"]+)"\)', text))
    assert listed == {path.name for path in (package / "Sources/Zoo/Resources").iterdir()}
    assert listed == {"zoo.onnx", "zoo.labels.txt", PRIVACY}
    assert not (package / "Zoo.podspec").exists()
    pod = (litert.artifact.path / "Zoo.podspec").read_text()
    assert "s.dependency 'TensorFlowLiteSwift', '~> 2.17.0'" in pod
    assert not (litert.artifact.path / "Package.swift").exists()
    for each in (package, litert.artifact.path):
        manifest = plistlib.loads((each / "Sources/Zoo/Resources" / PRIVACY).read_bytes())
        assert manifest["NSPrivacyTracking"] is False
        assert manifest["NSPrivacyCollectedDataTypes"] == manifest["NSPrivacyAccessedAPITypes"] == []


def test_sources_parse(folder, onnxruntime, ort, litert):
    needs("tree_sitter_swift")
    import tree_sitter
    import tree_sitter_swift

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language()))
    (folder / "types").mkdir()
    types = convertkit.export(
        saved(several_types(), folder / "types" / "net.onnx"), "ios", output=folder / "types" / "out",
        target_options={"ios": {"runtime": "litert"}},
    )  # fmt: skip
    keywords = convertkit.export(
        Path(__file__).parents[3] / "fixtures/keywords/model.pt2", "ios", static={"N": 1}, output=folder / "keywords"
    )
    chosen = [
        convertkit.export(
            folder / "net.onnx", "ios", output=folder / how, label_file=str(folder / "labels.txt"),
            preprocess="image:30x20,crop:0.8,mean:0,std:255", postprocess=how,
            target_options={"ios": {"image": "image"}},
        )
        for how in ("top:2", "argmax")
    ]  # fmt: skip
    for each, function in zip(chosen, ("classes(_ outputs: Outputs, count: Int = 2)", "names(_ outputs: Outputs)")):
        assert f"public func {function} -> [" in (each.artifact.path / "Sources/Model/Model.swift").read_text()
    files = [
        path for each in (onnxruntime, ort, litert, types, keywords, *chosen) for path in each.path.rglob("*.swift")
    ]
    assert len(files) >= 22
    for file in files:
        assert not parser.parse(file.read_bytes()).root_node.has_error, file
    assert parser.parse(b"func a( {").root_node.has_error
    code = next(path for path in files if path.name == "Model.swift" and "types" in str(path)).read_text()
    assert "public func run(input0: [Int32], input1: [Int64], isOn: [Bool], xY: [Float]) throws -> Outputs {" in code
    code = next(path for path in files if path.name == "Model.swift" and "keywords" in str(path)).read_text()
    assert "public func reset() {" in code
    assert len((keywords.artifact.path / "Sources/Model/Resources/model.state").read_bytes()) == 32 * 4


def test_two_exports_give_the_same_bytes(folder, onnxruntime):
    again = exported(folder, "again")
    assert again.artifact.sha256 == onnxruntime.artifact.sha256
    assert len(files_of(again.artifact.path)) > 10


def test_a_fault_is_named(folder, onnxruntime, tmp_path):
    resources = ("zoo.onnx", "zoo.labels.txt", PRIVACY)
    check_package(onnxruntime.artifact.path, resources)
    for change, words in (
        (lambda place: (place / "zoo.labels.txt").unlink(), "has the resources"),
        (lambda place: (place / PRIVACY).write_bytes(b"<plist>"), "is not a property list"),
        (lambda place: (place / PRIVACY).write_bytes(plistlib.dumps({"NSPrivacyTracking": True})), "says"),
    ):
        copy = tmp_path / words
        shutil.copytree(onnxruntime.artifact.path, copy)
        change(copy / "Sources" / "Zoo" / "Resources")
        with pytest.raises(ToolError, match=words):
            check_package(copy, resources)


def test_what_a_library_lacks_is_refused(folder, litert, tmp_path):
    source = saved(several_types(), tmp_path / "net.onnx")
    with pytest.raises(Unsupported, match="onnxruntime has no tensors of bool"):
        convertkit.export(source, "ios", output=tmp_path / "out")
    assert os.listdir(tmp_path) == ["net.onnx"]
    model = packaged_model(litert.artifact.path)
    ports = ports_of(litert.artifact, *names_of(model), RESERVED)
    with pytest.raises(Unsupported, match=r"the model needs TensorFlow Lite [\d.]+, and the newest pod is 1\.0\.0"):
        check_limits(model, ports, replace(RUNTIMES["litert"], min_runtime="1.0.0"))
    with pytest.raises(Unsupported, match="the model is of opset 21, and lib surely knows 20"):
        check_opset(several_types().SerializeToString(), 20, "lib")


def test_fused_operators_that_a_library_may_not_know_are_refused(ort, monkeypatch):
    model = packaged_model(ort.artifact.path)
    check_opset(model, 24, "lib")
    with pytest.raises(Unsupported, match="the model is of opset 21, and lib surely knows 20"):
        check_opset(model, 20, "lib")
    monkeypatch.setattr(opsets, "LATER", frozenset({"FusedConv", "Gelu"}))
    with pytest.raises(Unsupported, match="fused operators to FusedConv, which lib may not know"):
        check_opset(model, 24, "lib")


def test_what_is_later_is_told_of_the_release_that_exports():
    """With another release of ONNX Runtime the table has to be made again."""
    assert f"onnxruntime=={opsets.COMPARED_WITH}\n" in Path("constraints.txt").read_text()
    assert "BranchwiseRMSNorm" in opsets.LATER
    assert "FusedConv" not in opsets.LATER


def test_operators_in_branches_are_seen(tmp_path):
    inside = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], "b", [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["z"])], "b", [], [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3])]
    )
    node = helper.make_node("If", ["c"], ["out"], then_branch=inside, else_branch=other)
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
         helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [3])],
    )  # fmt: skip
    opsets_of = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    saved(helper.make_model(graph, opset_imports=opsets_of, ir_version=10), tmp_path / "m.onnx")
    write_ort(tmp_path / "m.onnx", tmp_path / "m.ort", small=False)
    model = (tmp_path / "m.ort").read_bytes()
    assert reading.fused(model) == {"Gelu"}
    assert reading.names(model) == (("x", "c"), ("out",))
    assert reading.opset(model) == 21


BAD = {
    "small letter": (["--ios-module", "zoo"], 2, "expected a capital letter"),
    "taken": (["--ios-module", "Data"], 2, "Data is a name that the generated code uses"),
    "a runtime": (["--ios-runtime", "tflite"], 2, "not one of onnxruntime, ort-mobile, litert, coreml"),
    "no such input": (["--ios-image", "img"], 2, "--ios-image img: no such input; there are: image"),
    "both": (["--ios-image", "image", "--ios-audio", "image"], 2, "are both of image"),
    "too few labels": (["--label-file", "two.txt"], 2, "2 labels, and no output has 2 classes"),
    "no label file": (["--label-file", "none.txt"], 2, "none.txt"),
    "precision": (["--int16x8", "--calib", "net.onnx"], 2, "target onnxruntime does not deliver int16x8"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_one_sentence(name, folder, tmp_path, monkeypatch):
    words, code, sentence = BAD[name]
    monkeypatch.chdir(folder)
    Path("two.txt").write_text("a\nb\n")
    said = here("export", "net.onnx", "-t", "ios", *words, "-o", tmp_path / "out")
    assert (said.code, sentence in said.complaint) == (code, True), said.err
    assert os.listdir(tmp_path) == []


def test_names_are_quoted():
    assert quoted('a"\\b') == '"a\\"\\\\b"'
    assert quoted("x\x01\u2028") == '"x\\u{1}\\u{2028}"'

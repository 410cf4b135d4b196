"""Swift packages with Core ML's model: what ships is evaluated, and code and manifest speak of the same features."""

import os
import plistlib
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import convertkit
from convertkit import plugins
from convertkit.errors import SourceError, Unsupported
from convertkit.release.verify import verify_release
from convertkit.result import load
from convertkit.targets.coreml.package.program import read_package
from convertkit.targets.ios import target
from convertkit.targets.ios.checks import PRIVACY, packaged_resource
from convertkit.targets.ios.coreml import features_of
from convertkit.targets.mobile.golden import little
from tests.command_line import here
from tests.installed import needs
from tests.targets.mobile.android_packages import DETECTIONS, detector, pixels, saved, several_types

needs("coremltools")
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
        target_options={"ios": {"module": "Zoo", "image": "image", "runtime": "coreml"}}, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def zoo(folder):
    return exported(folder, "zoo")


@pytest.fixture(scope="module")
def several(folder):
    """Inputs whose names are not Core ML's, and integers, which the package has in 32 bits."""
    (folder / "types").mkdir()
    return convertkit.export(
        saved(several_types(), folder / "types" / "net.onnx"), "ios", output=folder / "types" / "out",
        target_options={"ios": {"runtime": "coreml"}},
    )  # fmt: skip


def test_the_resource_is_the_coreml_target_s_package_and_is_evaluated_there(folder, zoo):
    plainly = convertkit.export(folder / "net.onnx", "coreml", static={"N": 1}, output=folder / "plain", calib=SAMPLES)
    resource = packaged_resource(zoo.artifact.path)
    files = sorted(path.relative_to(resource) for path in resource.rglob("*") if path.is_file())
    assert files == sorted(
        path.relative_to(plainly.artifact.path) for path in plainly.artifact.path.rglob("*") if path.is_file()
    )
    for file in files:
        assert (resource / file).read_bytes() == (plainly.artifact.path / file).read_bytes()
    with plugins.runner(zoo.artifact) as runner:
        assert runner.runtime == "MIL evaluator (evaluated, not run on Apple hardware), out of the package"
        before = runner.run({"image": SAMPLES[:1]})["scores"]
    copy = folder / "copy"
    shutil.copytree(zoo.artifact.path, copy)
    weights = next(copy.rglob("weight.bin"))
    stored = bytearray(weights.read_bytes())
    place = bytes(stored).index(pixels(3, 24, 17).graph.initializer[0].raw_data)
    stored[place : place + 400] = np.full(100, 2, np.float32).tobytes()
    weights.write_bytes(stored)
    with plugins.runner(replace(zoo.artifact, path=copy)) as runner:
        assert np.abs(runner.run({"image": SAMPLES[:1]})["scores"] - before).max() > 1e-3
    shutil.rmtree(packaged_resource(copy))
    with pytest.raises(SourceError, match="has 0 models among its resources"):
        packaged_resource(copy)


def test_manifest_lists_what_xcode_compiles(zoo):
    package = zoo.artifact.path
    text = (package / "Package.swift").read_text()
    assert re.findall(r'\.(process|copy)\("Resources/([^"]+)"\)', text) == [
        ("process", "zoo_model.mlpackage"), ("copy", "zoo.labels.txt"), ("copy", PRIVACY),
    ]  # fmt: skip
    assert {path.name for path in (package / "Sources/Zoo/Resources").iterdir()} == {
        "zoo_model.mlpackage", "zoo.labels.txt", PRIVACY,
    }  # fmt: skip
    assert 'platforms: [.iOS("17.0"), .macOS("14.0")],' in text
    assert "dependencies: [\n" not in text
    manifest = plistlib.loads((package / "Sources/Zoo/Resources" / PRIVACY).read_bytes())
    assert manifest["NSPrivacyTracking"] is False
    page = (package / "README.md").read_text()
    assert "for iOS 17.0 and macOS 14.0 or newer; it brings no library" in page
    assert "evaluator of Core ML's operations" in page


def test_golden_vectors_are_what_the_package_gives(zoo):
    golden = zoo.artifact.path / "Tests" / "ZooTests" / "Golden"
    with plugins.runner(zoo.artifact) as runner:
        for at in range(3):
            assert (golden / f"{at}/in_image.bin").read_bytes() == little(SAMPLES[at : at + 1])
            found = runner.run({"image": SAMPLES[at : at + 1]})["scores"]
            assert (golden / f"{at}/out_scores.bin").read_bytes() == little(found)
    assert (golden / "picture.bin").stat().st_size == 41 * 53 * 4
    (check,) = (each for each in verify_release(zoo.artifact.path).checks if each.name == "Zoo")
    assert check.sentence == "3 golden vectors, not on ios"


def test_verify_finds_another_answer(zoo, tmp_path):
    copy = tmp_path / "Zoo"
    shutil.copytree(zoo.artifact.path, copy)
    golden = copy / "Tests" / "ZooTests" / "Golden"
    shutil.copyfile(golden / "0" / "in_image.bin", golden / "2" / "in_image.bin")
    (wrong,) = target.replay(replace(zoo.artifact, path=copy), "float32").wrong
    assert wrong.startswith("vector 3: output scores differs by")


@pytest.mark.parametrize(("precision", "share"), [("float32", 1e-3), ("fp16", 5e-2), ("int8", 1e-1)])
def test_a_device_may_differ_as_in_the_coreml_target_s_own_test(precision, share, folder):
    result = exported(folder, precision, **({} if precision == "float32" else {precision: True}))
    assert result.passed
    tests = result.artifact.path / "Tests" / "ZooTests"
    code = (tests / "ZooTests.swift").read_text()
    greatest = max(np.frombuffer(file.read_bytes(), np.float32).max() for file in tests.glob("Golden/*/out_scores.bin"))
    (bound,) = re.findall(r"found\.scores, ([\d.e-]+)\)", code)
    assert float(bound) == pytest.approx(share * greatest, rel=1e-6)
    for units in (".cpuOnly", ".all"):
        assert f"try checkGoldenVectors(Zoo(units: {units}))" in code


def test_features_have_core_ml_s_names_and_sizes(several):
    program = read_package(packaged_resource(several.artifact.path))
    code = (several.artifact.path / "Sources/Model/Model.swift").read_text()
    told = re.findall(r'Port\(name: "([^"]+)", type: "([^"]+)", bytes: (\d+), shape: \[([\d, ]*)\]\)', code)
    features = [*program.inputs, *program.outputs]
    assert [(name, kind, shape) for name, kind, _, shape in told] == [
        (each.name, each.dtype, ", ".join(map(str, each.shape))) for each in features
    ]
    assert [each.name for each in features] == ["class", "_2nd_value", "is_on", "x__y", "out_put", "val"]
    assert "func run(input0: [Int32], input1: [Int32], isOn: [Int32], xY: [Float]) throws -> Outputs {" in code


def test_a_scalar_is_an_array_of_one(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "gain"], ["y"], "mul"), helper.make_node("Neg", ["gain"], ["z"], "neg")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
         helper.make_tensor_value_info("gain", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]),
         helper.make_tensor_value_info("z", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.float32(2), "unused")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    result = convertkit.export(
        saved(made, tmp_path / "net.onnx"), "ios", output=tmp_path / "out",
        target_options={"ios": {"runtime": "coreml"}},
    )  # fmt: skip
    code = (result.artifact.path / "Sources/Model/Model.swift").read_text()
    assert 'Port(name: "gain", type: "float32", bytes: 4, shape: [1]),' in code
    assert 'Port(name: "z", type: "float32", bytes: 4, shape: [1]),' in code


def test_state_goes_from_call_to_call(tmp_path):
    result = convertkit.export(
        Path(__file__).parents[3] / "fixtures/keywords/model.pt2", "ios", static={"N": 1}, output=tmp_path / "out",
        target_options={"ios": {"runtime": "coreml"}},
    )  # fmt: skip
    code = (result.artifact.path / "Sources/Model/Model.swift").read_text()
    assert "public func reset() {" in code
    assert len((result.artifact.path / "Sources/Model/Resources/model.state").read_bytes()) == 32 * 4


def test_sources_parse(folder, zoo, several, tmp_path):
    needs("tree_sitter_swift")
    import tree_sitter
    import tree_sitter_swift

    noise = np.random.default_rng(0).integers(0, 256, (24, 24, 17, 3), np.uint8)
    np.savez(tmp_path / "noise.npz", image=noise)
    finder = convertkit.export(
        saved(detector(24, 17), tmp_path / "net.onnx"), "ios", output=tmp_path / "out", calib=tmp_path / "noise.npz",
        preprocess="image:24x17,mean:127.5,std:127.5", postprocess=DETECTIONS,
        label_file=str(folder / "labels.txt"), target_options={"ios": {"module": "Finder", "runtime": "coreml"}},
    )  # fmt: skip
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language()))
    files = [path for each in (zoo, several, finder) for path in each.artifact.path.rglob("*.swift")]
    assert len(files) >= 15
    for file in files:
        assert not parser.parse(file.read_bytes()).root_node.has_error, file
    test = (finder.artifact.path / "Tests/FinderTests/FinderTests.swift").read_text()
    assert "[0], Int32(detected.count)" in test
    engine = (zoo.artifact.path / "Sources/Zoo/Engine.swift").read_text()
    assert 'Resources.path("zoo_model", "mlmodelc")' in engine
    assert 'Resources.path("zoo_model", "mlpackage")' in engine


def test_two_exports_give_the_same_bytes(folder, zoo):
    assert exported(folder, "again").artifact.sha256 == zoo.artifact.sha256


def test_the_operations_are_those_of_the_package(zoo):
    assert "conv" in {each.kind for each in target.operators(zoo.artifact)}


def test_systems_are_those_of_the_package(folder):
    made = convertkit.export(
        folder / "net.onnx", "coreml", static={"N": 1}, output=folder / "sixteen",
        target_options={"coreml": {"deployment-target": "iOS16"}},
    )  # fmt: skip
    found = features_of(made.artifact)
    assert (found.ios, found.macos) == ("16.0", "13.0")
    weights = exported(folder, "four", w4=True)
    assert '.iOS("18.0"), .macOS("15.0")' in (weights.artifact.path / "Package.swift").read_text()


def test_options_of_the_coreml_target_reach_the_package(folder):
    lines = {}
    for name, words in {"usual": [], "older": ["--coreml-deployment-target", "iOS16"]}.items():
        said = here(
            "export", folder / "net.onnx", "-t", "ios", "--ios-runtime", "coreml", *words, "--cache", folder / "cache",
            "-o", folder / f"cli-{name}",
        )  # fmt: skip
        assert said.code == 0, said.err
        result = load(folder / f"cli-{name}")
        lines[name] = result.report["command"], result.report["packaged_options"]["coreml"]["deployment-target"]
        assert not result.report["steps"][-1]["cached"], "a changed option of what is packaged is another package"
    assert "--coreml-deployment-target iOS16" in lines["older"][0]
    assert (lines["older"][1], lines["usual"][1]) == ("iOS16", None)
    package = folder / "cli-older" / "Model" / "Package.swift"
    assert '.iOS("16.0"), .macOS("13.0")' in package.read_text()
    again = here("export", folder / "net.onnx", *shlex.split(lines["older"][0])[3:], "-o", folder / "cli-again")
    assert again.code == 0, again.err
    assert (folder / "cli-again/manifest.json").read_bytes() == (folder / "cli-older/manifest.json").read_bytes()


BAD = {
    "deflated": (["--compress"], "--compress does not go with --ios-runtime coreml"),
    "another target's": (["--onnxruntime-cpu", "vnni"], "--onnxruntime-cpu does nothing for ios"),
    "another runtime's": (["--ios-runtime", "litert", "--coreml-palette", "4"], "--coreml-palette does nothing"),
    "Core ML's state alone": (["--coreml-state"], "the typed API hands state"),
    "Core ML's images": (["-t", "coreml", "--coreml-image", "image=rgb"], "--ios-image takes pictures"),
    "Core ML's labels": (["-t", "coreml", "--coreml-labels", "labels.txt"], "--label-file names the classes"),
    "Core ML's sizes": (["-t", "coreml", "--coreml-shapes", "N=1,2"], "the arrays of a typed API have one size"),
    "Core ML's state": (["-t", "coreml", "--coreml-state"], "the typed API hands state"),
    "precision": (["--int16x8", "--calib", "net.onnx"], "target coreml does not deliver int16x8"),
    "a taken name": (["--ios-module", "CoreML"], "CoreML is a name that the generated code uses"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_one_sentence(name, folder, tmp_path, monkeypatch):
    words, sentence = BAD[name]
    monkeypatch.chdir(folder)
    said = here("export", "net.onnx", "-t", "ios", "--ios-runtime", "coreml", *words, "-o", tmp_path / "out")
    assert (said.code, sentence in said.complaint) == (2, True), said.err
    assert os.listdir(tmp_path) == []


def test_halves_are_not_arrays_of_the_api(tmp_path):
    made = helper.make_model(
        helper.make_graph(
            [helper.make_node("Neg", ["x"], ["y"], "neg")], "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT16, [2, 3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [2, 3])],
        ),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=10,
    )  # fmt: skip
    with pytest.raises(Unsupported, match="the typed API has no arrays of float16"):
        convertkit.export(
            saved(made, tmp_path / "net.onnx"), "ios", output=tmp_path / "out",
            target_options={"ios": {"runtime": "coreml"}},
        )  # fmt: skip
    assert os.listdir(tmp_path) == ["net.onnx"]

"""Android packages, member by member: what ships is what was verified, and build tools find what they look for."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

import convertkit
from convertkit.artifact import files_of, sha256_of
from convertkit.errors import SourceError, ToolError, UsageError
from convertkit.release.verify import verify_release
from convertkit.targets.android.archive import PAGE, archive, members_of
from convertkit.targets.android.checks import check_package, packaged_model
from convertkit.targets.android.maven import Coordinates, digest
from convertkit.targets.android.names import PackageName
from convertkit.targets.android.runner import AndroidRunner
from convertkit.targets.android.runtimes import RUNTIMES
from convertkit.targets.mobile.ports import identifier, plain
from convertkit.targets.ort_mobile.required import CONFIG, kinds
from tests.command_line import here
from tests.installed import needs
from tests.targets.mobile.android_packages import pixels, saved, several_types

needs("ai_edge_litert")
needs("PIL")

LABELS = "cat\ndog\n$bird\nfish\nzebra\n"
SAMPLES = np.random.default_rng(0).random((24, 3, 24, 17), np.float32)


def tool(name):
    """Skips a test whose tool is not on this machine, and says so."""
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("android")
    (made / "labels.txt").write_text(LABELS)
    saved(pixels(3, 24, 17), made / "net.onnx")
    return made


def exported(folder, name, **options):
    return convertkit.export(
        folder / "net.onnx", "android", output=folder / name, label_file=str(folder / "labels.txt"),
        description="Animals */ of a zoo", normalization="image:127.5/127.5",
        target_options={"android": {"package": "com.example.zoo", "image": "image", **options}},
    )  # fmt: skip


@pytest.fixture(scope="module")
def litert(folder):
    return exported(folder, "litert")


@pytest.fixture(scope="module")
def onnxruntime(folder):
    return exported(folder, "onnxruntime", runtime="onnxruntime", ai_pack=True)


@pytest.fixture(scope="module")
def ort(folder):
    return exported(folder, "ort", runtime="ort-mobile")


def test_the_model_is_what_the_target_makes(folder, litert, onnxruntime, ort):
    """Byte for byte, with the same sizes; stored where a page begins."""
    beside = {
        "tflite": convertkit.export(
            folder / "net.onnx", "tflite", static={"N": 1}, output=folder / "t", label_file=str(folder / "labels.txt"),
            description="Animals */ of a zoo", normalization="image:127.5/127.5",
        ),
        "onnxruntime": convertkit.export(folder / "net.onnx", "onnxruntime", static={"N": 1}, output=folder / "o"),
        "ort-mobile": convertkit.export(folder / "net.onnx", "ort-mobile", static={"N": 1}, output=folder / "m"),
    }  # fmt: skip
    packages = {"tflite": litert, "onnxruntime": onnxruntime, "ort-mobile": ort}
    for package, plainly in ((packages[name], beside[name]) for name in beside):
        aar = package.artifact.path
        assert packaged_model(aar) == plainly.artifact.path.read_bytes()
        name = f"assets/zoo{plainly.artifact.path.suffix}"
        with zipfile.ZipFile(aar) as opened:
            assert opened.testzip() is None
            entry = opened.getinfo(name)
            assert entry.compress_type == zipfile.ZIP_STORED
        member = members_of(aar)[name]
        assert member.offset % PAGE == 0
        assert aar.read_bytes()[member.offset : member.offset + entry.file_size] == packaged_model(aar)


def test_what_was_verified_ran_out_of_the_archive(litert, tmp_path):
    aar = tmp_path / litert.artifact.path.name
    before = litert.run(SAMPLES[:1])["scores"]
    weight = pixels(3, 24, 17).graph.initializer[0].raw_data
    floats = np.frombuffer(weight, np.float32).reshape(5, 3, 3, 3).transpose(0, 2, 3, 1).tobytes()
    rebuilt = {name: each.data for name, each in members_of(litert.artifact.path).items()}
    inner = bytearray(rebuilt["assets/zoo.tflite"])
    at = bytes(inner).index(floats)
    inner[at : at + 400] = np.full(100, 2, np.float32).tobytes()
    rebuilt["assets/zoo.tflite"] = bytes(inner)
    aar.write_bytes(archive(rebuilt, {"assets/zoo.tflite"}))
    with AndroidRunner(replace(litert.artifact, path=aar)) as runner:
        assert np.abs(runner.run({"image": SAMPLES[:1]})["scores"] - before).max() > 1e-3
        assert re.fullmatch(r"LiteRT [\d.]+, XNNPACK, out of the package", runner.runtime)


def test_a_package_with_ort_says_what_a_reduced_build_needs(litert, ort):
    config = (ort.path / CONFIG).read_text()
    assert kinds(config) >= {"FusedConv", "Softmax"}
    assert re.search(r"^# .*zoo\.ort", config, re.MULTILINE)
    assert f"--include_ops_by_config {CONFIG}" in (ort.path / "README.md").read_text()
    code = (ort.path / "project/zoo/src/main/kotlin/com/example/zoo/Zoo.kt").read_text()
    assert 'const val ASSET = "zoo.ort"' in code
    assert 'noCompress += "ort"' in (ort.path / "project/sample/build.gradle.kts").read_text()
    with AndroidRunner(ort.artifact) as runner:
        assert re.fullmatch(r"ONNX Runtime [\d.]+, out of the package", runner.runtime)
    assert not (litert.path / CONFIG).exists()
    assert "smaller ONNX Runtime" not in (litert.path / "README.md").read_text()


def test_verify_gives_the_golden_vectors_again(litert, onnxruntime, ort):
    for result in (litert, onnxruntime, ort):
        (_, check) = verify_release(result.artifact.path).checks
        assert check.sentence == "3 golden vectors, not on android"


def test_it_is_estimated_as_the_file_in_it(folder, litert, onnxruntime):
    found = litert.report["estimates"]
    assert [each["device"] for each in found["devices"] if each["shown"]] == ["arm64-a76", "arm64-i8mm"]
    (folder / "packaged.tflite").write_bytes(packaged_model(litert.artifact.path))
    for name in ("packaged.tflite", "litert"):
        (told,) = convertkit.bench(folder / name, device=("phone",)).estimated
        assert told.ms == pytest.approx(next(e["ms"] for e in found["devices"] if e["device"] == "phone"), rel=1e-3)
    assert found["memory"]["weights"] > 0
    other = onnxruntime.report["estimates"]
    assert (other["devices"], other["memory"]) == ([], None)
    assert "ONNX Runtime" in other["lacking"]


def test_the_repository_is_one(litert):
    place = litert.path / "maven" / "com" / "example" / "zoo"
    version = place / "1.0.0"
    aar = version / "zoo-1.0.0.aar"
    assert sha256_of(aar) == litert.artifact.sha256
    for file in (path for path in files_of(place) if path.suffix[1:] not in ("md5", "sha1", "sha256", "sha512")):
        for kind in ("md5", "sha1", "sha256", "sha512"):
            assert file.with_name(f"{file.name}.{kind}").read_text() == hashlib.new(kind, file.read_bytes()).hexdigest()
    names = {"m": "http://maven.apache.org/POM/4.0.0"}
    pom = ET.parse(version / "zoo-1.0.0.pom").getroot()
    assert [pom.findtext(f"m:{name}", "", names) for name in ("groupId", "artifactId", "version", "packaging")] == [
        "com.example", "zoo", "1.0.0", "aar",
    ]  # fmt: skip
    assert pom.findtext("m:description", "", names) == "Animals */ of a zoo"
    module = json.loads((version / "zoo-1.0.0.module").read_text())
    assert [each["attributes"]["org.gradle.usage"] for each in module["variants"]] == ["java-api", "java-runtime"]
    assert module["variants"][0]["files"][0]["sha256"] == litert.artifact.sha256
    versions = ET.parse(place / "maven-metadata.xml").getroot()
    assert versions.findtext("versioning/release") == "1.0.0"


def test_two_exports_give_the_same_bytes(folder, litert):
    again = exported(folder, "again")
    for file in files_of(litert.path):
        name = file.relative_to(litert.path)
        if name.name not in ("report.json", "report.html", "manifest.json"):
            assert file.read_bytes() == (again.path / name).read_bytes(), name


def test_assets_and_code_speak_of_the_same(litert, onnxruntime):
    assert members_of(litert.artifact.path)["assets/zoo.labels.txt"].data.decode() == LABELS
    code = (litert.path / "project/zoo/src/main/kotlin/com/example/zoo/Zoo.kt").read_text()
    assert " * Animals * / of a zoo" in code
    assert 'const val ASSET = "zoo.tflite"' in code
    assert 'Port("image", "float32", 4896, 1, 24, 17, 3)' in code
    assert "fun classes(outputs: Outputs, count: Int = 5)" in code
    packed = onnxruntime.path / "project/zoo_pack/src/main/assets/model#group_other/zoo.onnx"
    assert packed.read_bytes() == packaged_model(onnxruntime.artifact.path)
    code = (onnxruntime.path / "project/zoo/src/main/kotlin/com/example/zoo/Zoo.kt").read_text()
    assert 'const val ASSET = "model/zoo.onnx"' in code
    assert 'Port("image", "float32", 4896, 1, 3, 24, 17)' in code
    gradle = (onnxruntime.path / "project/zoo/build.gradle.kts").read_text()
    assert str(RUNTIMES["onnxruntime"].library) in gradle
    assert "com.example:zoo:1.0.0" in gradle
    assert '":zoo_pack"' in (onnxruntime.path / "project/settings.gradle.kts").read_text()


def test_libraries_are_not_newer_than_what_verifies():
    """What an app gets knows no more than what ran here; LiteRT's is the same version."""
    constraints = dict(re.findall(r"^([\w.-]+)==([\d.]+)$", Path("constraints.txt").read_text(), re.MULTILINE))
    assert RUNTIMES["litert"].library.version == constraints["ai-edge-litert"]
    numbers = [tuple(map(int, text.split("."))) for text in (
        RUNTIMES["onnxruntime"].library.version, constraints["onnxruntime"],
    )]  # fmt: skip
    assert numbers[0] <= numbers[1]


def test_sources_parse(litert, onnxruntime, ort):
    needs("tree_sitter_kotlin")
    import tree_sitter
    import tree_sitter_kotlin

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_kotlin.language()))
    files = [path for each in (litert, onnxruntime, ort) for path in (each.path / "project").rglob("*.kt*")]
    assert len(files) >= 24
    for file in files:
        assert not parser.parse(file.read_bytes()).root_node.has_error, file
    assert parser.parse(b"fun a( {").root_node.has_error


def test_android_tools_take_it(litert, tmp_path):
    """zipalign finds the model where it has to be, and not compressed."""
    zipalign = tool("zipalign")
    done = subprocess.run(
        [zipalign, "-c", "-v", "4", litert.artifact.path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"assets/zoo\.tflite \(OK\)", done.stdout)
    assert not re.search(r"assets/zoo\.tflite \(OK - compressed\)", done.stdout)


def test_the_model_stays_stored_in_an_apk(litert, tmp_path):
    """As the sample's build asks for: ``noCompress``, which is aapt2's ``-0``."""
    aapt2 = tool("aapt2")
    manifest = tmp_path / "AndroidManifest.xml"
    manifest.write_text('<manifest package="com.example.app"><application /></manifest>')
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "zoo.tflite").write_bytes(packaged_model(litert.artifact.path))
    apk = tmp_path / "app.apk"
    command = [aapt2, "link", "-o", apk, "--manifest", manifest, "-A", assets, "-0", ".tflite"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert members_of(apk)["assets/zoo.tflite"].stored
    gradle = (litert.path / "project/sample/build.gradle.kts").read_text()
    assert 'noCompress += "tflite"' in gradle


FAULTS = {
    "another AAR": ("maven/com/example/zoo/1.0.0/zoo-1.0.0.aar", lambda data: data + b"x", "holds another AAR"),
    "checksum": ("maven/com/example/zoo/1.0.0/zoo-1.0.0.pom.md5", lambda data: b"0" * 32, "is not the checksum"),
    "no checksum": ("maven/com/example/zoo/maven-metadata.xml.sha1", None, "maven-metadata.xml has no sha1"),
    "POM": (
        "maven/com/example/zoo/1.0.0/zoo-1.0.0.pom",
        lambda data: data.replace(b"litert", b"other"),
        "the POM is of",
    ),
    "module": (
        "maven/com/example/zoo/1.0.0/zoo-1.0.0.module",
        lambda data: data.replace(b'"size": ', b'"size": 1'),
        "describes another file",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name, litert, tmp_path):
    path, change, words = FAULTS[name]
    package = tmp_path / "package"
    shutil.copytree(litert.path, package)
    file = package / path
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))
    made, runtime = Coordinates.of("com.example:zoo:1.0.0"), RUNTIMES["litert"].library
    with pytest.raises(ToolError, match=re.escape(words)):
        check_package(package, package / "zoo-1.0.0.aar", made, runtime)
    check_package(litert.path, litert.artifact.path, made, runtime)
    assert digest("md5", b"") == b"d41d8cd98f00b204e9800998ecf8427e"


def test_an_archive_that_a_phone_cannot_map_is_not_run(litert, tmp_path):
    members = {name: each.data for name, each in members_of(litert.artifact.path).items()}
    broken = tmp_path / "zoo.aar"
    for data, words in (
        (archive(members), "is compressed"),
        (archive({k: v for k, v in members.items() if "tflite" not in k}), "has 0 models"),
        (b"PK", "not an archive"),
        (litert.artifact.path.read_bytes()[:4000], "not an archive"),
    ):
        broken.write_bytes(data)
        with pytest.raises(SourceError, match=words):
            packaged_model(broken)


BAD = {
    "one word": (["--android-package", "digits"], 2, "expected lower-case words with dots between them"),
    "a keyword": (["--android-package", "com.example.class"], 2, "'class' is a word that Kotlin or Java keeps"),
    "a class inside": (["--android-package", "com.example.detection"], 2, "has a class Detection inside"),
    "a class beside": (["--android-package", "com.example.wav"], 2, "the generated code has a Wav of its own"),
    "capitals": (["--android-package", "com.Example.digits"], 2, "expected lower-case words"),
    "old Android": (["--android-min-sdk", "21"], 2, "--android-min-sdk 21: com.google.ai.edge.litert"),
    "a runtime": (["--android-runtime", "tflite"], 2, "not one of litert, onnxruntime, ort-mobile"),
    "no such input": (["--android-image", "img"], 2, "--android-image img: no such input; there are: image"),
    "not a sound": (["--android-audio", "image"], 2, "a waveform is float32 with one axis in time"),
    "both": (["--android-audio", "image", "--android-image", "image"], 2, "are both of image"),
    "unit scale": (
        ["--android-image", "image", "--normalization", "image:0.485,0.456,0.406/0.229,0.224,0.225"],
        2,
        "are for pixels of 0..1",
    ),
    "another runtime's flag": (
        ["--android-runtime", "onnxruntime", "--input-layout", "nhwc"],
        2,
        "--input-layout does nothing for android",
    ),
    "half in a .ort file": (
        ["--android-runtime", "ort-mobile", "--fp16"],
        2,
        "target ort-mobile does not deliver fp16",
    ),
    "another runtime's precision": (
        ["--android-runtime", "onnxruntime", "--int16x8", "--calib", "net.onnx"],
        2,
        "target onnxruntime does not deliver int16x8",
    ),
    "too few labels": (["--label-file", "two.txt"], 2, "2 labels, and no output has 2 classes"),
    "no label file": (["--label-file", "none.txt"], 2, "none.txt"),
    "a chosen class that has no name": (
        ["--postprocess", "argmax", "--label-file", "two.txt"],
        2,
        "2 labels, and no output has 2 classes",
    ),
    "normalised twice": (
        ["--preprocess", "image:24x17,mean:0,std:255", "--normalization", "image:0/255"],
        2,
        "leave --normalization out",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_one_sentence(name, folder, tmp_path, monkeypatch):
    words, code, sentence = BAD[name]
    monkeypatch.chdir(folder)
    Path("two.txt").write_text("a\nb\n")
    said = here("export", "net.onnx", "-t", "android", *words, "-o", tmp_path / "out")
    assert (said.code, sentence in said.complaint) == (code, True), said.err
    assert "Traceback" not in said.err
    assert os.listdir(tmp_path) == []


def test_a_file_of_several_types_has_arrays_of_them(tmp_path):
    result = convertkit.export(saved(several_types(), tmp_path / "net.onnx"), "android", output=tmp_path / "out")
    code = (result.path / "project/model/src/main/kotlin/com/example/model/Model.kt").read_text()
    parameters = re.search(r"fun run\((.*)\): Outputs \{", code)[1]
    assert parameters == "input0: IntArray, input1: LongArray, isOn: BooleanArray, xY: FloatArray"
    assert "@JvmField val outPut: FloatArray," in code
    assert "@JvmField val output1: IntArray" in code
    assert (
        'Port("x-\\$y", "float32", 24, 2, 3)'
        in result.path.joinpath("project/model/src/main/kotlin/com/example/model/Model.kt").read_text()
    )


def test_names_become_identifiers():
    assert identifier("serving_default:input-1", "input", 0, ()) == "servingDefaultInput1"
    assert identifier("Image", "input", 0, ()) == "image"
    assert identifier("1x", "input", 3, ()) == "input3"
    assert identifier("\u5165\u529b", "input", 2, ()) == "input2"
    assert identifier("a", "input", 1, {"a", "input1"}) == "input1Value"
    assert plain("a\n*/ b \\u000a") == "a?* / b ?u000a"
    name = PackageName.read("com.example.key_words")
    assert (name.kotlin_class, name.folder, str(name.coordinates("2"))) == (
        "KeyWords", "com/example/key_words", "com.example:key_words:2",
    )  # fmt: skip
    with pytest.raises(UsageError):
        convertkit.export("net.onnx", "android", target_options={"android": {"version": "1 0"}})

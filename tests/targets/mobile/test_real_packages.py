"""Android and iOS packages of real models, opened and held member by member against what was verified."""

from __future__ import annotations

import plistlib
import re
import zipfile

import numpy as np
import pytest

import convertkit
from convertkit.release.verify import verify_release
from convertkit.targets.android.archive import PAGE, members_of
from convertkit.targets.android.checks import packaged_model as of_android
from convertkit.targets.ios.checks import PRIVACY
from convertkit.targets.ios.checks import packaged_model as of_ios
from tests.installed import needs

needs("ai_edge_litert")
pytestmark = pytest.mark.nightly

WORDS = ["down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown"]
"""In the order of MLPerf Tiny's labels; what is tested is that they arrive as they were given."""
ANIMALS = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
MODELS = ("keywords", "images", "digits")


@pytest.fixture(scope="module", params=MODELS)
def model(request, root):
    """The source, its labels, and samples for calibration; real ones are skipped where there are none."""
    if request.param == "digits":
        folder = root / "fixtures" / "digits"
        return folder / "model.pt", [str(digit) for digit in range(10)], str(folder / "calib.npz")
    cases = request.getfixturevalue("cases")
    if request.param == "keywords":
        needs("tensorflow")
        stored = np.load(cases / "mlperf-kws" / "kws01.npz")["mfcc_int8"][:64]
        samples = (stored.astype(np.float32) - 83) * np.float32(0.5847029)
        return cases / "mlperf-kws" / "saved_model", WORDS, samples
    needs("keras")
    samples = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3)).astype(np.float32)
    return cases / "mlperf-ic" / "pretrainedResnet.h5", ANIMALS, samples


@pytest.fixture(scope="module")
def labels(model, tmp_path_factory):
    file = tmp_path_factory.mktemp("labels") / "labels.txt"
    file.write_text("\n".join(model[1]) + "\n")
    return file


def exported(model, labels, folder, target, options):
    return convertkit.export(
        model[0], target, output=folder / target, int8=True, calib=model[2], label_file=str(labels),
        target_options={target: options},
    )  # fmt: skip


@pytest.fixture(scope="module")
def android(model, labels, tmp_path_factory):
    return exported(model, labels, tmp_path_factory.mktemp("real"), "android", {"package": "com.example.real"})


@pytest.fixture(scope="module")
def ios(model, labels, tmp_path_factory):
    return exported(model, labels, tmp_path_factory.mktemp("real"), "ios", {"module": "Real", "runtime": "litert"})


def test_an_archive_holds_what_a_build_looks_for(model, android):
    aar = android.artifact.path
    with zipfile.ZipFile(aar) as opened:
        assert opened.testzip() is None
        names = set(opened.namelist())
    wanted = {"AndroidManifest.xml", "R.txt", "proguard.txt", "assets/real.tflite", "assets/real.labels.txt"}
    assert wanted <= names
    members = members_of(aar)
    assert members["assets/real.tflite"].stored
    assert members["assets/real.tflite"].offset % PAGE == 0
    assert members["assets/real.labels.txt"].data.decode().split() == model[1]
    assert b'minSdkVersion="24"' in members["AndroidManifest.xml"].data
    version = android.path / "maven/com/example/real/1.0.0"
    assert (version / "real-1.0.0.aar").read_bytes() == aar.read_bytes()
    project = android.path / "project"
    for file in ("settings.gradle.kts", "real/build.gradle.kts", "sample/build.gradle.kts"):
        assert (project / file).is_file(), file
    code = (project / "real/src/main/kotlin/com/example/real/Real.kt").read_text()
    assert "fun classes(outputs: Outputs, count: Int = 5): List<Category>" in code


def test_a_pod_holds_what_a_project_looks_for(model, ios):
    package = ios.artifact.path
    resources = package / "Sources/Real/Resources"
    assert {path.name for path in resources.iterdir()} == {"real.tflite", "real.labels.txt", PRIVACY}
    assert (resources / "real.labels.txt").read_text().split() == model[1]
    assert plistlib.loads((resources / PRIVACY).read_bytes())["NSPrivacyTracking"] is False
    assert (resources / "real.tflite").read_bytes() == of_ios(package)
    assert list((package / "Tests/RealTests").rglob("*.swift"))
    code = (package / "Sources/Real/Real.swift").read_text()
    assert re.search(r"public func classes\(_ outputs: Outputs, count: Int = 5\)", code)


def test_both_hold_the_file_that_was_verified(android, ios):
    assert of_android(android.artifact.path) == of_ios(ios.artifact.path)
    for package, target in ((android, "android"), (ios, "ios")):
        checks = verify_release(package.path).checks
        assert all(check.passed for check in checks)
        assert any(check.sentence == f"3 golden vectors, not on {target}" for check in checks)


@pytest.fixture(scope="module")
def faces(request, tmp_path_factory):
    """A face detector from bytes to boxes, in both packages."""
    needs("torch")
    image = pytest.importorskip("PIL.Image")
    folder, root = request.getfixturevalue("cases") / "blazeface", request.getfixturevalue("root")
    pictures = [np.asarray(image.open(folder / f"{name}.png").convert("RGB")) for name in ("1face", "3faces", "4faces")]
    steps = "nms:16,iou:0.3,score:0.75,boxes:boxes,scores:scores,sigmoid,cxcywh,points:6"
    place, packages = tmp_path_factory.mktemp("faces"), {}
    for target, options in (("android", {"package": "com.example.faces"}), ("ios", {"module": "Faces"})):
        packages[target] = convertkit.export(
            folder / "blazeface.pth", target, output=place / target, calib={"image": np.stack(pictures)},
            model=f"{root / 'tests/converters/pytorch/real_models.py'}:BlazeFace",
            preprocess="image:128,mean:127.5,std:127.5",
            postprocess=f"{steps},anchors:{folder / 'anchors.npy'},scale:128",
            target_options={target: {**options, "image": "image", "runtime": "litert"}},
        )  # fmt: skip
    return packages, pictures


@pytest.mark.parametrize(
    ("target", "runtime", "suffix"),
    [("ios", "coreml", ".mlpackage"), ("ios", "ort-mobile", ".ort"), ("android", "ort-mobile", ".ort")],
)
def test_packages_of_other_runtimes_give_their_golden_vectors(target, runtime, suffix, model, labels, tmp_path):
    if runtime == "coreml":
        needs("coremltools")
    result = exported(model, labels, tmp_path, target, {"runtime": runtime})
    assert result.passed
    package = result.artifact.path
    if target == "ios":
        assert len(list(package.glob(f"Sources/*/Resources/*{suffix}"))) == 1
    else:
        assert f"assets/model{suffix}" in members_of(package)
    assert verify_release(package).checks[-1].sentence == f"3 golden vectors, not on {target}"


def test_a_face_detector_s_packages_hold_its_model_and_a_typed_api(faces):
    packages, pictures = faces
    android, ios = (packages[target] for target in ("android", "ios"))
    assert of_android(android.artifact.path) == of_ios(ios.artifact.path)
    members = members_of(android.artifact.path)
    assert members["assets/faces.tflite"].stored
    assert members["assets/faces.tflite"].offset % PAGE == 0
    kotlin = (android.path / "project/faces/src/main/kotlin/com/example/faces/Faces.kt").read_text()
    swift = (ios.artifact.path / "Sources/Faces/Faces.swift").read_text()
    for code, words in ((kotlin, "fun detections("), (kotlin, "fun run(image: Bitmap)"), (swift, "func detections(")):
        assert words in code
    counts = [int(android.run({"image": picture[None]})["detection_count"][0]) for picture in pictures]
    assert counts == [1, 3, 0]
    for target, package in packages.items():
        checks = verify_release(package.path).checks
        assert all(check.passed for check in checks)
        assert any(f"golden vectors, not on {target}" in check.sentence for check in checks)


def test_the_generated_sources_parse(android, ios):
    needs("tree_sitter_kotlin")
    needs("tree_sitter_swift")
    import tree_sitter
    import tree_sitter_kotlin
    import tree_sitter_swift

    for package, language, pattern in (
        (android, tree_sitter_kotlin, "*.kt*"),
        (ios, tree_sitter_swift, "*.swift"),
    ):
        parser = tree_sitter.Parser(tree_sitter.Language(language.language()))
        files = list(package.path.rglob(pattern))
        assert len(files) >= 3
        for file in files:
            assert not parser.parse(file.read_bytes()).root_node.has_error, file

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

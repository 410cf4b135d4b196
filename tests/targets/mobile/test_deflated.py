"""``--compress``: the model lies deflated in a package, and what is executed is decoded out of it."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import convertkit
from convertkit.errors import SourceError
from convertkit.targets.android.archive import archive, members_of
from convertkit.targets.android.checks import packaged_model as of_android
from convertkit.targets.android.runner import AndroidRunner
from convertkit.targets.ios.checks import packaged_model as of_ios
from convertkit.targets.ios.runner import IosRunner
from convertkit.targets.mobile.deflated import DEFLATED, Packed, deflated, inflated
from tests.installed import needs
from tests.targets.mobile.android_packages import pixels, saved

needs("ai_edge_litert")

SAMPLE = {"image": np.random.default_rng(0).random((1, 3, 24, 17), np.float32)}
TEXT = b"a model of one kind or another " * 40


def test_what_was_deflated_comes_back():
    packed = deflated(TEXT)
    assert len(packed) < len(TEXT) / 10
    assert inflated(packed, "it") == TEXT
    assert Packed.of(TEXT) == Packed(len(TEXT), hashlib.sha256(TEXT).hexdigest())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (deflated(TEXT)[:-3], "it is cut off"),
        (deflated(TEXT) + b"x", "it is followed by other bytes"),
        (b"\xff" * 9, "it is not deflated"),
    ],
)
def test_damaged_data_is_refused(data, said):
    with pytest.raises(SourceError, match=said):
        inflated(data, "it")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    path = saved(pixels(3, 24, 17), folder / "net.onnx")

    def made(target, name, **flags):
        return convertkit.export(path, target, output=folder / name, **flags)

    pack = {"target_options": {"android": {"ai_pack": True}}}
    return {
        "android": (made("android", "a"), made("android", "b", compress=True)),
        "ai pack": (made("android", "c", **pack), made("android", "d", compress=True, **pack)),
        "ios": (made("ios", "e"), made("ios", "f", compress=True)),
    }


def test_a_package_holds_the_same_model_deflated(packages):
    for name, (plain, packed) in packages.items():
        model_of = of_ios if name == "ios" else of_android
        model = model_of(plain.artifact.path)
        assert model_of(packed.artifact.path) == model
        held = sorted(packed.path.rglob(f"*{DEFLATED}"))
        assert [inflated(path.read_bytes(), path.name) for path in held] == [model] * (name != "android")
        code = "".join(path.read_text() for path in packed.path.rglob("*") if path.suffix in (".kt", ".swift"))
        assert f'SHA256 = "{hashlib.sha256(model).hexdigest()}"' in code or hashlib.sha256(model).hexdigest() in code
        assert str(len(model)) in code
        assert not any(path.name.startswith("Packed.") for path in plain.path.rglob("*"))
    entry = zipfile.ZipFile(packages["android"][1].artifact.path).getinfo("assets/model.tflite.deflate")
    assert entry.file_size < packages["android"][0].artifact.path.stat().st_size
    gradle = (packages["android"][1].path / "project/sample/build.gradle.kts").read_text()
    assert 'noCompress += "deflate"' in gradle


def test_what_was_verified_was_decoded_out_of_the_package(packages, tmp_path):
    for runner, name in ((AndroidRunner, "android"), (IosRunner, "ios")):
        with runner(packages[name][0].artifact) as plain, runner(packages[name][1].artifact) as packed:
            (one,), (other,) = plain.run(SAMPLE).values(), packed.run(SAMPLE).values()
            assert np.array_equal(one, other)
    result = packages["android"][1]
    members = {name: each.data for name, each in members_of(result.artifact.path).items()}
    members["assets/model.tflite.deflate"] = members["assets/model.tflite.deflate"][:-9]
    (tmp_path / "cut.aar").write_bytes(archive(members))
    with pytest.raises(SourceError, match=r"cut\.aar: assets/model\.tflite\.deflate is cut off"):
        AndroidRunner(replace(result.artifact, path=tmp_path / "cut.aar")).__enter__()


def test_swift_parses(packages):
    needs("tree_sitter_swift")
    import tree_sitter
    import tree_sitter_swift

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language()))
    for file in packages["ios"][1].artifact.path.rglob("*.swift"):
        assert not parser.parse(file.read_bytes()).root_node.has_error, file
    code = next(packages["ios"][1].artifact.path.rglob("Model.swift")).read_text()
    assert 'try Packed.path("model", "onnx")' in code
    manifest = (packages["ios"][1].artifact.path / "Package.swift").read_text()
    assert '.copy("Resources/model.onnx.deflate")' in manifest

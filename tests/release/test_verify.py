"""A release that was tampered with is found out, by name; one that is whole is built again byte by byte."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from convertkit.artifact import sha256_of
from convertkit.errors import SourceError
from convertkit.release.folder import write_sums
from convertkit.release.schema import schema
from convertkit.release.verify import verify_release
from convertkit.state import save_arrays, saved_arrays
from convertkit.summary import schema as summary_schema
from tests import onnx_models
from tests.command_line import apart, here

RECIPE = """
[release]
name = "two"
version = "1.2"
[defaults]
targets = ["onnxruntime", "tensorrt"]
[models.one]
source = "one.onnx"
license = "Apache-2.0"
license_file = "LICENSE"
[models.one.cells."onnxruntime:*"]
opset = 18
"""


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A signed release with its recipe and keys; not to be changed."""
    folder = tmp_path_factory.mktemp("made")
    onnx_models.write(folder, onnx_models.mlp(1), "one.onnx")
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "LICENSE").write_text("Do what you like.\n")
    assert openssl("genpkey", "-algorithm", "ed25519", "-out", folder / "key.pem").returncode == 0
    assert openssl("pkey", "-in", folder / "key.pem", "-pubout", "-out", folder / "key.pub").returncode == 0
    said = here("run", folder / "recipe.toml", "--sign", folder / "key.pem")
    assert said.code == 0, said.err
    return folder


@pytest.fixture
def release(place, tmp_path):
    shutil.copytree(place / "release", tmp_path / "release")
    return tmp_path / "release"


def verdicts(found):
    return {each.name: each.passed for each in found.checks}


def failed(folder, key=None):
    return {each.name: each.sentence for each in verify_release(folder, key).failures}


def test_a_whole_release_passes(place, release):
    said = here("verify", release, "--key", place / "key.pub", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    jsonschema.validate(found, summary_schema())
    checks = {each["name"]: each for each in found["verify"]["checks"]}
    assert all(each["passed"] for each in checks.values())
    assert checks["one:tensorrt:float32"]["sentence"].endswith("golden vectors, not on tensorrt")
    jsonschema.validate(json.loads((release / "release.json").read_text()), schema())
    assert (release / "licenses" / "one.txt").read_text() == "Do what you like.\n"


def test_what_could_not_be_checked_is_said(release):
    assert verdicts(verify_release(release))["SHA256SUMS.sig"] is None
    (release / "SHA256SUMS.sig").unlink()
    assert verdicts(verify_release(release))["SHA256SUMS.sig"] is None


FILES = (
    "one/onnxruntime-float32/model.onnx",
    "one/onnxruntime-float32/manifest.json",
    "one/golden.npz",
    "bom.cdx.json",
    "provenance.json",
    "results.json",
    "one/tensorrt-float32/report.html",
    "licenses/one.txt",
    "release.json",
)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_found_by_its_file(release, name):
    content = bytearray((release / name).read_bytes())
    content[len(content) // 2] ^= 1
    (release / name).write_bytes(bytes(content))
    said = here("verify", release)
    assert said.code == 3
    assert f"\n{name}: has changed" in said.complaint
    assert said.complaint.count(f"\n{name}: ") == 1


def test_files_that_are_gone_or_added_are_found(release):
    (release / "one" / "golden.npz").unlink()
    (release / "extra.txt").write_text("?")
    found = failed(release)
    assert found["one/golden.npz"].startswith("is gone")
    assert found["extra.txt"] == "is not of the release"


def test_new_sums_do_not_cover_a_change_up(place, release):
    """Who writes the sums anew has neither the signature nor the digests of release.json."""
    artifact = release / "one/onnxruntime-float32/model.onnx"
    artifact.write_bytes(artifact.read_bytes() + b"\0")
    write_sums(release)
    found = failed(release, place / "key.pub")
    assert "SHA256SUMS.sig" in found
    assert found["one/onnxruntime-float32/model.onnx"].endswith("(release.json)")
    assert "its sha256 has changed" in found["one:onnxruntime:float32"]


@pytest.mark.parametrize(("name", "cell"), [("bom.cdx.json", "components"), ("provenance.json", "subject")])
def test_documents_that_name_other_artifacts_are_found(release, name, cell):
    document = json.loads((release / name).read_text())
    old = json.loads((release / "release.json").read_text())["cells"][0]["artifact"]["sha256"]
    text = json.dumps(document).replace(old, "0" * 64)
    assert cell in document
    (release / name).write_text(text)
    described = json.loads((release / "release.json").read_text())
    del described["files"][name]
    (release / "release.json").write_text(json.dumps(described))
    write_sums(release)
    assert set(failed(release)) == {name}


def test_golden_vectors_of_other_answers_are_found(release):
    """Although every digest is that of the file."""
    file = release / "one" / "golden.npz"
    arrays = dict(saved_arrays(file))
    arrays["1/outputs/y"] = arrays["1/outputs/y"] + np.float32(0.01)
    save_arrays(file, arrays)
    described = json.loads((release / "release.json").read_text())
    described["files"]["one/golden.npz"] = {"sha256": sha256_of(file), "bytes": 1}
    (release / "release.json").write_text(json.dumps(described))
    write_sums(release)
    found = failed(release)
    assert set(found) == {"one:onnxruntime:float32", "one:tensorrt:float32"}
    assert found["one:tensorrt:float32"].startswith("sample 2: output y differs by 0.01")


def test_another_key_did_not_sign(place, release, tmp_path):
    openssl("genpkey", "-algorithm", "ed25519", "-out", tmp_path / "k.pem")
    openssl("pkey", "-in", tmp_path / "k.pem", "-pubout", "-out", tmp_path / "k.pub")
    assert "is not the signature" in failed(release, tmp_path / "k.pub")["SHA256SUMS.sig"]
    (release / "SHA256SUMS.sig").unlink()
    assert failed(release, place / "key.pub")["SHA256SUMS.sig"] == "the release is not signed"


def test_what_is_no_key_is_refused(place, release):
    said = here("verify", release, "--key", place / "LICENSE")
    assert said.code == 2
    assert "is not a public key in PEM" in said.complaint
    assert here("verify", release, "--key", place / "nowhere").code == 2
    assert here("run", place / "recipe.toml", "-o", release / "x", "--sign", place / "LICENSE").code == 1


def test_anyone_can_check_the_signature_with_openssl(place, release):
    done = openssl("pkeyutl", "-verify", "-pubin", "-inkey", place / "key.pub", "-rawin", "-in", release / "SHA256SUMS",
                   "-sigfile", release / "SHA256SUMS.sig")  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_folder_of_an_export_is_checked_against_its_manifest(release):
    folder = release / "one" / "onnxruntime-float32"
    assert here("verify", folder).code == 0
    (folder / "model.onnx").write_bytes(b"?")
    said = here("verify", folder)
    assert said.code == 3
    assert "model.onnx: has changed" in said.complaint
    with pytest.raises(SourceError, match="is neither a release"):
        verify_release(release / "one")


def test_flags_of_the_other_kind_are_refused(place, release):
    assert "--seed goes with two models" in here("verify", release, "--seed", 3).err
    assert "--key goes with a release" in here("verify", place / "one.onnx", place / "one.onnx", "--key", "k").err
    assert here("verify", place / "one.onnx", release / "one" / "onnxruntime-float32").code == 0


def test_it_is_reproduced_in_other_surroundings(place, tmp_path):
    """Another process, hash seed, time zone, checkout path and number of jobs."""
    there = tmp_path / "elsewhere" / "deep"
    shutil.copytree(place, there)
    env = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    said = apart("reproduce", there / "release", "--jobs", 1, "--json", env=env)
    assert said.code == 0, said.err
    found = json.loads(said.out)
    jsonschema.validate(found, summary_schema())
    same = set(found["reproduce"]["same"])
    assert {"one/onnxruntime-float32/model.onnx", "one/golden.npz", "bom.cdx.json", "provenance.json"} <= same
    assert found["reproduce"]["different"] == []


def test_another_source_is_not_reproduced(place, tmp_path):
    shutil.copytree(place, tmp_path / "there")
    onnx_models.write(tmp_path / "there", onnx_models.mlp(2), "one.onnx")
    said = here("reproduce", tmp_path / "there" / "release")
    assert said.code == 3
    assert "is not reproduced" in said.complaint
    assert "one/onnxruntime-float32/model.onnx" in said.complaint


def test_a_fetched_release_asks_for_its_sources(place, release):
    said = here("reproduce", release)
    assert said.code == 2
    assert "--root" in said.complaint
    assert here("reproduce", release, "--root", place).code == 0


def test_the_bill_of_materials_fulfils_cyclonedx(release):
    parts = json.loads(Path(__file__).with_name("cyclonedx-1.6.schema.json").read_text())
    document = json.loads((release / "bom.cdx.json").read_text())
    jsonschema.validate(document, parts)
    assert [each["bom-ref"] for each in document["components"]] == [
        "source:one", "artifact:one:onnxruntime:float32", "artifact:one:tensorrt:float32",
    ]  # fmt: skip
    assert all(each["licenses"] == [{"expression": "Apache-2.0"}] for each in document["components"])
    document["components"][1]["hashes"][0]["content"] = "?"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, parts)


def test_the_provenance_names_what_it_was_made_of(place, release):
    found = json.loads((release / "provenance.json").read_text())
    assert (found["_type"], found["predicateType"]) == (
        "https://in-toto.io/Statement/v1",
        "https://slsa.dev/provenance/v1",
    )
    built = found["predicate"]["buildDefinition"]
    assert built["externalParameters"]["recipe"]["models"]["one"]["source"] == "one.onnx"
    sources = {each["name"]: each.get("digest", {}).get("sha256") for each in built["resolvedDependencies"]}
    assert sources["one.onnx"] == sha256_of(place / "one.onnx")
    assert "onnxruntime" in sources
    assert str(place) not in json.dumps(found)


def test_code_of_a_recipe_is_only_executed_when_asked(tmp_path, monkeypatch):
    onnx_models.write(tmp_path, onnx_models.mlp(1), "one.onnx")
    (tmp_path / "samples.py").write_text(
        "import numpy as np\n\n"
        "def calib():\n    open('executed', 'a').close()\n"
        "    rows = np.random.default_rng(0).standard_normal((40, 5)).astype('float32')\n"
        "    yield from ({'x': row[None]} for row in rows)\n"
    )
    (tmp_path / "recipe.toml").write_text(
        '[models.one]\nsource = "one.onnx"\ncalib = "samples:calib"\ndescription = "/a path"\ntargets = "tflite"\n'
    )
    monkeypatch.chdir(tmp_path)
    said = apart("run", "recipe.toml")
    assert said.code == 0, said.err
    (tmp_path / "executed").unlink()
    said = apart("reproduce", "release")
    assert said.code == 1
    assert "executes code (one:tflite:float32: calib = samples:calib)" in said.complaint
    assert not (tmp_path / "executed").exists()
    said = apart("reproduce", "release", "--run-code")
    assert said.code == 0, said.err
    assert (tmp_path / "executed").exists()

"""The package for TensorFlow Lite Micro: what lies in it, what runs it, what its C++ does, and what is refused."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

import convertkit
from convertkit.artifact import sha256_of
from convertkit.errors import FeedError, SourceError, ToolError, UsageError
from convertkit.targets.tflite_micro import probe
from convertkit.targets.tflite_micro.arena import measured_arena
from convertkit.targets.tflite_micro.c_array import read_model
from convertkit.targets.tflite_micro.file import read_graphs
from convertkit.targets.tflite_micro.headers import comment_text, read_arena
from convertkit.targets.tflite_micro.runner import TfliteMicroRunner
from tests.command_line import here
from tests.targets.micro.micro_packages import SAMPLES, built, network, one_node, saved
from tests.targets.micro.stub_frameworks import frameworks
from tests.targets.micro.stub_headers import write_stubs

INT8 = {"int8": True, "full_integer": True, "io_dtype": "int8", "calib": {"x": SAMPLES}}
PROBE = Path(probe.__file__)
GPP = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return saved(network(), tmp_path_factory.mktemp("micro") / "net.onnx")


@pytest.fixture(scope="module")
def float32(source):
    return convertkit.export(source, "tflite-micro", output=source.parent / "float32", progress=False)


@pytest.fixture(scope="module")
def int8(source):
    return convertkit.export(source, "tflite-micro", output=source.parent / "int8", progress=False, **INT8)


def test_a_package_holds_what_firmware_needs(float32):
    names = {"model.tflite", "model.cc", "model.h", "resolver.h", "golden.h", "golden.cc", "main.cc", "README.md"}
    assert {*names, "CMakeLists.txt"} <= {file.name for file in float32.path.iterdir()}
    model = (float32.path / "model.tflite").read_bytes()
    assert read_model(float32.path / "model.cc") == model
    assert "alignas(16) const unsigned char kModel[]" in (float32.path / "model.cc").read_text()
    used = {each.code for graph in read_graphs(model) for each in graph.operators}
    added = re.findall(r"resolver\.Add(\w+)\(\)", (float32.path / "resolver.h").read_text())
    assert len(added) == len(used) > 4
    assert f"MicroMutableOpResolver<{len(used)}>" in (float32.path / "resolver.h").read_text()
    listed = json.loads((float32.path / "manifest.json").read_text())["files"]
    assert listed["model.cc"]["sha256"] == sha256_of(float32.path / "model.cc")


def test_the_file_is_the_one_of_tflite(source, float32, int8):
    for mine, options in ((float32, {}), (int8, INT8)):
        plain = convertkit.export(
            source, "tflite", output=mine.path.parent / f"{mine.path.name}-tflite", static={"N": 1}, **options
        )
        assert (plain.path / "model.tflite").read_bytes() == (mine.path / "model.tflite").read_bytes()


def test_a_compiled_file_is_shared_with_tflite(source, tmp_path):
    shared = {"static": {"N": 1}, "cache": tmp_path / "cache", "progress": False}
    convertkit.export(source, "tflite", output=tmp_path / "plain", **shared)
    package = convertkit.export(source, "tflite-micro", output=tmp_path / "micro", **shared)
    assert [step["stage"] for step in package.report["steps"] if not step["cached"]] == ["tflite-micro"]
    assert package.report["steps"][-2]["stage"] == "tflite"


def test_two_runs_give_the_same_bytes(source, int8):
    again = convertkit.export(source, "tflite-micro", output=source.parent / "again", progress=False, **INT8)
    for name in ("model.tflite", "model.cc", "model.h", "resolver.h", "golden.h", "golden.cc", "main.cc", "README.md"):
        assert (again.path / name).read_bytes() == (int8.path / name).read_bytes(), name


def test_an_open_batch_becomes_one_and_is_told(float32):
    assert [each["shape"] for each in float32.report["interface"]["inputs"]] == [[1, 8, 8, 3]]
    assert any(
        note.startswith("N = 1 is fixed, tflite-micro cannot leave it dynamic") for note in float32.report["notes"]
    )


def test_another_open_size_is_refused_with_the_flag(tmp_path):
    source = saved(one_node("Relu", ["N", "T"], ["N", "T"]), tmp_path / "net.onnx")
    said = here("export", source, "-t", "tflite-micro", "-o", tmp_path / "out")
    assert said.code == 1
    assert said.complaint.startswith("input x: its size T is dynamic, and TensorFlow Lite Micro allocates all memory")
    assert "--static T=SIZE" in said.complaint
    assert not (tmp_path / "out").exists()
    assert here("export", source, "-t", "tflite-micro", "--static", "T=5", "-o", tmp_path / "out").code == 0


def test_what_was_verified_ran_out_of_the_array(float32):
    """A byte of a weight is another one in model.cc alone: the runner computes something else."""
    feed = {"x": SAMPLES[:1]}
    with TfliteMicroRunner(float32.artifact) as runner:
        before = runner.run(feed)["y"]
    assert "tflite-micro" in runner.runtime
    array = float32.path / "model.cc"
    kept, model = array.read_text(), bytearray(read_model(array))
    weights = np.frombuffer(network().graph.initializer[4].raw_data, np.float32)
    place = bytes(model).index(weights.tobytes())
    model[place : place + 4] = np.float32(weights[0] + 3).tobytes()
    numbers = " ".join(f"0x{byte:02x}," for byte in model)
    try:
        array.write_text(re.sub(r"(kModel\[\] = \{).*?(\};)", rf"\g<1>{numbers}\g<2>", kept, flags=re.DOTALL))
        with TfliteMicroRunner(float32.artifact) as runner:
            assert np.abs(runner.run(feed)["y"] - before).max() > 0.01
    finally:
        array.write_text(kept)


def test_the_arena_is_enough_and_no_more(float32, int8, tmp_path):
    for package in (float32, int8):
        arena = read_arena(package.path / "model.h")
        (told,) = [step["diagnosis"]["arena"] for step in package.report["steps"] if step["stage"] == "tflite-micro"]
        assert told["head"] + told["tail"] <= arena == told["bytes"] <= 1.1 * (told["head"] + told["tail"]) + 512
        assert arena <= told["foretold"] <= 1.1 * arena
        command = [sys.executable, str(PROBE), package.path / "model.tflite", str(arena), str(arena - 16)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.stdout.split(), done.returncode != 0) == ([str(arena)], True)


def test_a_model_that_ends_the_runtime_is_an_error(float32, tmp_path, monkeypatch):
    """The process that asks dies; ours says so."""
    model = float32.path / "model.tflite"
    graphs = read_graphs(model.read_bytes())
    for program, words in (
        ("import os\nos.abort()", r"TensorFlow Lite Micro does not run model\.tflite: it ended with -6"),
        ("import sys\nsys.exit('no such kernel')", "does not run model.tflite: no such kernel"),
    ):
        (tmp_path / "probe.py").write_text(program)
        monkeypatch.setattr("convertkit.targets.tflite_micro.arena._PROBE", tmp_path / "probe.py")
        with pytest.raises(ToolError, match=words):
            measured_arena(model, graphs)


@GPP
@pytest.mark.parametrize(("kind", "harmless", "harmful"), [("float32", "1e-7", "1e-3"), ("int8", "1", "2")])
def test_the_test_on_the_device_compiles_and_tells(kind, harmless, harmful, float32, int8, tmp_path):
    package = {"float32": float32, "int8": int8}[kind].path
    stubs = write_stubs(tmp_path / "stubs", "kTfLiteFloat32" if kind == "float32" else "kTfLiteInt8")
    program = built(package, stubs, tmp_path / "golden_test")
    for add, code, last in (("0", 0, "PASS"), (harmless, 0, "PASS"), (harmful, 3, "FAIL"), ("nan", 3, "FAIL")):
        if (kind, add) == ("int8", "nan"):
            continue  # not a value of int8
        done = subprocess.run([program], env={"STUB_ADD": add}, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (code, last), (add, done.stdout)


def test_golden_vectors_are_samples_where_there_are_any(int8):
    text = (int8.path / "golden.cc").read_text()
    first = re.search(r"kInput0_0\[\] = \{(.*?)\};", text, re.DOTALL)
    found = np.array([int(each, 16) for each in first[1].replace(",", " ").split()], np.uint8).view(np.int8)
    expected = int8.artifact.input("x").encode(SAMPLES[:1])
    assert np.array_equal(found.reshape(expected.shape), expected)


@pytest.mark.parametrize("kind", ["platformio", "zephyr"])
def test_skeletons_name_files_that_are_there(kind, source, tmp_path):
    given = {"tflite-micro": {"skeleton": kind}}
    package = convertkit.export(source, "tflite-micro", output=tmp_path / "out", target_options=given).path
    lists = list(package.rglob("CMakeLists.txt"))
    for file in lists:
        for name in re.findall(r"[\w./]+\.cc", file.read_text()):
            assert (file.parent / name).is_file(), (file, name)
    if kind == "platformio":
        read = configparser.ConfigParser()
        read.read(package / "platformio.ini")
        assert read["env:esp32"]["framework"] == "espidf"
        assert yaml.safe_load((package / "src" / "idf_component.yml").read_text())["dependencies"]
    else:
        assert yaml.safe_load((package / "zephyr" / "module.yml").read_text())["build"]["cmake"] == "zephyr"
    assert "board" in (package / "README.md").read_text() or kind == "platformio"


@GPP
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize("kind", ["platformio", "zephyr"])
def test_skeletons_build_and_pass_between_stand_ins(kind, source, tmp_path):
    """CMake reads their files with stand-ins for the frameworks' words; headers and interpreter are stubs, too."""
    given = {"tflite-micro": {"skeleton": kind}}
    package = convertkit.export(source, "tflite-micro", output=tmp_path / "out", target_options=given).path
    stubs = write_stubs(tmp_path / "stubs", "kTfLiteFloat32")
    env = {**os.environ, **frameworks(tmp_path, stubs)}
    for command in (["cmake", "-B", "build", "-S", package], ["cmake", "--build", "build"]):
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for add, last in (("0", "PASS"), ("1e-3", "FAIL")):
        done = subprocess.run(
            [tmp_path / "build" / "app"], env={"STUB_ADD": add}, capture_output=True, text=True, check=False
        )
        assert done.stdout.splitlines()[-1] == last


def test_too_large_an_arena_ends_the_export(source, tmp_path):
    said = here("export", source, "-t", "tflite-micro", "--tflite-micro-arena", "4096", "-o", tmp_path / "out")
    assert said.code == 1
    assert re.match(r"the tensor arena takes [\d,]+ bytes, --tflite-micro-arena allows 4,096", said.complaint)
    assert "--int8 --full-integer" in said.complaint
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="expected a number of bytes"):
        convertkit.export(source, "tflite-micro", target_options={"tflite-micro": {"arena": "-3"}})


def test_an_operator_that_is_not_there_is_named(tmp_path):
    source = saved(one_node("Sign", [2, 4], [2, 4]), tmp_path / "net.onnx")
    said = here("export", source, "-t", "tflite-micro", "-o", tmp_path / "out")
    assert (said.code, said.complaint.splitlines()) == (
        1,
        ["node (SIGN): TensorFlow Lite Micro has no such operator", "  try   --target tflite"],
    )
    assert not (tmp_path / "out").exists()


def test_a_missing_runtime_is_said_with_the_command_that_adds_it(source, tmp_path):
    words = ["export", str(source), "-t", "tflite-micro", "-o", str(tmp_path / "out")]
    hidden = (
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'tflite_micro' else real(name, *more)\n"
        f"from convertkit import cli\ncli.main({words!r})"
    )
    done = subprocess.run([sys.executable, "-P", "-c", hidden], capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert (
        "tflite-micro is not installed and this needs it; run: pip install 'convertkit-ml[tflite-micro]'" in done.stderr
    )
    assert not (tmp_path / "out").exists()


def test_a_broken_package_is_not_run(float32, tmp_path):
    folder = tmp_path / "package"
    shutil.copytree(float32.path, folder)
    array = folder / "model.cc"
    text = array.read_text()
    for broken, words in (
        (text.replace("0x1c,", "", 1), r"kModel has \d+ bytes, kModelSize says \d+"),
        (text.replace("kModelSize", "kLength"), "no array kModel"),
        (text.replace("0x1c,", "0x1cc,", 1), "something else than bytes"),
    ):
        array.write_text(broken)
        with pytest.raises(SourceError, match=words):
            read_model(array)
    array.unlink()
    with pytest.raises(SourceError, match=r"model\.cc cannot be read"):
        read_model(array)
    (folder / "model.h").write_text("// nothing")
    with pytest.raises(SourceError, match="states no kTensorArenaSize"):
        read_arena(folder / "model.h")


def test_inputs_of_another_size_are_refused(float32):
    with TfliteMicroRunner(float32.artifact) as runner:
        with pytest.raises(FeedError, match=r"input x has the shape \(2, 8, 8, 3\), the package \(1, 8, 8, 3\)"):
            runner.run({"x": SAMPLES[:2]})
        with pytest.raises(FeedError, match="no array for input x"):
            runner.run({})


def test_a_name_stays_in_its_comment():
    assert comment_text("a\nint main() {} \\") == "a?int main() {} ?"

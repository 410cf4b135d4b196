"""``convertkit verify ARTIFACT --arm64``: the same artifact on another processor, and what is missing for that."""

import json
import os
import shutil
import stat
import sys

import jsonschema
import numpy as np
import pytest

import convertkit
from convertkit import plugins
from convertkit.emulation import root as arm_root
from convertkit.emulation.arm64 import verify_arm64
from convertkit.emulation.cores import CORES
from convertkit.emulation.runner import ProcessorRunner
from convertkit.errors import MissingTool, ToolError, WorkerError
from convertkit.summary import schema
from tests.command_line import check_refusal, here

STAND_IN = """#!{python}
# An emulator for tests: runs the program on this processor, and keeps what it was started with.
import json, os, sys
words = sys.argv[1:]
prefix, core = words[words.index("-L") + 1], words[words.index("-cpu") + 1]
json.dump({{"core": core, "cpuinfo": open(prefix + "/proc/cpuinfo").read(), "words": words}}, open({told!r}, "w"))
sys.argv = ["answering"]
from convertkit.emulation import answering
{change}
answering.main()
"""
ONE_STEP = """
kept = answering._LiteRT.answer
def answer(self, feed):
    found = kept(self, feed)
    name = next(iter(found))
    found[name] = found[name].copy()
    found[name].flat[0] += {step}
    return found
answering._LiteRT.answer = answer
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A function that puts an emulator on the path, which changes what the program answers; returns what it is told."""
    folder = tmp_path / "bin"
    folder.mkdir()
    made = tmp_path / "arm"
    (made / "usr").mkdir(parents=True)
    record = {"python": "usr/bin/python3", "versions": arm_root.installed()}
    (made / arm_root.RECORD).write_text(json.dumps(record))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv(arm_root.VARIABLE, str(made))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))

    def put(change=""):
        program, told = folder / "qemu-aarch64", tmp_path / "told.json"
        program.write_text(STAND_IN.format(python=sys.executable, told=str(told), change=change))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return told

    put.root = made
    return put


@pytest.mark.parametrize("form", ["tflite", "int8", "onnxruntime"])
def test_the_same_is_verified(delivered, stand_in, form):
    told = stand_in()
    said = here("verify", delivered[form].path, "--arm64", "cortex-a72", "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    jsonschema.validate(found, schema())
    (core,) = found["verify"]["cores"]
    assert core["report"]["feeds"] > 5
    assert all(diff["max_abs"] == 0 for diff in core["report"]["diffs"])
    started = json.loads(told.read_text())
    assert started["core"] == "cortex-a72"
    assert "asimddp" not in started["cpuinfo"]
    assert "0xd08" in started["cpuinfo"]


def test_both_cores_run_unless_one_is_named(delivered, stand_in):
    stand_in()
    found = verify_arm64(delivered["tflite"].path)
    assert [core.second.rpartition(" ")[2] for core in found.cores] == list(CORES)
    assert found.headline.count("verified: ") == 2
    assert any("nothing was run on a phone" in note for note in found.remarks())


@pytest.mark.parametrize(("form", "step"), [("int8", 0.1), ("tflite", 1e-4)])
def test_another_answer_is_found(delivered, stand_in, form, step):
    stand_in(ONE_STEP.format(step=step))
    said = here("verify", delivered[form].path, "--arm64")
    assert said.code == 3
    assert "does not compute what" in said.complaint
    assert "cortex-a72" in said.complaint


def test_a_step_of_an_integer_is_found(digits, stand_in, tmp_path):
    """The twin of the floats, which explains much, excuses no integer."""
    plain = {"int8": True, "full_integer": True, "io_dtype": "int8", "calib": str(digits.calib)}
    made = convertkit.export(digits.model, target="tflite", output=tmp_path / "out", **plain)
    stand_in(ONE_STEP.format(step=1))
    found = verify_arm64(made.artifact.path, ["cortex-a76"])
    assert not found.passed
    (diff,) = found.cores[0].report.diffs
    assert diff.max_abs == pytest.approx(made.artifact.outputs[0].quantization.scale, rel=1e-5)
    stand_in()
    assert verify_arm64(made.artifact.path, ["cortex-a76"], calib=str(digits.calib), calib_samples=3).passed


def test_a_package_runs_as_it_is_delivered(net, stand_in, tmp_path):
    stand_in()
    here("export", net, "--target", "android", "-o", tmp_path / "out")
    found = verify_arm64(tmp_path / "out", ["cortex-a76"])
    assert found.passed
    assert "ai-edge-litert" in found.cores[0].runtimes[1]


def test_what_is_missing_is_told_with_the_way_to_get_it(delivered, stand_in, tmp_path):
    path = delivered["tflite"].path
    said = here("verify", path, "--arm64")
    assert (said.code, said.complaint.count("\n")) == (4, 0)
    assert "run: apt-get install qemu-user" in said.complaint
    stand_in()
    shutil.rmtree(stand_in.root)
    said = here("verify", path, "--arm64")
    assert (said.code, said.complaint.count("\n")) == (4, 0)
    assert "run: convertkit engines install arm64" in said.complaint


def test_a_root_of_another_version_is_not_used(delivered, stand_in):
    stand_in()
    other = {"python": "usr/bin/python3", "versions": {**arm_root.installed(), "ai-edge-litert": "1.0"}}
    (stand_in.root / arm_root.RECORD).write_text(json.dumps(other))
    with pytest.raises(MissingTool, match=r"has ai-edge-litert 1\.0"):
        verify_arm64(delivered["tflite"].path)


def test_what_no_runtime_here_executes_is_refused(digits, stand_in):
    stand_in()
    said = here("verify", digits.model, "--arm64")
    assert said.code == 1
    assert "is not executed by LiteRT or ONNX Runtime" in said.complaint


@pytest.mark.parametrize(
    "words", [["a.onnx", "b.onnx", "--arm64"], ["a.onnx", "--arm64", "max"], ["a.onnx", "--arm64-setup"], []]
)
def test_contradictions_are_usage_errors(words):
    assert here("verify", *words).code == 2


def test_a_program_that_ends_is_told_and_started_again(delivered, stand_in):
    """The runtime of the other processor may abort; what it said is the reason."""
    stand_in("sys.exit('no kernel for this core')")
    said = here("verify", delivered["tflite"].path, "--arm64")
    assert said.code == 1
    assert said.complaint.endswith("no kernel for this core")
    with plugins.runner(delivered["tflite"].artifact) as inner:
        portable = inner.portable()
    artifact = delivered["tflite"].artifact
    feed = {
        spec.name: np.ones([2 if isinstance(d, str) else d for d in spec.source_shape], spec.dtype)
        for spec in artifact.inputs
    }
    with ProcessorRunner(portable, artifact, None) as runner:
        (spec,) = artifact.inputs
        with pytest.raises(ToolError, match="ai-edge-litert here fails on"):
            runner.run({spec.name: feed[spec.name].astype(np.float64)})
        with plugins.runner(artifact) as other:
            for name, value in runner.run(feed).items():
                np.testing.assert_array_equal(value, other.run(feed)[name])


def on_a76(result, timeout_s):
    with plugins.runner(result.artifact) as runner:
        return ProcessorRunner(runner.portable(), result.artifact, CORES["cortex-a76"], timeout_s)


def test_a_program_that_hangs_is_ended(delivered, stand_in):
    stand_in("import time; time.sleep(60)")
    with pytest.raises(WorkerError, match=r"took longer than 0\.5 s"):
        on_a76(delivered["onnxruntime"], 0.5).__enter__()


FAILING = "#!/bin/sh\necho 'E: Unable to locate package python3-minimal' >&2\nexit 100\n"


def test_a_set_up_that_fails_leaves_nothing(stand_in, tmp_path):
    stand_in()
    for tool in ("apt-get", "dpkg-deb"):
        program = tmp_path / "bin" / tool
        program.write_text(FAILING)
        program.chmod(0o755)
    before = sorted(path.name for path in tmp_path.iterdir())
    said = here("verify", "--arm64-setup")
    assert said.code == 1
    assert said.complaint == "apt-get failed: Unable to locate package python3-minimal"
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (stand_in.root / arm_root.RECORD).exists(), "the root that was there stays"
    (tmp_path / "bin" / "dpkg-deb").unlink()
    assert here("verify", "--arm64-setup").code == 4


def test_a_folder_with_other_files_is_not_replaced(stand_in, tmp_path, monkeypatch):
    stand_in()
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    monkeypatch.setenv(arm_root.VARIABLE, str(home))
    said = here("verify", "--arm64-setup")
    assert said.code == 1
    assert "holds other files" in said.complaint
    assert "$CONVERTKIT_ARM64_ROOT has to name a new folder" in said.complaint
    assert [path.name for path in home.iterdir()] == ["thesis.txt"]


def listed():
    (found,) = (
        each for each in json.loads(here("engines", "list", "--json").out)["engines"] if each["name"] == "arm64"
    )
    return found


def test_the_root_is_listed_and_removed_like_an_engine(stand_in):
    stand_in()
    found = listed()
    assert (found["state"], found["folder"]) == ("installed", str(stand_in.root))
    assert found["size_bytes"] > 0
    assert (found["download_mb"], found["disk_mb"]) == (76, 260)
    assert "arm64" in here("engines", "list").out
    other = {"python": "usr/bin/python3", "versions": {**arm_root.installed(), "ai-edge-litert": "1.0"}}
    (stand_in.root / arm_root.RECORD).write_text(json.dumps(other))
    assert listed()["state"] == "outdated"
    assert here("engines", "remove", "arm64").out == "arm64 is removed\n"
    assert not stand_in.root.exists()
    assert listed()["state"] == "absent"
    assert here("engines", "remove", "arm64").out == "arm64 was not installed\n"


def test_a_root_behind_a_link_is_removed_with_the_link(stand_in, tmp_path, monkeypatch):
    stand_in()
    (stand_in.root / "lib64").symlink_to("usr")
    (tmp_path / "link").symlink_to(stand_in.root)
    monkeypatch.setenv(arm_root.VARIABLE, str(tmp_path / "link"))
    assert here("engines", "remove", "arm64").out == "arm64 is removed\n"
    assert not stand_in.root.exists()
    assert not (tmp_path / "link").is_symlink()


def test_what_is_left_of_a_root_is_outdated_and_can_be_removed(stand_in, monkeypatch):
    stand_in()
    (stand_in.root / "etc").mkdir()

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        said = here("engines", "remove", "arm64")
    assert (said.code, said.complaint) == (1, f"{stand_in.root} cannot be removed: Permission denied")
    assert listed()["state"] == "outdated"
    assert here("engines", "remove", "arm64").out == "arm64 is removed\n"
    assert not stand_in.root.exists()


def test_removing_takes_no_folder_with_other_files(stand_in, tmp_path, monkeypatch):
    stand_in()
    home = tmp_path / "home"
    home.mkdir()
    (home / arm_root.RECORD).write_text("[1]")
    monkeypatch.setenv(arm_root.VARIABLE, str(home))
    assert here("engines", "remove", "arm64").out == "arm64 was not installed\n"
    assert (home / arm_root.RECORD).exists()


def test_the_root_is_installed_like_an_engine(stand_in, tmp_path, monkeypatch):
    """Sizes and licence come first, and a yes is needed; one that is there is not made anew."""
    stand_in()
    assert here("engines", "install", "arm64").code == 0
    monkeypatch.setenv(arm_root.VARIABLE, str(tmp_path / "new"))
    said = here("engines", "install", "arm64")
    check_refusal(said, 4, "apt-get is not installed and the arm64 root needs it: it is of Debian's apt")
    assert "MB to download" not in said.err
    for tool in ("apt-get", "dpkg-deb"):
        program = tmp_path / "bin" / tool
        program.write_text(FAILING)
        program.chmod(0o755)
    said = here("engines", "install", "arm64")
    assert (said.code, "76 MB to download, 260 MB on disk" in said.err) == (2, True)
    said = here("engines", "install", "arm64", "--yes")
    assert said.code == 1
    assert said.complaint.endswith("apt-get failed: Unable to locate package python3-minimal")
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="session")
def arm64():
    """The emulator and the root that ``--arm64-setup`` makes; the test is skipped where they are not."""
    try:
        arm_root.emulator()
        arm_root.root("litert")
    except MissingTool as missing:
        pytest.skip(f"not run on arm64: {missing}")


@pytest.mark.parametrize("form", ["tflite", "int8", "onnxruntime"])
def test_on_arm64(arm64, delivered, form):
    found = verify_arm64(delivered[form].path)
    assert found.passed, found.headline
    if form == "int8":
        assert all(diff.lsb in (None, 0) for core in found.cores for diff in core.report.diffs)


@pytest.mark.nightly
def test_kernels_of_real_models_on_arm64(arm64, cases):
    """Integers are equal to the last; floats are those of the tolerance."""
    for name in ("mlperf-kws/reference_int8.tflite", "mlperf-ic/pretrainedResnet_quant.tflite"):
        found = verify_arm64(cases / name)
        assert found.passed, found.headline
        assert all(diff.max_abs == 0 for core in found.cores for diff in core.report.diffs)
    assert verify_arm64(cases / "mnist" / "mnist.onnx").passed

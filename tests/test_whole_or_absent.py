"""The output folder is whole or absent, whatever happens; and the same command writes the same bytes."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests import onnx_models
from tests.command_line import apart, command, everything_below, here

MOMENTS = random.Random(2026)


@pytest.fixture
def mlp(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


@pytest.fixture
def calib(tmp_path):
    path = tmp_path / "calib.npz"
    np.savez(path, x=np.random.default_rng(0).standard_normal((16, 5)).astype(np.float32))
    return path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def check_whole(folder):
    """Every file that the manifest names is there with its hash, and both reports."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert json.loads((folder / "report.json").read_text())["passed"]
    assert (folder / "report.html").read_text().rstrip().endswith("</html>")
    assert manifest["files"]
    for name, file in manifest["files"].items():
        assert sha256(folder / name) == file["sha256"]
        assert (folder / name).stat().st_size == file["bytes"]
    assert manifest["artifact"]["sha256"] in {file["sha256"] for file in manifest["files"].values()}


WARM = """
import sys
import convertkit.job, convertkit.steps.session, convertkit.formatting, convertkit.console
import convertkit.converters.onnx.source, convertkit.targets.onnxruntime.stage
from convertkit import cli
print("ready", flush=True)
cli.main(sys.argv[1:])
"""


def killed_after(seconds, *arguments):
    """SIGKILL the command that long after its imports, which touch no disk; whether it was still running."""
    script = [sys.executable, "-P", "-c", WARM, *map(str, arguments)]
    process = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with process:
        process.stdout.readline()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            return True
    return False


def working_time(*arguments):
    """Seconds from the end of the imports to the end of a whole run."""
    process = subprocess.Popen([sys.executable, "-P", "-c", WARM, *map(str, arguments)], stdout=subprocess.PIPE)
    with process:
        process.stdout.readline()
        begun = time.monotonic()
        process.stdout.read()
    assert process.returncode == 0
    return time.monotonic() - begun


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kills", [8, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_at_any_moment(tmp_path, mlp, calib, kills):
    place = tmp_path / "place"
    arguments = ["export", mlp, "--target", "onnxruntime", "--calib", calib]
    longest = working_time(*arguments, "-o", place / "first")
    killed = 0
    for _ in range(kills):
        killed += killed_after(MOMENTS.uniform(0, longest), *arguments, "-o", place / "out", "--force")
        if (place / "out").exists():
            check_whole(place / "out")
    assert killed >= kills // 3, "the moments did not hit the run"
    check_whole(place / "first")


@pytest.mark.timeout(600)
def test_killed_with_a_framework_in_a_worker(tmp_path, digits):
    """The worker dies with its parent, and what both left behind is not an output."""
    place = tmp_path / "place"
    arguments = ["export", digits.model, "--target", "onnxruntime"]
    longest = working_time(*arguments, "-o", place / "first")
    for number in range(4):
        killed_after((number + 1) / 5 * longest, *arguments, "-o", place / "out", "--force")
        if (place / "out").exists():
            check_whole(place / "out")


def with_hangups(handler, arguments):
    """`arguments`, begun with that handler of SIGHUP, also where `nohup` around the tests ignores it."""
    begun = (
        f"import os, signal, sys; signal.signal(signal.SIGHUP, signal.{handler}); os.execv(sys.argv[1], sys.argv[1:])"
    )
    return [sys.executable, "-c", begun, *arguments]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_stopped_in_the_middle(tmp_path, mlp, number, code):
    """What is asked to stop clears what it has begun and says so."""
    (tmp_path / "slow.py").write_text(
        "import signal\nimport time\n\n\ndef feeds():\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it\n"
        "    print('here', flush=True)\n    time.sleep(100)\n"
    )
    (tmp_path / "place").mkdir()
    export = command("export", mlp, "--calib", "slow:feeds", "-o", tmp_path / "place" / "out")
    arguments = with_hangups("SIG_DFL", export)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as run:
        assert run.stdout.readline() == "here\n"
        run.send_signal(number)
        said = run.stderr.read()
    assert (run.returncode, said.strip().splitlines()[-1]) == (code, "stopped; nothing was written")
    assert not everything_below(tmp_path / "place")


ENDLESS = """
import sys, time
from pathlib import Path
from convertkit import cli
from convertkit.quantization.stage import QuantizeIntegers

def loop():
    while True:
        time.sleep(0.01)

def call():
    time.sleep(10**6)

def run(self, source, workdir):
    Path(workdir, "half").write_bytes(b"half")
    print("here", flush=True)
    WORK()

QuantizeIntegers.run = run
cli.main()
"""


@pytest.mark.parametrize("work", ["loop", "call"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_while_a_task_runs_for_ever(tmp_path, mlp, calib, number, code, work):
    """A loop is ended, a call that Python does not hear of is left behind; nothing of either stays."""
    place, temporary = tmp_path / "place", tmp_path / "temporary"
    place.mkdir()
    temporary.mkdir()
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background is deaf
    script = heard + ENDLESS.replace("WORK", work)
    arguments = ["export", mlp, "--target", "onnxruntime", "--int8", "--calib", calib, "-o", place / "out"]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary), "ORT_DISABLE_TELEMETRY": "1"},
        text=True,
    ) as run:
        assert run.stdout.readline() == "here\n"
        run.send_signal(number)
        run.send_signal(number)  # of somebody who does not want to wait
        try:
            _, said = run.communicate(timeout=60)
        finally:
            run.kill()
    assert (run.returncode, said.strip().splitlines()[-1]) == (code, "stopped; nothing was written")
    assert not everything_below(place)
    assert not everything_below(temporary)


def test_what_nohup_starts_outlives_the_terminal(tmp_path, mlp):
    (tmp_path / "slow.py").write_text(
        "import os, signal\n\n\ndef feeds():\n    os.kill(os.getppid(), signal.SIGHUP)\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n    return [{'x': __import__('numpy').ones((1, 5), 'f4')}] * 4\n"
    )
    export = command("export", mlp, "--calib", "slow:feeds", "-t", "onnxruntime", "-o", tmp_path / "out")
    done = subprocess.run(
        with_hangups("SIG_IGN", export),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check_whole(tmp_path / "out")


def test_leftovers_of_killed_runs_go_with_the_next(tmp_path, mlp):
    place = tmp_path / "place"
    place.mkdir()
    left = place / ".out.convertkit-left"
    (left / "finished").mkdir(parents=True)
    (left / "finished" / "model.onnx").write_bytes(b"half")
    long_ago = time.time() - 3600
    os.utime(left, (long_ago, long_ago))
    assert here("export", mlp, "-o", place / "out").code == 0
    assert {name for name in everything_below(place) if "/" not in name} == {"out"}


def test_two_runs_into_one_folder_do_not_mix(tmp_path):
    models = [onnx_models.write(tmp_path, onnx_models.mlp(seed), f"m{seed}.onnx") for seed in (1, 2)]
    place = tmp_path / "place"
    for _ in range(3):
        running = [
            subprocess.Popen(
                command("export", model, "-o", place / "out"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for model in models
        ]
        ended = [(process.communicate(), process.returncode) for process in running]
        codes = sorted(code for _, code in ended)
        assert codes == [0, 1], ended
        check_whole(place / "out")
        assert "Traceback" not in "".join(err for (_, err), _ in ended)
        assert everything_below(place) == {"out", *(f"out/{name}" for name in os.listdir(place / "out"))}
        for path in (place / "out").iterdir():
            path.unlink()


def test_two_forced_runs_leave_one_whole_folder(tmp_path):
    models = [onnx_models.write(tmp_path, onnx_models.mlp(seed), f"m{seed}.onnx") for seed in (1, 2)]
    place = tmp_path / "place"
    here("export", models[0], "-o", place / "out")
    running = [
        subprocess.Popen(command("export", model, "-o", place / "out", "--force"), stdout=subprocess.DEVNULL)
        for model in models
    ]
    assert [process.wait() for process in running] == [0, 0]
    check_whole(place / "out")
    assert {name for name in everything_below(place) if "/" not in name} == {"out"}


def test_failure_keeps_the_folder_that_was_there(tmp_path, mlp):
    place = tmp_path / "place"
    assert here("export", mlp, "-o", place / "out").code == 0
    before = {path.name: sha256(path) for path in (place / "out").iterdir()}
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(mlp.read_bytes()[:100])
    assert here("export", cut, "-o", place / "out", "--force").code == 1
    assert {path.name: sha256(path) for path in (place / "out").iterdir()} == before


SAME = ["--target onnxruntime", "--target onnxruntime --int8", "--target tflite", "--target tflite --int8"]


@pytest.mark.parametrize("flags", SAME)
def test_same_command_same_bytes(tmp_path, digits, flags):
    """Two processes, two working folders, different hash seeds: the same model and the same manifest."""
    made = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        arguments = ["export", digits.model, *flags.split(), "--calib", digits.calib, "-o", folder / "out"]
        said = apart(*arguments, env=environment, cwd=folder)
        assert said.code == 0, said.err
        check_whole(folder / "out")
        made.append({path.name: sha256(path) for path in (folder / "out").iterdir() if "report" not in path.name})
    assert made[0] == made[1]
    assert len(made[0]) >= 2


def test_calibration_data_is_in_the_manifest(tmp_path, mlp, calib):
    assert here("export", mlp, "--calib", calib, "-o", tmp_path / "a").code == 0
    np.savez(calib, x=np.random.default_rng(1).standard_normal((16, 5)).astype(np.float32))
    assert here("export", mlp, "--calib", calib, "-o", tmp_path / "b").code == 0
    hashes = [json.loads((tmp_path / name / "manifest.json").read_text())["calibration"] for name in "ab"]
    assert hashes[0]["samples"] == hashes[1]["samples"] == 16
    assert hashes[0]["sha256"] != hashes[1]["sha256"]

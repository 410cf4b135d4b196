"""A release of six trained models of all frameworks, for four targets in three precisions: what a team's CI runs."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests import installed
from tests.command_line import apart, command
from tests.tasks.clusters import running

for each in ("torch", "tensorflow", "keras", "jax", "openvino"):
    installed.needs(each)

pytestmark = pytest.mark.nightly
FIXTURES = Path(__file__).parents[2] / "fixtures"

RECIPE = """
[defaults]
targets = ["onnxruntime", "tflite", "openvino", "tensorrt"]
precisions = ["float32", "int8", "w8"]
[models."vision/mnist"]
source = "${CASES}/mnist/cnn_mnist_pytorch.onnx"
calib = "mnist.npz"
[models."speech/commands"]
source = "${CASES}/mlperf-kws/saved_model"
calib = "commands.npz"
[models."vision/digits"]
source = "${FIXTURES}/digits/model.pt"
calib = "${FIXTURES}/digits/calib.npz"
[models."speech/keywords"]
source = "${FIXTURES}/keywords/model.pt2"
calib = "keywords.npz"
[models."vision/keras"]
source = "${FIXTURES}/keras-digits/model.keras"
calib = "${FIXTURES}/keras-digits/calib.npz"
[models."vision/flax"]
source = "${FIXTURES}/flax-digits/model.stablehlo"
calib = "flax.npz"
"""
CELLS = 6 * 4 * 3
KILLS = 20
LONGEST_BEFORE_A_KILL_S = 25


@pytest.fixture(scope="module")
def place(tmp_path_factory, cases):
    """A folder with the recipe and samples for the models that have none as they need them."""
    folder = tmp_path_factory.mktemp("grid")
    with gzip.open(cases / "mnist" / "t10k-images-idx3-ubyte.gz") as stream:
        pictures = np.frombuffer(stream.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:64]
    (image,) = onnx.load(cases / "mnist" / "cnn_mnist_pytorch.onnx").graph.input
    np.savez(folder / "mnist.npz", **{image.name: pictures.astype(np.float32)})
    spoken = np.load(cases / "mlperf-kws" / "kws01.npz")["mfcc_int8"][:64].astype(np.float32)
    np.savez(folder / "commands.npz", input_1=(spoken - 83) * np.float32(0.5847029))
    words = np.load(FIXTURES / "keywords" / "test.npz")["frames"][:10]
    np.savez(folder / "keywords.npz", frames=words.reshape(-1, 8, 16))
    np.savez(folder / "flax.npz", pixels=np.load(FIXTURES / "flax-digits" / "test.npz")["pixels"][:64])
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def environment(cases):
    return {**os.environ, "CASES": str(cases), "FIXTURES": str(FIXTURES)}


def words(place, name, *more):
    return ("run", place / "recipe.toml", "-o", place / name, "--json", *more)


def run(place, cases, name, *more):
    """The end of a run, as ``--json`` prints it."""
    done = subprocess.run(
        command(*words(place, name, *more)), env=environment(cases), capture_output=True, text=True, check=False
    )
    return done.returncode, json.loads(done.stdout), done.stderr


def steady(folder):
    """The bytes that every run writes in the same way."""
    listed = json.loads((folder / "release.json").read_text())["files"]
    return {name: (folder / name).read_bytes() for name in (*listed, "release.json")}


@pytest.fixture(scope="module")
def first(place, cases):
    """The bytes of a run on two processors, which leaves a cache."""
    code, found, told = run(place, cases, "release", "--jobs", "2", "--cache", place / "cache")
    assert code == 0, told
    assert len(found["release"]["cells"]) == CELLS
    assert all(each["passed"] for each in found["release"]["cells"])
    return steady(place / "release")


def test_the_second_run_takes_all_of_it_from_the_cache(place, cases, first):
    process = subprocess.Popen(
        command(*words(place, "release", "--force", "--cache", place / "cache")),
        env=environment(cases), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    assert all(each["cached"] for each in json.loads(printed)["release"]["cells"])
    assert steady(place / "release") == first
    assert used.ru_utime + used.ru_stime < 5, "seconds of a processor; two of a clock where nothing else runs"


def test_one_option_makes_its_cells_alone(place, cases, first):
    recipe = place / "recipe.toml"
    recipe.write_text(RECIPE + '[models."vision/flax".cells."onnxruntime:w8"]\nopset = 21\n')
    try:
        code, found, told = run(place, cases, "release", "--force", "--cache", place / "cache")
    finally:
        recipe.write_text(RECIPE)
    assert code == 0, told
    made = [each["name"] for each in found["release"]["cells"] if not each["cached"]]
    assert made == ["vision/flax:onnxruntime:w8"]


def test_a_failing_cell_withholds_the_release(place, cases, first):
    recipe = place / "recipe.toml"
    recipe.write_text(RECIPE + '[models."vision/flax".cells."onnxruntime:w8"]\ngates = { size = 10 }\n')
    try:
        code, found, _ = run(place, cases, "withheld", "--cache", place / "cache")
    finally:
        recipe.write_text(RECIPE)
    assert code == 3
    assert [each["name"] for each in found["release"]["cells"] if not each["passed"]] == ["vision/flax:onnxruntime:w8"]
    assert not (place / "withheld").exists()
    left = place / "withheld.failed"
    assert sum((left / each["artifact"]).is_file() for each in found["release"]["cells"]) == CELLS


def test_killed_and_one_at_a_time_it_is_the_same(place, cases, first):
    """Runs are killed at moments drawn at random; the next ones go on and make the same bytes.

    Where one is done before its moment, it is held against the first, and the next begins without a cache.
    """
    cache = place / "cache-of-killed"
    flags = ("--jobs", "1", "--cache", cache)
    kept, killed, grown = 0, 0, 0
    for seconds in np.random.default_rng(0).uniform(1, LONGEST_BEFORE_A_KILL_S, KILLS):
        process = subprocess.Popen(
            command(*words(place, "again", *flags)),
            env=environment(cases), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            assert process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            assert not (place / "again").exists()
            before, kept = kept, sum(path.is_file() for path in cache.rglob("*"))
            killed, grown = killed + 1, grown + (kept > before > 0)
            continue
        assert steady(place / "again") == first
        shutil.rmtree(place / "again")
        shutil.rmtree(cache)
        kept = 0
    assert killed > KILLS // 2
    assert grown > 0, "a run goes on where the one before it was killed"
    code, found, told = run(place, cases, "again", *flags)
    assert code == 0, told
    assert not kept or any(each["cached"] for each in found["release"]["cells"]), "what was made is not made again"
    assert steady(place / "again") == first


def test_a_cluster_that_loses_a_worker_makes_the_same(place, cases, first):
    pytest.importorskip("distributed")
    with running("--local-directory", place / "workers", environment=environment(cases)) as cluster:
        flags = ("--scheduler", cluster.address, "--cache", place / "cache-of-cluster")
        process = subprocess.Popen(
            command(*words(place, "there", *flags)), env=environment(cases), stdout=subprocess.PIPE, text=True
        )
        time.sleep(LONGEST_BEFORE_A_KILL_S)
        assert process.poll() is None
        cluster.workers[0].send_signal(signal.SIGKILL)
        printed, _ = process.communicate()
    assert process.returncode == 0, printed
    assert steady(place / "there") == first


def test_it_verifies(place, first):
    said = apart("verify", place / "release", "--json")
    assert said.code == 0, said.err
    assert sum(":" in each["name"] and each["passed"] for each in json.loads(said.out)["verify"]["checks"]) == CELLS

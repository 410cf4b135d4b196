"""Bad data, flags, recipes and output folders: one sentence, the right exit code, nothing on the disk."""

import io
import os
import resource
import sys

import numpy as np
import pytest

from tests import onnx_models
from tests.command_line import Trap, apart, check_refusal, everything_below, guarded, here, refused, with_path


@pytest.fixture
def place(tmp_path):
    """An empty folder to export into."""
    folder = tmp_path / "place"
    folder.mkdir()
    return folder


@pytest.fixture
def mlp(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


GOOD = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32)


def with_nan(value):
    bad = GOOD.copy()
    bad[3, 2] = value
    return bad


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": GOOD, "z": GOOD}, ["'y'", "'x'"]),
        ({"x": GOOD, "z": GOOD}, ["'z'"]),
        ({"x": GOOD[:, :4]}, ["4", "5"]),
        ({"x": GOOD[..., None]}, ["5×1"]),
        ({"x": np.float32(3.0)}, ["x"]),
        ({"x": GOOD.astype(np.complex64)}, ["complex64", "float32"]),
        ({"x": (100 * GOOD).astype(np.int32)}, ["int32", "float32"]),
        ({"x": with_nan(np.nan)}, ["NaN"]),
        ({"x": with_nan(np.inf)}, ["infinity"]),
        ({"x": GOOD[:0]}, ["no sample"]),
        ({"x": np.array([{"a": 1}] * 5, dtype=object)}, ["x"]),
        ({}, []),
    ],
    ids=["name", "extra", "shape", "rank", "scalar", "complex", "integer", "nan", "inf", "none", "object", "empty"],
)
def test_data_that_does_not_fit(place, tmp_path, mlp, flag, arrays, words):
    label = {"label": np.zeros(8, np.int64)} if flag == "--eval" else {}
    np.savez(tmp_path / "data.npz", **arrays, **label)
    refused(place, 1, ["data.npz", *words], mlp, "--target", "onnxruntime", flag, tmp_path / "data.npz")


def test_evaluation_without_labels(place, tmp_path, mlp):
    np.savez(tmp_path / "data.npz", x=GOOD)
    refused(place, 1, ["label"], mlp, "--eval", tmp_path / "data.npz")


def test_labels_of_another_length(place, tmp_path, mlp):
    np.savez(tmp_path / "data.npz", x=GOOD, label=np.zeros(5, np.int64))
    refused(place, 1, ["label", "5", "8"], mlp, "--eval", tmp_path / "data.npz")


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
@pytest.mark.parametrize("content", [b"", b"this is not an archive", b"PK\x03\x04" + b"\0" * 40, b"\x93NUMPY\x01\x00"])
@pytest.mark.parametrize("name", ["data.npz", "data.npy"])
def test_data_files_that_are_broken(place, tmp_path, mlp, flag, name, content):
    (tmp_path / name).write_bytes(content)
    refused(place, 1, [name], mlp, flag, tmp_path / name)


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
def test_data_that_is_missing(place, mlp, flag):
    refused(place, 1, ["nowhere.npz"], mlp, flag, "nowhere.npz")
    refused(place, 1, ["no_such_package"], mlp, flag, "no_such_package:feeds")


def test_data_cut_off(place, tmp_path, mlp):
    buffer = io.BytesIO()
    np.savez(buffer, x=GOOD)
    (tmp_path / "data.npz").write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    refused(place, 1, ["data.npz"], mlp, "--calib", tmp_path / "data.npz")


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
@pytest.mark.parametrize("name", ["1.npy", "1.png"])
def test_a_pipe_among_the_data_is_not_waited_for(place, tmp_path, mlp, flag, name):
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / "data" / name)
    refused(place, 1, [name, "not a file"], mlp, flag, tmp_path / "data")


def test_pickled_data_is_never_executed(place, tmp_path, mlp):
    sprung = tmp_path / "sprung"
    np.savez(tmp_path / "data.npz", x=np.array([Trap(sprung)], dtype=object))
    refused(place, 1, ["data.npz"], mlp, "--calib", tmp_path / "data.npz")
    assert not sprung.exists()


def test_integers_without_calibration(place, mlp):
    refused(place, 2, ["--calib"], mlp, "--target", "onnxruntime", "--int8")


# --- flags and recipes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--target", "tflit"], ["unknown target 'tflit'", "did you mean 'tflite'"]),
        (["--target", "toaster"], ["unknown target 'toaster'", "onnxruntime"]),
        (["--no-such-flag"], ["--no-such-flag"]),
        (["--int8", "--fp16"], ["--int8 and --fp16"]),
        (["--target", "onnxruntime", "--target", "onnxruntime"], ["twice"]),
        (["--max-drop", "0.5"], ["--eval"]),
        (["--metric", "top1"], ["--eval"]),
        (["--io-dtype", "int8"], ["--int8"]),
        (["--full-integer"], ["--int8"]),
        (["--calib-samples", "0"], ["--calib-samples"]),
        (["--calib-samples", "many"], ["--calib-samples"]),
        (["--calib-method", "guess"], ["--calib-method"]),
        (["--io-dtype", "int3", "--int8"], ["--io-dtype"]),
        (["--input-layout", "nhcw"], ["--input-layout"]),
        (["--static", "N"], ["--static"]),
        (["--static", "N=0"], ["--static"]),
        (["--static", "N=-3"], ["--static"]),
        (["--input", "x"], ["--input"]),
        (["--input", "x:1,5:float32[a,b)"], ["--input"]),
        (["--input", "x:1,5:float33"], ["no dtype is called float33", "did you mean 'float32'"]),
        (["--trust", "everything"], ["--trust"]),
        (["--timeout", "0"], ["--timeout"]),
        (["--timeout", "-1"], ["--timeout"]),
        (["--timeout", "nan"], ["--timeout"]),
        (["--opset", "3"], ["--opset"]),
        (["--opset", "99"], ["--opset"]),
        (["--prune", "1.5"], ["--prune"]),
        (["--prune", "some"], ["--prune"]),
        (["--prune", "5:4"], ["--prune"]),
        (["--prune-channels", "-0.1"], ["--prune-channels"]),
        (["--seed", "-1"], ["--seed"]),
        (["--target", "tflite", "--label-file", "no-such-file.txt"], ["--label-file no-such-file.txt", "no such file"]),
        (["--target", "tflite", "--label-file", "."], ["--label-file .", "no such file"]),
    ],
    ids=lambda value: "_".join(value) if value and value[0].startswith("--") else "",
)
def test_flags_that_make_no_sense(place, mlp, flags, words):
    refused(place, 2, words, mlp, *flags)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('targett = "tflite"', [":1", "targett", "target"]),
        ("int8 = true\ncalibb = 'x'", [":2", "calibb", "calib"]),
        ("int8 = ", ["recipe.toml"]),
        ("target = 3", ["target"]),
        ("calib_samples = 'many'", ["calib_samples"]),
        ("max_drop = 'little'\neval = 'x'", ["max_drop"]),
        ("[nested]\nint8 = true", ["nested"]),
        ("timeout = true", ["timeout"]),
        ("int8 = 'yes'", ["int8"]),
        ("\0", ["recipe.toml"]),
    ],
    ids=["key", "second-line", "toml", "target", "samples", "drop", "table", "timeout", "flag", "zero"],
)
def test_recipes_that_make_no_sense(place, tmp_path, mlp, text, words):
    (tmp_path / "recipe.toml").write_text(text)
    refused(place, 2, words, mlp, "--recipe", tmp_path / "recipe.toml")


def test_recipe_that_is_missing(place, mlp):
    refused(place, 2, ["nowhere.toml"], mlp, "--recipe", "nowhere.toml")


def test_no_source_at_all():
    check_refusal(here("export", "--target", "onnxruntime"), 2, "SOURCE")


def test_unknown_command():
    check_refusal(here("exprot"), 2, "exprot")


# --- the output folder ---------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["keep.txt", "sub/keep.txt"])
def test_output_that_is_not_empty(tmp_path, mlp, content):
    kept = tmp_path / "place" / "out" / content
    kept.parent.mkdir(parents=True)
    kept.write_text("precious")
    refused(tmp_path / "place", 1, ["not empty", "--force"], mlp)
    assert kept.read_text() == "precious"


@pytest.mark.parametrize("source", [".", "../model", "inner/.."])
def test_output_in_the_source(tmp_path, monkeypatch, source):
    (tmp_path / "model" / "inner").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "model")
    said = here("export", source, "--target", "onnxruntime")
    check_refusal(said, 1, f"model-onnxruntime lies in the source {source}", "--output")
    assert everything_below(tmp_path) == {"model", "model/inner"}


def test_output_that_is_a_file(place, mlp):
    (place / "out").write_text("precious")
    refused(place, 1, ["not a folder"], mlp)
    assert (place / "out").read_text() == "precious"


def test_output_below_a_file(place, tmp_path, mlp):
    (tmp_path / "file").write_text("precious")
    check_refusal(here("export", mlp, "-o", tmp_path / "file" / "out"), 1, "cannot be written")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux")
def test_output_that_is_not_writable(place, mlp):
    place.chmod(0o555)
    refused(place, 1, ["permission denied"], mlp, run=guarded)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux")
@pytest.mark.parametrize("flag", ["--calib", "--eval"])
@pytest.mark.parametrize("name", ["data.npz", "data.npy", "closed", "closed/data.npz"])
def test_data_that_must_not_be_read(place, tmp_path, mlp, flag, name):
    (tmp_path / "closed").mkdir()
    for file in ("data.npz", "data.npy", "closed/data.npz"):
        (tmp_path / file).write_bytes(b"data")
        (tmp_path / file).chmod(0)
    (tmp_path / "closed").chmod(0)
    refused(place, 1, [name, "cannot be read: "], mlp, flag, tmp_path / name, run=guarded)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux")
def test_output_where_nobody_can_write(mlp):
    check_refusal(here("export", mlp, "-o", "/proc/self/out"), 1, "cannot be written")


def test_output_name_that_is_too_long(place, mlp, monkeypatch):
    monkeypatch.chdir(place)
    check_refusal(here("export", mlp, "-o", "x" * 300), 1, "too long")
    assert not everything_below(place)


@pytest.mark.parametrize("limit", [1, 100, 500, 5_000])
def test_disk_full(place, mlp, limit):
    """A file size limit fails a write where a full disk does; the limits hit the model and the reports."""

    def small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def run(*arguments):
        return apart(*arguments, preexec_fn=small_disk)

    refused(place, 1, ["cannot be written"], mlp, run=run)


def test_disk_full_in_a_worker(place, digits):
    def run(*arguments):
        return apart(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))

    refused(place, 1, ["cannot be written: the file size limit is reached"], digits.model, run=run)


# --- what is not installed -----------------------------------------------------------------------


def test_missing_framework_names_the_command(place, tmp_path, digits):
    (tmp_path / "hidden" / "torch").mkdir(parents=True)
    (tmp_path / "hidden" / "torch" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    )
    environment = with_path(tmp_path / "hidden")

    def run(*arguments):
        return apart(*arguments, env=environment)

    refused(place, 4, ["pip install 'convertkit-ml[torch]'"], digits.model, run=run)


def test_missing_runtime_names_the_command(place, tmp_path, mlp):
    (tmp_path / "hidden" / "ai_edge_litert").mkdir(parents=True)
    (tmp_path / "hidden" / "ai_edge_litert" / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'ai_edge_litert'\", name='ai_edge_litert')"
    )
    environment = with_path(tmp_path / "hidden")

    def run(*arguments):
        return apart(*arguments, env=environment)

    refused(place, 4, ["pip install 'convertkit-ml[tflite]'"], mlp, "--target", "tflite", "--static", "N=1", run=run)

"""A release: all cells from one graph, published together or not at all."""

import json
import os
import signal
import subprocess
import time

import jsonschema
import numpy as np
import onnx
import pytest

from convertkit.release.cells import load
from convertkit.release.run import Running, failure, run
from convertkit.summary import schema
from convertkit.tasks.scheduler import Scheduler
from tests import onnx_models
from tests.command_line import apart, command, everything_below, here

RECIPE = """
[defaults]
targets = ["tflite", "onnxruntime"]
precisions = ["float32", "w8"]
[models."dense/one"]
source = "one.onnx"
[models.two]
source = "two.onnx"
targets = ["onnxruntime"]
"""


@pytest.fixture
def recipe(tmp_path):
    onnx_models.write(tmp_path, onnx_models.mlp(1), "one.onnx")
    onnx_models.write(tmp_path, onnx_models.mlp(2), "two.onnx")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "recipe.toml"


def steady(folder):
    """The bytes that every run writes in the same way."""
    listed = json.loads((folder / "release.json").read_text())["files"]
    return {name: (folder / name).read_bytes() for name in (*listed, "release.json")}


def test_a_release_holds_every_cell(recipe, tmp_path):
    said = here("run", recipe, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    jsonschema.validate(found, schema())
    cells = found["release"]["cells"]
    assert [each["name"] for each in cells] == [
        "dense/one:tflite:float32", "dense/one:tflite:w8", "dense/one:onnxruntime:float32",
        "dense/one:onnxruntime:w8", "two:onnxruntime:float32", "two:onnxruntime:w8",
    ]  # fmt: skip
    release = tmp_path / "release"
    assert found["release"]["folder"] == str(release)
    assert all((release / each["artifact"]).is_file() for each in cells)
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=release, check=False)
    assert done.returncode == 0
    with np.load(release / "two" / "golden.npz") as golden:
        assert {name.split("/")[0] for name in golden.files} == {"0", "1", "2"}
    assert not (release / "two" / "golden-2.npz").exists(), "cells of a model share what is the same"


def test_cells_are_what_single_exports_make(recipe, tmp_path):
    assert here("run", recipe).code == 0
    for target, flag in (("tflite", "--w8"), ("onnxruntime", "--w8")):
        assert here("export", tmp_path / "one.onnx", "-t", target, flag, "-o", tmp_path / target).code == 0
        for name in ("manifest.json", f"model.{'tflite' if target == 'tflite' else 'onnx'}"):
            single = (tmp_path / target / name).read_bytes()
            assert (tmp_path / "release" / "dense/one" / f"{target}-w8" / name).read_bytes() == single


def test_jobs_do_not_change_a_byte(recipe, tmp_path):
    for jobs in (1, 2):
        assert here("run", recipe, "--jobs", jobs, "-o", tmp_path / f"of-{jobs}").code == 0
    assert steady(tmp_path / "of-1") == steady(tmp_path / "of-2")


def test_the_second_run_is_cached_and_one_option_changes_its_cells_alone(recipe, tmp_path):
    def cached(*flags):
        said = here("run", recipe, "--force", "--cache", tmp_path / "cache", "--json", *flags)
        assert said.code == 0, said.err
        return {each["name"]: each["cached"] for each in json.loads(said.out)["release"]["cells"]}

    assert not any(cached().values())
    first = steady(tmp_path / "release")
    assert all(cached().values())
    assert steady(tmp_path / "release") == first
    recipe.write_text(RECIPE + '[models.two.cells."*:w8"]\nopset = 21\n')
    assert {name for name, was in cached().items() if not was} == {"two:onnxruntime:w8"}


def test_a_failed_cell_withholds_the_release_and_the_others_are_there(recipe, tmp_path):
    recipe.write_text(RECIPE + 'gates = { size = "1kB" }\n[models.two.cells."*:w8"]\ngates = { size = 10 }\n')
    said = here("run", recipe, "--json")
    assert said.code == 3
    found = json.loads(said.out)
    jsonschema.validate(found, schema())
    assert found["error"]["kind"] == "CellsFailed"
    assert "two:onnxruntime:w8: size: " in found["error"]["message"]
    assert not (tmp_path / "release").exists()
    left = tmp_path / "release.failed"
    results = {each["name"]: each for each in json.loads((left / "results.json").read_text())["cells"]}
    assert [name for name, each in results.items() if not each["passed"]] == ["two:onnxruntime:w8"]
    assert (left / "dense/one/tflite-w8/model.tflite").is_file()
    assert here("run", recipe).code == 3, "what an earlier run left is replaced"
    assert not (tmp_path / "release.failed-2").exists()


def test_a_source_that_breaks_fails_its_own_cells(recipe, tmp_path):
    whole = (tmp_path / "two.onnx").read_bytes()
    (tmp_path / "two.onnx").write_bytes(whole[: len(whole) // 2])
    release = run(load(recipe), Running())
    assert not release.passed
    assert [each.name for each in release.cells if not each.passed] == ["two:onnxruntime:float32", "two:onnxruntime:w8"]
    assert failure(release).exit_code == 1
    recipe.write_text(RECIPE + "required = false\n")
    release = run(load(recipe), Running())
    assert release.passed
    assert release.path == tmp_path / "release"
    assert "SourceError" in {each.kind for each in release.cells}


def test_an_internal_error_is_one_cell_s_and_verbose_shows_where(recipe, monkeypatch):
    def broken(result, samples):
        raise ZeroDivisionError("of the test")

    monkeypatch.setattr("convertkit.release.golden.bounds", broken)
    said = here("run", recipe, "--only", "two:*:float32")
    assert said.code == 1
    assert "two:onnxruntime:float32: internal error, ZeroDivisionError: of the test (--verbose shows where)" in said.err
    assert "Traceback" not in said.err
    loud = here("run", recipe, "--only", "two:*:float32", "--verbose")
    assert "two:onnxruntime:float32: Traceback" in loud.err
    assert "in broken" in loud.err


@pytest.mark.parametrize(
    ("gate", "says"),
    [("1kB", "delivered before: {}"), ("10B", "nothing was delivered; what failed before lies in {}.failed")],
)
def test_stopped_behind_its_delivery_it_is_told_of(recipe, tmp_path, monkeypatch, gate, says):
    """Folders of work are removed then, and what runs is closed."""

    def closed(self, close=Scheduler.close):
        close(self)
        raise KeyboardInterrupt

    recipe.write_text(RECIPE + f'gates = {{ size = "{gate}" }}\n')
    monkeypatch.setattr(Scheduler, "close", closed)
    said = here("run", recipe, "--only", "two:*:float32", "--json")
    assert (said.code, said.err.splitlines()[-1]) == (130, f"stopped; {says.format(tmp_path / 'release')}")
    found = json.loads(said.out)
    jsonschema.validate(found, schema())
    assert found["release"]["passed"] is (gate == "1kB")


def test_what_is_wrong_is_said_before_any_work(recipe, tmp_path):
    recipe.write_text(RECIPE + 'precisions = ["int8"]\n')
    said = here("run", recipe)
    assert said.code == 2
    assert "--int8 measures activation ranges and needs data" in said.complaint
    assert not (tmp_path / "release.failed").exists()
    recipe.write_text(RECIPE.replace('"tflite", ', '"tflit", '))
    assert "unknown target 'tflit'" in here("run", recipe).complaint


def test_a_baseline_is_compared_with(recipe, tmp_path):
    assert here("run", recipe, "-o", tmp_path / "old").code == 0
    recipe.write_text(
        '[release]\nbaseline = "old"\n' + RECIPE + "gates = { size_to_baseline = 1, latency_to_baseline = 1000 }\n"
    )
    release = run(load(recipe), Running())
    assert release.passed
    two = release.cell("two:onnxruntime:w8")
    assert two.change["size"] == 1
    assert [each.gate for each in two.verdicts] == ["latency_to_baseline", "size_to_baseline"]
    assert release.cell("dense/one:tflite:w8").change["latency"] > 0


def test_memory_is_what_the_runtime_s_process_takes(tmp_path):
    """A model of 16 MB takes at least its weights; where nothing runs it here, its gate cannot be judged."""
    weights = np.random.default_rng(0).standard_normal((2000, 2000)).astype(np.float32)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    stored = [onnx.numpy_helper.from_array(weights, "w")]
    model = onnx_models.model([node], {"x": [1, 2000]}, {"y": [1, 2000]}, stored)
    onnx_models.write(tmp_path, model, "large.onnx")
    recipe = tmp_path / "recipe.toml"
    said = (
        '[models.large]\nsource = "large.onnx"\ntargets = ["onnxruntime", "tflite", "tensorrt"]\n'
        'gates = {{ peak_memory = "{}" }}\n'
    )
    recipe.write_text(said.format("200MB"))
    cells = run(load(recipe), Running(cache=str(tmp_path / "cache"))).cells
    assert [each.passed for each in cells] == [True, True, False]
    assert all(16_000_000 <= each.memory_bytes < 200_000_000 for each in cells[:2])
    assert "peak_memory cannot be judged: memory is not measured for this target here" in cells[2].error
    recipe.write_text(said.format("15MB"))
    again = run(load(recipe), Running(cache=str(tmp_path / "cache"))).cells
    assert [each.memory_bytes for each in again] == [each.memory_bytes for each in cells], "kept with the cell"
    assert [each.passed for each in again] == [False, False, False]
    assert "at most 15MB" in again[0].error
    assert ">memory</th>" in (tmp_path / "release.failed" / "index.html").read_text()


def test_memory_on_a_microcontroller_is_its_arena(recipe, tmp_path):
    recipe.write_text(
        '[models.two]\nsource = "two.onnx"\ntargets = ["tflite-micro"]\nstatic = { N = 1 }\n'
        'gates = { peak_memory = "20kB" }\n'
    )
    release = run(load(recipe), Running())
    header = (release.path / "two" / "tflite-micro-float32" / "model.h").read_text()
    assert f"kTensorArenaSize = {release.cells[0].memory_bytes};" in header
    assert release.passed


@pytest.mark.nightly
def test_killed_at_any_moment_it_is_absent_and_then_complete(recipe, tmp_path):
    assert apart("run", recipe, "-o", tmp_path / "whole").code == 0
    wanted = steady(tmp_path / "whole")
    words = command("run", recipe, "--cache", tmp_path / "cache")
    for delay in (0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0, 2.5):
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(delay)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        if (tmp_path / "release").exists():
            assert steady(tmp_path / "release") == wanted
    said = apart("run", recipe, "--cache", tmp_path / "cache", "--force")
    assert said.code == 0, said.err
    assert steady(tmp_path / "release") == wanted
    assert not [name for name in everything_below(tmp_path) if ".convertkit-" in name and "cache/" not in name]

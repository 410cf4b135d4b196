"""The command never costs the user a file, wherever it is told to write."""

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests import onnx_models
from tests.command_line import check_refusal, command, everything_below, here


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a model, data and a recipe, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    onnx_models.write(tmp_path, onnx_models.mlp(), "model.onnx")
    np.savez("calib.npz", x=np.random.default_rng(0).standard_normal((32, 5)).astype(np.float32))
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_with_the_source_and_notes(place):
    (place / "mydir" / "sub").mkdir(parents=True)
    (place / "mydir" / "notes.txt").write_text("precious")
    (place / "mydir" / "sub" / "thesis.tex").write_text("precious")
    onnx_models.write(place / "mydir", onnx_models.mlp())
    before = contents(place)
    check_refusal(here("export", "mydir/model.onnx", "-o", "mydir", "--force"), 1, "mydir holds the source")
    check_refusal(here("export", "model.onnx", "-o", "mydir", "--force"), 1, "it holds model.onnx, notes.txt, sub")
    assert contents(place) == before


def test_a_source_that_is_a_folder_is_not_written_into(place):
    (place / "saved").mkdir()
    (place / "saved" / "saved_model.pb").write_bytes(b"graph")
    for output in ("saved", "saved/out"):
        check_refusal(here("export", "saved", "-o", output, "--force"), 1, "the source saved, which")
    assert everything_below(place / "saved") == {"saved_model.pb"}


@pytest.mark.parametrize("flag", ["--calib", "--eval"])
def test_data_in_the_output_folder(place, flag):
    (place / "data").mkdir()
    np.savez("data/samples.npz", x=np.ones((32, 5), np.float32), label=np.ones((32, 3), np.float32))
    before = contents(place)
    said = here("export", "model.onnx", flag, "data/samples.npz", "-o", "data", "--force")
    check_refusal(said, 1, "data holds the ", "data data/samples.npz, which an export never replaces")
    assert contents(place) == before


def test_a_recipe_in_the_output_folder(place):
    (place / "out").mkdir()
    (place / "out" / "recipe.toml").write_text('source = "../model.onnx"\n')
    check_refusal(
        here("export", "--recipe", "out/recipe.toml", "-o", "out", "--force"), 1, "it holds recipe.toml, which"
    )


def test_what_was_delivered_is_not_replaced_while_it_is_the_source(place):
    assert here("export", "model.onnx", "-o", "out").code == 0
    before = contents(place)
    check_refusal(here("export", "out/model.onnx", "-o", "out", "--force"), 1, "out holds the source out/model.onnx")
    check_refusal(here("export", "out", "-o", "out", "--force"), 1)
    assert contents(place) == before
    assert here("export", "model.onnx", "-o", "out", "--force").code == 0


def test_a_failed_export_keeps_what_lies_in_its_failed_folder(place, digits, answers):
    (place / "out.failed").mkdir()
    (place / "out.failed" / "analysis.txt").write_text("precious")
    flags = ["--int8", "--calib", digits.calib, "--eval", answers, "--max-drop", "1", "-o", "out"]
    said = here("export", digits.model, *flags)
    assert said.code == 3
    assert (place / "out.failed" / "analysis.txt").read_text() == "precious"
    assert sorted(os.listdir("out.failed-2")) == ["report.html", "report.json"]
    assert said.err.splitlines()[-1] == "  see   out.failed-2/report.html"


@pytest.fixture(params=["mount", "current"])
def staying(request, place, monkeypatch):
    """An empty output folder that stays as it is, and how the command is told of it."""
    folder = place / "vol"
    folder.mkdir()
    if request.param == "current":
        monkeypatch.chdir(folder)
        yield Path()
        return
    if subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True, check=False).returncode:
        pytest.skip("only root may mount, and not in every container")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_volume_is_delivered_into_again_and_again(staying, place):
    for force in ([], ["--force"], ["--force"]):
        said = here("export", place / "model.onnx", "-o", staying, *force)
        assert said.code == 0, said.err
        assert sorted(os.listdir(staying)) == ["manifest.json", "model.onnx", "report.html", "report.json"]
    check_refusal(here("export", place / "model.onnx", "-o", staying), 1, "not empty")


@pytest.mark.timeout(300)
def test_a_volume_after_kills(staying, place):
    """At every moment there is what a manifest lists or no manifest; the run after it clears what was left."""
    flags = ["export", place / "model.onnx", "-o", staying, "--force"]
    begun = time.monotonic()
    assert subprocess.run(command(*flags), capture_output=True, check=False).returncode == 0
    longest = time.monotonic() - begun
    for moment in range(10):
        with subprocess.Popen(command(*flags), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
            time.sleep(longest * (0.4 + 0.06 * moment))
            run.send_signal(signal.SIGKILL)
            run.communicate()  # ends when its child is dead, too, which holds the other end
    assert here(*flags).code == 0
    assert everything_below(staying) == {"manifest.json", "model.onnx", "report.html", "report.json"}
    assert not [name for name in os.listdir(place) if ".convertkit-" in name]

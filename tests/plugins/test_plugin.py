"""A converter, a pass and a target from another package take part like our own, without a change to convertkit."""

import json

import numpy as np
import pytest

from tests.command_line import apart, check_refusal, everything_below


@pytest.fixture
def source(tmp_path):
    """A file in the plugin's text format: dense, dense, relu, dense."""
    draw = np.random.default_rng(5).standard_normal
    lines = ["#acme 1"]
    for rows, columns, after in ((5, 6, ""), (6, 7, "relu"), (7, 3, "")):
        lines.append(f"dense {rows} {columns}")
        lines += [" ".join(f"{number:.6f}" for number in row) for row in draw((rows, columns))]
        lines += [after] if after else []
    path = tmp_path / "model.acme"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def export(acme):
    return lambda *arguments: apart("export", *arguments, env=acme)


def report_of(said, folder):
    assert said.code == 0, said.err
    return json.loads((folder / "report.json").read_text())


def test_converter_reaches_our_target(source, tmp_path, export):
    report = report_of(export(source, "--target", "onnxruntime", "-o", tmp_path / "out"), tmp_path / "out")
    assert [step["stage"] for step in report["steps"]] == ["acme-to-onnx", "onnxruntime"]
    assert report["source"]["format"] == "acme"
    assert report["notes"] == ["acme files have no names: input and output are called x and y"]


def test_whole_road_of_the_plugin(source, tmp_path, export):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('passes = ["acme-merge"]\ntarget = "c-header"\n')
    report = report_of(export(source, "--recipe", recipe, "-o", tmp_path / "out"), tmp_path / "out")
    assert [step["stage"] for step in report["steps"]] == ["acme-to-onnx", "acme-merge", "c-header"]
    assert all(step["parity"]["versus_source"]["passed"] for step in report["steps"])
    assert (tmp_path / "out" / "model.h").read_text().count("static const float") == 2, "two dense layers became one"
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert "model.h" in manifest["files"]


def test_pass_stays_out_unless_asked(source, tmp_path, export):
    report = report_of(export(source, "--target", "c-header", "-o", tmp_path / "out"), tmp_path / "out")
    assert [step["stage"] for step in report["steps"]] == ["acme-to-onnx", "c-header"]


def test_wrong_target_of_somebody_else_is_caught(source, tmp_path, export):
    """The plugin declares a tolerance and nothing else; the proof is convertkit's."""
    before = everything_below(tmp_path)
    said = export(source, "--target", "c-header-wrong", "-o", tmp_path / "out")
    check_refusal(said, 3, "c-header", '"y"')
    assert everything_below(tmp_path) - before == {"out.failed", "out.failed/report.json", "out.failed/report.html"}


def test_targets_lists_the_plugin(acme):
    said = apart("targets", "--json", env=acme)
    listed = json.loads(said.out)
    assert "c-header" in [target["name"] for target in listed["targets"]]
    assert "acme" in [source["name"] for source in listed["converters"]]


def test_precision_that_the_plugin_does_not_deliver(source, tmp_path, export):
    check_refusal(export(source, "--target", "c-header", "--fp16", "-o", tmp_path / "out"), 2, "c-header", "fp16")


def test_source_that_the_plugin_refuses(tmp_path, export):
    path = tmp_path / "broken.acme"
    path.write_text("#acme 1\ndense 2 2\n1 2\n")
    check_refusal(export(path, "--target", "onnxruntime", "-o", tmp_path / "out"), 1, "broken.acme")
    assert everything_below(tmp_path) == {"broken.acme"}

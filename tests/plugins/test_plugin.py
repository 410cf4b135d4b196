"""A converter, a pass and a target from another package take part like our own, without a change to convertkit."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from convertkit.plugins import BrokenPlugin
from convertkit.recipe import ExportOptions
from convertkit.stage import FLOAT32, BuildContext
from convertkit.steps.stages import steps_of
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


@pytest.fixture
def written_for(acme, tmp_path):
    """The environment of a process in which the plugin says that it was written for the given version."""

    def environment(line):
        installed, copy = Path(acme["PYTHONPATH"].split(os.pathsep)[0]), tmp_path / "installed"
        shutil.copytree(installed, copy, ignore=shutil.ignore_patterns("__pycache__"))
        package = copy / "acme_convertkit" / "__init__.py"
        text = package.read_text()
        assert 'CONVERTKIT_PLUGIN_API = "1.0"' in text
        package.write_text(text.replace('CONVERTKIT_PLUGIN_API = "1.0"', line))
        if line:  # what it registers relies on that version, and so must not be imported
            (copy / "acme_convertkit" / "converter.py").write_text("from convertkit.stage import NotYetThere")
        return {**acme, "PYTHONPATH": acme["PYTHONPATH"].replace(str(installed), str(copy))}

    return environment


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('CONVERTKIT_PLUGIN_API = "2.0"', ("written for plugin API 2.0", "offers 1.1", "a newer convertkit")),
        ('CONVERTKIT_PLUGIN_API = "1.7"', ("written for plugin API 1.7", "offers 1.1", "a newer convertkit")),
        ('CONVERTKIT_PLUGIN_API = "0.9"', ("written for plugin API 0.9", "a newer version of the plugin")),
        ("CONVERTKIT_PLUGIN_API = 1.0", ("acme_convertkit is 1.0, not MAJOR.MINOR",)),
    ],
)
def test_a_plugin_for_another_api_is_refused(source, tmp_path, written_for, line, words):
    said = apart("export", source, "--target", "c-header", "-o", tmp_path / "out", env=written_for(line))
    check_refusal(said, 1, "plugin", *words)
    assert not (tmp_path / "out").exists()


def test_a_plugin_that_declares_nothing_counts_as_the_first_version(source, tmp_path, written_for):
    said = apart("export", source, "--target", "c-header", "-o", tmp_path / "out", env=written_for(""))
    assert said.code == 0, said.err


def header(folder):
    return (folder / "model.h").read_text().splitlines()


def test_options_of_the_plugin_are_flags_keys_and_keywords(source, tmp_path, export):
    flags = export(source, "--target", "c-header", "--c-header-guard", "NET_H", "-o", tmp_path / "flags")
    report = report_of(flags, tmp_path / "flags")
    assert report["target_options"] == {"guard": "NET_H", "license": None}
    assert report["steps"][-1]["options"] == {"guard": "NET_H"}
    assert header(tmp_path / "flags")[:2] == ["#ifndef NET_H", "#define NET_H"]
    manifest = json.loads((tmp_path / "flags" / "manifest.json").read_text())
    assert manifest["target_options"] == {"guard": "NET_H", "license": None}
    again = [source if word == source.name else word for word in report["command"].split()[2:]]
    report_of(export(*again, "-o", tmp_path / "again"), tmp_path / "again")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[target.c-header]\nguard = "NET_H"\n')
    report_of(export(source, "--recipe", recipe, "-o", tmp_path / "recipe"), tmp_path / "recipe")
    assert header(tmp_path / "flags") == header(tmp_path / "again") == header(tmp_path / "recipe")


def test_a_path_of_a_recipe_begins_there_and_counts_by_its_content(source, tmp_path, export):
    (tmp_path / "words").mkdir()
    recipe, text = tmp_path / "words" / "recipe.toml", tmp_path / "words" / "LICENSE"
    recipe.write_text('[target.c-header]\nlicense = "LICENSE"\n')

    def cached(folder):
        said = export(source, "--recipe", recipe, "--cache", tmp_path / "cache", "-o", tmp_path / folder)
        return [step["cached"] for step in report_of(said, tmp_path / folder)["steps"]]

    text.write_text("free")
    assert cached("a") == [False, False]
    assert cached("b") == [True, True]
    text.write_text("not free")
    assert cached("c") == [True, False]
    assert [header(tmp_path / name)[0] for name in "abc"] == ["/* free */", "/* free */", "/* not free */"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--c-header-guard", "9"], "--c-header-guard 9: expected a name of C, for example MODEL_H"),
        (["--c-header-license", "nowhere"], "--c-header-license nowhere: there is no such file"),
        (["--c-header-guart", "A"], "Did you mean one of: '--c-header-guard'"),
        (["--c-header-wrong-guard", "A"], "--c-header-wrong-guard does nothing for c-header; it is for --target c-hea"),
        (["--tensorrt-profile", "N=1,2,3"], "--tensorrt-profile does nothing for c-header"),
    ],
)
def test_options_that_cannot_be_are_refused(source, tmp_path, export, words, says):
    check_refusal(export(source, "--target", "c-header", *words, "-o", tmp_path / "out"), 2, says)
    assert everything_below(tmp_path) == {"model.acme"}


def test_help_has_a_group_for_the_plugin(acme):
    said = apart("export", "--help", env={**acme, "COLUMNS": "120"}).out
    section = said[said.index("\nTarget c-header:") :]
    assert "--c-header-guard NAME" in section
    assert "Name of the include guard." in section
    assert "\nTarget c-header-wrong:" in section


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Guard", "target c-header declares the option 'Guard': a name has lower-case words"),
        ("wrong-guard", "which target c-header has"),
    ],
)
def test_a_faulty_option_is_told_and_leaves_other_targets_alone(source, tmp_path, written_for, name, says):
    environment = written_for('CONVERTKIT_PLUGIN_API = "1.0"')
    changed = tmp_path / "installed" / "acme_convertkit" / "target.py"
    changed.write_text(changed.read_text().replace('TargetOption("guard"', f'TargetOption("{name}"'))
    (tmp_path / "installed" / "acme_convertkit" / "converter.py").unlink()
    shutil.copy(Path(__file__).parent / "acme" / "acme_convertkit" / "converter.py", changed.parent)
    if name == "wrong-guard":
        changed.write_text(
            changed.read_text().replace(
                "wrong_target = ", 'HeaderTarget.options += (TargetOption("guard", str, "x"),)\nwrong_target = '
            )
        )
    said = apart(
        "export", source, "--c-header-wrong-guard", "A", "-t", "c-header", "-o", tmp_path / "out", env=environment
    )
    check_refusal(said, 1, says)
    assert apart("export", "--help", env=environment).code == 0
    said = apart("export", source, "-t", "onnxruntime", "-o", tmp_path / "out", env=environment)
    assert said.code == 0, said.err


def test_a_stage_that_lacks_something_is_named_before_it_runs():
    class Half:
        name, version, accepts, produces, tolerance = "half", "1", frozenset({"onnx"}), "half", FLOAT32

    target = SimpleNamespace(name="acme-half", packages="onnxruntime", stages=lambda _: (Half(),), options=())
    context = BuildContext(ExportOptions("model.onnx"), target)
    with pytest.raises(BrokenPlugin, match=r"target acme-half: its stage Half lacks options, run; "):
        steps_of(context, target)


@pytest.mark.parametrize(
    ("file", "line", "fault", "says"),
    [
        ("header.py", 'path = workdir / "model.h"', "1 / 0", "stage c-header of target c-header, ZeroDivisionError: "),
        ("target.py", "chosen = context.target_options", "{}['x']", "the stages of target c-header, KeyError: 'x'"),
        ("converter.py", 'nodes, stored, value = [], [], "x"', "1 / 0", "stage acme-to-onnx, ZeroDivisionError: "),
    ],
)
def test_a_defect_of_a_plugin_names_it_and_the_stage(source, tmp_path, written_for, file, line, fault, says):
    environment = written_for("")
    changed = tmp_path / "installed" / "acme_convertkit" / file
    text = changed.read_text()
    assert line in text
    changed.write_text(text.replace(line, f"{fault}\n        {line}", 1))
    words = ("export", source, "--target", "c-header", "-o", tmp_path / "out")
    said = apart(*words, env=environment)
    assert said.code == 1
    assert f"internal error in {says}" in said.complaint
    assert "it is a defect of acme_convertkit, not of the model" in said.complaint
    assert not (tmp_path / "out").exists()
    (tmp_path / "r.toml").write_text(f'[models.m]\nsource = "{source}"\ntargets = ["c-header", "onnxruntime"]\n')
    said = apart("run", tmp_path / "r.toml", "-o", tmp_path / "release", env=environment)
    assert f"m:c-header:float32: internal error in {says}" in said.complaint
    assert "a defect of acme_convertkit" in said.complaint

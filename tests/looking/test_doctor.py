"""``convertkit doctor`` names what does not go together, and nothing where all does."""

import json
import tomllib
from importlib import resources

import jsonschema
import pytest

import convertkit
from convertkit.summary import schema
from tests.command_line import apart, with_path


def distribution(place, name, version, entry_points="", requires=()):
    """What pip leaves of an installed package, as far as metadata tell."""
    folder = place / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / "entry_points.txt").write_text(entry_points)
    return place


def told(place):
    said = apart("doctor", "--json", env=with_path(place))
    found = json.loads(said.out)
    jsonschema.validate(found, schema(), cls=jsonschema.Draft202012Validator)
    assert found["exit_code"] == said.code
    return said.code, found["doctor"]["problems"]


def test_nothing_is_wrong_here():
    found = convertkit.doctor()
    assert found.passed, found.problems
    assert found.failure is None
    assert found.environment["packages"]["onnx"]
    assert all(each.install.startswith("pip install 'convertkit-ml[") for each in found.extras)


@pytest.mark.parametrize(
    ("name", "version", "words"),
    [
        ("onnxruntime-gpu", "1.27.0", ["onnxruntime and onnxruntime-gpu are both installed", "pip uninstall"]),
        ("torch", "1.13.1", ["needs torch>=2.9, and 1.13.1 is installed", "pip install 'torch>=2.9'"]),
        ("onnxscript", "0.8.0", ["onnxscript", "<0.8", "0.8.0 is installed"]),
        ("protobuf", "3.20.0", ["onnx ", "protobuf>=", "3.20.0 is installed"]),
    ],
)
def test_what_does_not_go_together(tmp_path, name, version, words):
    code, problems = told(distribution(tmp_path, name, version))
    assert code == 1
    assert any(all(word in problem for word in words) for problem in problems), problems


def test_a_plugin_that_cannot_be_imported(tmp_path):
    points = "[convertkit.targets]\nbroken = no_such_package.target:target\n"
    code, problems = told(distribution(tmp_path, "somebodys-plugin", "1.0", points))
    assert code == 1
    assert any("plugin broken" in problem and "no_such_package" in problem for problem in problems), problems


def test_every_extra_has_a_size(root):
    """Written by bench/extras_size.py; a new extra has to be measured."""
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sizes = json.loads(resources.files("convertkit.looking").joinpath("extras.json").read_text())
    assert set(sizes) == set(declared) - {"dev", "all"}
    assert all(each is None or each["megabytes"] > 0 for each in sizes.values())
    assert sizes["torch"]["megabytes"] > 10 * sizes["images"]["megabytes"]


def test_a_missing_extra_is_told_with_its_size(monkeypatch):
    from convertkit.looking import doctor

    real = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "torch" else real(name))
    found = doctor.doctor()
    (torch,) = (each for each in found.extras if each.name == "torch")
    assert not torch.installed
    assert torch.megabytes > 100
    shown = "\n".join(found.lines())
    assert "missing torch" in shown
    assert "convertkit-ml[torch]" in shown
    assert "NVIDIA's own licence" in shown

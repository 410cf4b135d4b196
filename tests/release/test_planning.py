"""What a recipe is told of before it runs: the plan, the same as Python, its schema, and one to begin with."""

import json
import re
import tomllib

import jsonschema
import numpy as np
import pytest

from convertkit.release.cells import cells_of, load
from convertkit.release.planning import plan
from convertkit.release.recipe_schema import recipe_schema
from convertkit.release.run import Running
from convertkit.summary import schema
from tests import onnx_models
from tests.command_line import everything_below, here

RECIPE = """
[defaults]
targets = ["tflite", "onnxruntime"]
gates = { size = "1MB" }
[models.one]
source = "one.onnx"
"""


@pytest.fixture
def recipe(tmp_path):
    onnx_models.write(tmp_path, onnx_models.mlp(1), "one.onnx")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    return tmp_path / "recipe.toml"


def test_a_dry_run_makes_nothing_and_knows_the_cache(recipe, tmp_path):
    before = everything_below(tmp_path)
    running = Running(cache=str(tmp_path / "cache"))
    planned = plan(load(recipe), running)
    assert [each.cached for each in planned.cells] == [False, False]
    assert planned.seconds is None
    assert everything_below(tmp_path) == before
    assert here("run", recipe, "--cache", tmp_path / "cache", "--only", "one:tflite").code == 0
    planned = plan(load(recipe), running)
    assert [each.cached for each in planned.cells] == [True, False]
    assert planned.seconds is None, "nobody knows the other's"
    assert here("run", recipe, "--cache", tmp_path / "cache", "--force").code == 0
    recipe.write_text(RECIPE + "seed = 4\n")
    planned = plan(load(recipe), running)
    assert not any(each.cached for each in planned.cells)
    times = [each.seconds for each in planned.cells]
    assert all(times)
    assert planned.seconds == sum(times) / 2


def test_the_plan_as_json(recipe, tmp_path):
    said = here("run", recipe, "--dry-run", "--json", "--only", "one:tflite")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    jsonschema.validate(found, schema())
    assert [each["name"] for each in found["plan"]["cells"]] == ["one:tflite:float32"]
    assert found["plan"]["output"] == str(tmp_path / "release")
    assert not (tmp_path / "release").exists()
    assert "one:tflite:float32" in here("run", recipe, "--dry-run").out


def test_a_dry_run_refuses_what_a_run_would(recipe):
    recipe.write_text(RECIPE + 'precisions = ["int8"]\n')
    assert here("run", recipe, "--dry-run").code == 2


def test_the_recipe_as_python_makes_the_same(recipe, tmp_path, monkeypatch):
    np.savez(tmp_path / "calib.npz", x=np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32))
    recipe.write_text(RECIPE + 'precisions = ["int8"]\ncalib = "calib.npz"\nstatic = { N = 1 }\n')
    assert here("run", recipe).code == 0
    said = here("run", recipe, "--print-python")
    assert "# one:tflite:int8, gates {'size': '1MB'}" in said.out
    monkeypatch.chdir(tmp_path)
    exec(compile(said.out, "script", "exec"), {})
    for name in ("one/tflite-int8/manifest.json", "one/onnxruntime-int8/manifest.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "release" / name).read_bytes()


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (RECIPE, True),
        ('include = "x.toml"\n[models."a/b"]\nsource = "a"\ngates = { size = 10, max_drop = false }\n', True),
        ('[models.a]\nsource = "a"\ncells."tflite:*" = { skip = true }\n', True),
        ('[models.a]\nsource = "a"\ntarget = { tensorrt = { profile = "N=1,2,3" } }\n', True),
        ('[models.a]\nsource = "a"\nstatic = { N = 1 }\ninput = ["x:1,2"]\nprecisions = "int8"\n', True),
        ('[models.a]\ntargets = ["tflite"]\n', False),
        ('[models.a]\nsource = "a"\nprecisions = ["int9"]\n', False),
        ('[models.a]\nsource = "a"\ngates = { agreement = 3 }\n', False),
        ('[models.a]\nsource = "a"\nsorce = "b"\n', False),
        ('[models.a]\nsource = "a"\nint8 = true\n', False),
    ],
)  # fmt: skip
def test_the_schema_takes_what_a_run_takes(text, fits):
    jsonschema.Draft202012Validator.check_schema(recipe_schema())
    validator = jsonschema.Draft202012Validator(recipe_schema())
    assert validator.is_valid(tomllib.loads(text)) is fits
    assert json.loads(here("run", "--schema").out) == recipe_schema()


def test_a_first_recipe_runs_as_it_is_written(tmp_path, monkeypatch):
    onnx_models.write(tmp_path, onnx_models.mlp(1), 'my "best" net.onnx')
    monkeypatch.chdir(tmp_path)
    said = here("init", 'my "best" net.onnx', "-o", tmp_path / "release.toml", "--json")
    assert said.code == 0, said.err
    jsonschema.validate(json.loads(said.out), schema())
    text = (tmp_path / "release.toml").read_text()
    assert "# input   x: float32 [N, 5]" in text
    assert "genai" not in re.search(r"^targets = .*", text, re.M)[0], "a target of decoders' folders alone"
    assert "# output  y: float32 [N, 3]" in text
    assert '# static = { "N" = 1 }' in text
    assert "my-best-net:onnxruntime:float32" in {cell.name for cell in cells_of(load(tmp_path / "release.toml"))}
    said = here("run", "release.toml", "--dry-run")
    assert said.code == 0, said.err
    assert "my-best-net:tflite:float32" in said.out
    whole = text.replace("# static", "static").replace('# size = "10MB"', 'size = "10MB"')
    (tmp_path / "release.toml").write_text(whole)
    assert here("run", "release.toml", "--only", "my-best-net:onnxruntime").code == 0
    again = here("init", 'my "best" net.onnx', "-o", tmp_path / "release.toml")
    assert again.code == 1
    assert (tmp_path / "release.toml").read_text() == whole


def test_how_the_model_is_opened_stands_in_the_recipe(tmp_path, monkeypatch):
    onnx_models.write(tmp_path, onnx_models.mlp(1), "net.onnx")
    monkeypatch.chdir(tmp_path)
    said = here("init", "net.onnx", "--input", "x:N,5")
    assert said.code == 0, said.err
    assert tomllib.loads(said.out)["models"]["net"]["input"] == ["x:N,5"]
    assert here("init", "nowhere.onnx").code == 1

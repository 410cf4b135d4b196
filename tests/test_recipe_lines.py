"""Recipes, an export's and a release's: each refusal names the file and the line of what is wrong."""

import tomllib

import pytest

from convertkit.errors import RecipeError
from convertkit.options.export_recipe import read_recipe
from convertkit.options.flags import options_from
from convertkit.options.toml_lines import key_lines
from convertkit.release.cells import cells_of, load
from tests.command_line import here

HARD = '''a = 1 # x = 2
"b.c" = "x # [y]"
[t."q r".s-s]
k.l = [ 1.5, "]",
 # e = [
 { z = """multi
line \\""" "" = """ , y = 3 },
 [1,
 2]]
d = 1979-05-27 07:32:00.5+01:00
m = \'\'\'
raw = 1
\'\'\'\'\'
n = """x"""""
[[arr]]
x = "\\u00e4=1"
[[arr]]
[arr.sub]
y = 2
'''


def below(value, keys=()):
    """What leads to each value of tables."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*keys, key)
        yield from below(each, (*keys, key))


@pytest.mark.parametrize("text", [HARD, HARD.replace("\n", "\r\n"), HARD.rstrip()])
def test_every_key_has_its_line(text):
    lines = key_lines(text)
    assert set(lines) == set(below(tomllib.loads(text)))
    several = ("t", "q r", "s-s", "k", "l")
    told = [lines[keys] for keys in (("b.c",), several, (*several, 2, "y"), (*several, 3, 1), ("arr", 1, "sub", "y"))]
    assert told == [2, 4, 7, 9, 19]
    assert [lines["t", "q r", "s-s", name] for name in "dmn"] == [10, 11, 14]


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(name, *lines):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


DECOY = ("# calibb, seed = 'x', tflit, ir-version", 'description = "calibb = 1, seed, tflit"')
"""Words of the faults, where they are none."""
FAULTS = [
    (['calibb = "c.npz"'], 1, 'unknown key "calibb"'),
    (["", "seed = 'x'"], 2, "seed: expected a whole number, found 'x'"),
    (["io-dtype = 'int7'"], 1, "--io-dtype int7: not one of float32"),
    (["images = 'crop:7'"], 1, "--images crop:7"),
    (["input = [", '  "x:1,2",', '  "y",', "]"], 1, "--input y: expected NAME:SHAPE"),
    (["target.onnxruntime.ir-version = 'new'"], 1, "--onnxruntime-ir-version new: expected a whole number"),
    (["[target.onnxruntime]", "", "ir_versio = 8"], 3, "target onnxruntime has no option 'ir-versio'"),
    (["[target.onnxruntim]"], 1, "unknown target 'onnxruntim', did you mean 'onnxruntime'"),
    (["label-file = '${NOWHERE}/l'"], 1, "the environment has no NOWHERE"),
]


@pytest.mark.parametrize(("lines", "at", "says"), [*FAULTS, (["target = [", "'tflite',", "'tflit']"], 3, "'tflit'")])
def test_an_export_s_recipe(written, lines, at, says):
    written("shared/common.toml", *DECOY, *lines)
    path = written("r.toml", 'include = "shared/common.toml"', 'source = "m.onnx"')
    for recipe, told in (
        (path, "shared/common.toml"),
        (path.with_name("shared") / "common.toml", "shared/common.toml"),
    ):
        with pytest.raises(RecipeError) as refusal:
            read_recipe(recipe, {})
        assert str(refusal.value).startswith(f"{told}:{at + 2}: ")
        assert says in str(refusal.value)


RELEASE_FAULTS = [
    *[fault for fault in FAULTS if not fault[0][0].startswith("[")],
    (["[models.b.target.onnxruntime]", "", "ir_versio = 8"], 3, "target onnxruntime has no option 'ir-versio'"),
    (["targets = [", "'tflite',", "'tflit',", "]"], 3, "unknown target 'tflit', did you mean 'tflite'"),
    (["", "precisions = ['int8', 'int9']"], 2, "'int9' is not one, did you mean 'int8'"),
    (["gates = { size = '2MB', agreement = 2 }"], 1, "gate agreement = 2: expected a share from 0 to 1"),
    (["[models.b.cells.'*:*']", "required = 1"], 2, "required = 1: expected true or false"),
    (["[models.b.cells.tflite]"], 1, "write TARGET:PRECISION"),
    (["[models.b.cells.'tflite:*']"], 1, "matches none of its cells"),
    (["full_integer = true"], 1, "full_integer does nothing for any of its cells"),
    (["", "gates = { max_drop = 1 }"], -1, "b:onnxruntime:float32: --max-drop needs --eval"),
    (["license = 3"], 1, "license = 3: expected text"),
]


@pytest.mark.parametrize(("lines", "at", "says"), RELEASE_FAULTS)
def test_a_release_s_recipe(written, lines, at, says):
    written("shared/common.toml", *DECOY[:1], "[models.b]", 'source = "b.onnx"', *lines)
    path = written("r.toml", 'include = ["shared/common.toml"]', "", "[models.a]", 'source = "a.onnx"')
    with pytest.raises(RecipeError) as refusal:
        cells_of(load(path, {}))
    assert str(refusal.value).startswith(f"shared/common.toml:{at + 3}: ")
    assert says in str(refusal.value)


def test_the_line_is_that_of_the_file_that_wins(written):
    written("common.toml", "[defaults]", "seed = 1", "[models.a]", 'source = "a.onnx"', "gates = { size = '1MB' }")
    path = written("r.toml", 'include = "common.toml"', "", "[models.a]", "gates.size = 'big'")
    with pytest.raises(RecipeError, match=r"^r.toml:4: \[models.a\]: gate size = 'big'"):
        load(path, {})


def test_an_export_s_recipe_includes_and_has_variables(written, tmp_path):
    written("shared/common.toml", "int8 = true", 'calib = "c.npz"', "static = { N = 1 }", 'description = "${WHO:-me}"')
    path = written("r.toml", 'include = "shared/common.toml"', 'source = "${MODELS}/m.onnx"', "w8 = true", "seed = 5")
    options = options_from(read_recipe(path, {"MODELS": "trained"}))
    assert (options.source, options.precision) == (str(tmp_path / "trained/m.onnx"), "w8")
    assert (options.calib, options.seed) == (str(tmp_path / "shared/c.npz"), 5)
    assert (options.description, options.static) == ("me", (("N", 1),))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["", "include = 3"], "r.toml:2: include = 3: expected a file or a list of files"),
        (["", 'include = ["none.toml"]'], "r.toml:2: none.toml does not exist"),
        (["", 'include = "r.toml"'], "r.toml:2: r.toml includes r.toml, which includes it"),
        (["", "a = ["], "r.toml:2: Invalid value"),
        (["", "a = 1", "a = 2"], "r.toml:3: Cannot overwrite a value"),
    ],
)
def test_what_is_wrong_with_files(written, lines, says):
    written("r.toml", *lines)
    for words in (("export", "--recipe", "r.toml"), ("run", "r.toml")):
        ended = here(*words)
        assert ended.code == 2
        assert says in ended.complaint

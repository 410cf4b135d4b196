"""Flags, keywords and recipe keys mean the same, and what makes no sense is refused with exit 2."""

import pytest

from convertkit.errors import RecipeError, UsageError
from convertkit.options.export_recipe import read_recipe
from convertkit.options.flags import options_from
from convertkit.options.inputs import parse_input
from convertkit.recipe import ExportOptions, InputSpec, Normalization
from tests.command_line import here
from tests.onnx_models import mlp, write


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("x:1,3,224,224", InputSpec("x", (1, 3, 224, 224))),
        ("x:N,3,224,224:float32", InputSpec("x", ("N", 3, 224, 224), "float32")),
        ("ids:1,64:int64[0,1000)", InputSpec("ids", (1, 64), "int64", (0.0, 1000.0))),
        ("sr::int64", InputSpec("sr", (), "int64")),
        ("sr::int64[16000,16001)", InputSpec("sr", (), "int64", (16000.0, 16001.0))),
        ("serving_x:0:N,3", InputSpec("serving_x:0", ("N", 3))),
    ],
)
def test_inputs_are_read(text, spec):
    assert parse_input(text) == spec


@pytest.mark.parametrize("text", ["x", "x:1,3:float32[a,b)", ":1,2", "x:1;2"])
def test_unreadable_inputs_are_refused(text):
    with pytest.raises(UsageError, match="--input"):
        parse_input(text)


def test_defaults():
    assert options_from({"source": "m.pt"}) == ExportOptions("m.pt")


def test_everything_arrives():
    options = options_from(
        {
            "source": "m.pt",
            "target": ("tflite", "onnxruntime"),
            "int8": True,
            "static": ("N=4",),
            "trust": ["pickle"],
            "timeout": 3.0,
            "input": "x:N,3",
            "normalization": "x:0:127.5/2",
        }
    )
    assert options.targets == ("tflite", "onnxruntime")
    assert (options.precision, options.static, options.timeout_s) == ("int8", (("N", 4),), 3.0)
    assert options.trust == {"pickle"}
    assert options.inputs == (InputSpec("x", ("N", 3)),)
    assert options.normalization == (Normalization("x:0", (127.5,), (2.0,)),)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"int8": True, "fp16": True}, "--int8 and --fp16 exclude each other"),
        ({"max_drop": 0.5}, "--max-drop needs --eval"),
        ({"max_drop": -5, "eval": "test.npz"}, "--max-drop -5: must be 0 or a positive number"),
        ({"max_drop": float("nan"), "eval": "test.npz"}, "--max-drop nan: must be"),
        ({"metric": "top1"}, "--metric needs --eval"),
        ({"full_integer": True}, "--full-integer goes with"),
        ({"io_dtype": "int8"}, "--io-dtype int8 goes with"),
        ({"io_dtype": "int7", "int8": True}, "--io-dtype int7"),
        ({"calib_method": "guess"}, "--calib-method guess"),
        ({"trust": ["everything"]}, "--trust everything"),
        ({"static": ["N=0"]}, "--static N=0"),
        ({"timeout": -1.0}, "--timeout"),
        ({"calib_samples": -5}, "--calib-samples"),
        ({"target": ("a", "a")}, "twice"),
        ({"normalization": "image"}, "--normalization image: expected"),
        ({"normalization": "image:1,2/1"}, "as many means as deviations"),
        ({"normalization": "image:1/0"}, "deviations positive"),
        ({"calibb": 1}, 'Did you mean "calib"'),
    ],
)
def test_contradictions_are_refused(values, says):
    with pytest.raises(UsageError, match=says) as caught:
        options_from({"source": "m.pt", **values})
    assert caught.value.exit_code == 2


def test_a_recipe_is_the_same_as_flags(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'source = "m.pt"\ntarget = ["tflite"]\nint8 = true\ncalib = "c.npz"\ncalib-samples = 7\n[static]\nN = 2\n'
    )
    options = options_from(read_recipe(recipe))
    assert options.source == str(tmp_path / "m.pt")
    assert (options.precision, options.calib_samples, options.static) == ("int8", 7, (("N", 2),))


def test_an_unknown_recipe_key_names_its_line_and_the_closest(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('source = "m.pt"\n\ncalibb = "x"\n')
    with pytest.raises(RecipeError, match=r'r.toml:3: unknown key "calibb". Did you mean "calib"'):
        read_recipe(recipe)


@pytest.mark.parametrize("text", ["a = [", "\xff"])
def test_broken_recipes_are_refused(tmp_path, text):
    recipe = tmp_path / "r.toml"
    recipe.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecipeError):
        read_recipe(recipe)


def test_without_a_number_a_minute_is_meant(tmp_path) -> None:
    for given, minutes in ((True, 1.0), (0.5, 0.5), (False, None)):
        assert options_from({"source": "m.onnx", "prune": "0.5", "calib": "c.npz", "recover": given}).recover == minutes
    path = write(tmp_path, mlp())
    for flags, code in (("--recover --prune 0.5", 2), ("--recover 2 --prune 0.5", 2), ("--prune 0.5", 0)):
        told = here("export", path, *flags.split(), "-o", tmp_path / "out", "--force")
        assert told.code == code
        assert ("--recover trains on --calib" in told.err) == bool(code)

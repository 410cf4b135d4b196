"""Recipes of releases: what is read, from where, and what is refused with which words."""

import pytest

from convertkit.errors import RecipeError, UsageError
from convertkit.release.cells import cells_of, chosen, load
from tests.command_line import here

PLAIN = '[models.a]\nsource = "a.onnx"\n'


@pytest.fixture
def written(tmp_path):
    def write(text, name="recipe.toml"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def names(path, **variables):
    return [cell.name for cell in cells_of(load(path, variables))]


def test_every_combination_is_a_cell(written):
    path = written('[defaults]\ntargets = ["tflite", "ort"]\nprecisions = ["float32", "fp16"]\n' + PLAIN)
    assert names(path) == [
        "a:tflite:float32", "a:tflite:fp16", "a:onnxruntime:float32", "a:onnxruntime:fp16",
    ]  # fmt: skip


def test_a_model_without_more_is_one_cell(written):
    assert names(written(PLAIN)) == ["a:onnxruntime:float32"]


def test_paths_are_relative_to_the_file_that_names_them(written, tmp_path):
    written('[defaults]\ncalib = "calib.npz"\n', "shared/common.toml")
    path = written('include = "shared/common.toml"\n' + PLAIN)
    (cell,) = cells_of(load(path))
    assert cell.options.source == str(tmp_path / "a.onnx")
    assert cell.options.calib == str(tmp_path / "shared" / "calib.npz")


def test_the_recipe_wins_over_what_it_includes(written):
    written("[defaults]\nseed = 3\nstatic = { N = 1, M = 2 }\n", "common.toml")
    path = written('include = ["common.toml"]\n[defaults]\nstatic = { N = 4 }\n' + PLAIN)
    (cell,) = cells_of(load(path))
    assert (cell.options.seed, dict(cell.options.static)) == (3, {"N": 4, "M": 2})


def test_variables_come_from_the_environment(written, tmp_path):
    path = written(
        '[models.a]\nsource = "${WHERE}/a.onnx"\ndescription = "$$5 for ${WHO:-nobody}"\ntargets = "tflite"\n'
    )
    (cell,) = cells_of(load(path, {"WHERE": "models"}))
    assert cell.options.source == str(tmp_path / "models" / "a.onnx")
    assert cell.options.description == "$5 for nobody"


def test_the_nearer_table_wins(written):
    path = written(
        '[defaults]\nprecisions = ["int8", "w8"]\ncalib = "c.npz"\nseed = 1\n[defaults.cells."*:w8"]\nseed = 2\n'
        + PLAIN + 'gates = { size = "2MB" }\n[models.a.cells."onnxruntime:int8"]\nseed = 3\nrequired = false\n'
        'gates = { size = "1MB", snr_db = 20 }\n'
    )  # fmt: skip
    one, two = cells_of(load(path))
    assert (one.options.seed, one.required, one.gates) == (3, False, {"size": "1MB", "snr_db": 20})
    assert (two.options.seed, two.required, two.gates) == (2, True, {"size": "2MB"})


def test_a_gate_may_be_taken_away(written):
    path = written(
        '[defaults]\ntargets = ["tflite", "tensorrt"]\nprecisions = "w8"\ngates = { latency_ratio = 2, size = "1MB" }\n'
        + PLAIN + '[models.a.cells."tensorrt:*"]\ngates = { latency_ratio = false }\n'
    )  # fmt: skip
    assert [set(cell.gates) for cell in cells_of(load(path))] == [{"latency_ratio", "size"}, {"size"}]


def test_a_cell_may_be_skipped(written):
    path = written(
        '[defaults]\nprecisions = ["float32", "fp16"]\n' + PLAIN + '[models.a.cells."*:fp16"]\nskip = true\n'
    )
    assert names(path) == ["a:onnxruntime:float32"]


def test_what_is_said_for_many_goes_where_it_means_something(written):
    path = written(
        '[defaults]\nprecisions = ["float32", "int8"]\ncalib = "c.npz"\nfull_integer = true\n'
        "gates = { agreement = 0.9, transposes = 1 }\n" + PLAIN
    )
    plain, integer = cells_of(load(path))
    assert (plain.options.full_integer, integer.options.full_integer) == (False, True)
    assert (set(plain.gates), set(integer.gates)) == ({"transposes"}, {"agreement", "transposes"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no model"),
        ("[model.a]\n", ':1: unknown key "model", did you mean \'models\''),
        ('[models.a]\nsorce = "a.onnx"\n', ":2: unknown key \"sorce\" in [models.a], did you mean 'source'"),
        ('[models.a]\ntargets = "tflite"\n', "[models.a] names no source"),
        (PLAIN + 'target = "tflite"\n', 'target = \'tflite\': write targets = ["tflite"]'),
        (PLAIN + "int8 = true\n", ':3: "int8" in [models.a] is a precision: precisions = ["int8"]'),
        (PLAIN + "max_drop = 1\n", "is a gate: gates = { max_drop = 0.5 }"),
        (PLAIN + "jobs = 1\n", "said with a flag of convertkit run"),
        (PLAIN + 'precisions = ["int9"]\n', "'int9' is not one, did you mean 'int8'"),
        (PLAIN + 'precisions = ["int8", "int8"]\n', "names one twice"),
        (PLAIN + "gates = { maxdrop = 1 }\n", "unknown key \"maxdrop\" in [models.a.gates], did you mean 'max_drop'"),
        (PLAIN + "gates = { agreement = 2 }\n", "gate agreement = 2: expected a share from 0 to 1"),
        (PLAIN + "gates = { latency_estimate = 0.5 }\n", "0.5: expected a table of devices such as { phone = 0.5 }"),
        (PLAIN + 'gates = { size = "big" }\n', "gate size = 'big': expected a size such as 2MB"),
        (PLAIN + "gates = { max_drop = 1 }\n", "a:onnxruntime:float32: --max-drop needs --eval"),
        (PLAIN + "gates = { snr_db = 9 }\n", "[models.a] snr_db does nothing for any of its cells"),
        (PLAIN + "full_integer = true\n", "[models.a] full_integer does nothing for any of its cells"),
        (PLAIN + '[models.a.cells."tflite"]\n', "write TARGET:PRECISION"),
        (PLAIN + '[models.a.cells."tflite:*"]\nseed = 1\n', 'cells."tflite:*" matches none of its cells'),
        (PLAIN + "required = 1\n", "required = 1: expected true or false"),
        (PLAIN + "[release]\ngolden = -1\n", "[release] golden = -1"),
        ('[models."../a"]\nsource = "a.onnx"\n', 'does not name a model'),
        ('[models.a]\nsource = "${NOWHERE}/a.onnx"\n', ":2: the environment has no NOWHERE"),
        ('include = "recipe.toml"\n' + PLAIN, "which includes it"),
        ("[models\n", "recipe.toml:1: Expected"),
    ],
)  # fmt: skip
def test_refusals(written, text, said):
    with pytest.raises(UsageError) as refusal:
        names(written(text))
    assert said in str(refusal.value)


def test_each_command_says_which_one_a_recipe_is_for(written):
    one = written('source = "a.onnx"\n', "one.toml")
    with pytest.raises(
        RecipeError, match=r"one.toml:1: this is the recipe of one export(.|\n)*convertkit export --recipe"
    ):
        load(one)
    said = here("export", "--recipe", written(PLAIN))
    assert said.code == 2
    assert "recipe.toml:1: this is the recipe of a release" in said.complaint
    assert "convertkit run" in said.complaint


def test_only_names_cells_by_their_parts(written):
    path = written(
        '[defaults]\ntargets = ["tflite", "tensorrt"]\n[models."v/a"]\nsource = "a"\n[models.b]\nsource = "b"\n'
    )
    cells = cells_of(load(path))

    def named(*only):
        return [cell.name for cell in chosen(cells, only)]

    assert named("v/*:tflite") == ["v/a:tflite:float32"]
    assert named("*:tensorrt") == ["v/a:tensorrt:float32", "b:tensorrt:float32"]
    assert named("b", "v/a:*:float32") == [cell.name for cell in cells]
    with pytest.raises(UsageError, match="--only c names none of the cells: v/a:tflite:float32"):
        named("c")

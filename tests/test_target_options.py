"""Options that targets bring: flags, recipe and Python mean the same, wrong ones are refused, the cache knows them."""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

import convertkit
from convertkit.cli import cli
from convertkit.errors import RecipeError, UsageError
from convertkit.options.export_recipe import read_recipe
from convertkit.options.flags import merged, options_from
from convertkit.recipe import ExportOptions
from convertkit.stage import BuildContext
from convertkit.target_options import TargetOption, chosen, for_passes, texts, values, words
from tests import onnx_models
from tests.command_line import check_refusal, everything_below, here


@dataclass(frozen=True)
class Pair:
    left: int
    right: int

    def __str__(self):
        return f"{self.left}:{self.right}"


def pair(text):
    left, colon, right = text.partition(":")
    if not colon:
        raise ValueError("expected LEFT:RIGHT")
    return Pair(int(left), int(right))


class Gadget:
    """A target with an option of every kind."""

    name = "gadget"
    options = (
        TargetOption("min-sdk", int, "Oldest API level", default=24),
        TargetOption("scale", float, "Factor"),
        TargetOption("title", str, "Title", quantizes=True),
        TargetOption("fast", bool, "Take less time"),
        TargetOption("notice", Path, "A text"),
        TargetOption("range", pair, "A range", repeatable=True),
        TargetOption("level", lambda text: {"low": 1}[text], "How much is kept.", metavar="LEVEL"),
        TargetOption("abi", str, "Processor", choices=("arm64", "x86"), repeatable=True, default=("arm64",)),
    )


def given(**found):
    return ExportOptions("m.onnx", targets=("gadget",), target_options={"gadget": found})


def test_what_is_given_becomes_values(tmp_path):
    (tmp_path / "notice.txt").write_text("hello")
    options = given(min_sdk="26", scale="1e-3", title="a b", fast=True, notice=str(tmp_path / "notice.txt"))
    assert chosen(Gadget, options) == {
        "min-sdk": 26,
        "scale": 0.001,
        "title": "a b",
        "fast": True,
        "notice": tmp_path / "notice.txt",
    }
    several = given(range=["1:2", Pair(3, 4)], abi="x86")
    assert chosen(Gadget, several) == {"range": (Pair(1, 2), Pair(3, 4)), "abi": ("x86",)}
    assert texts(Gadget, several)["range"] == ["1:2", "3:4"]


def test_what_is_not_given_has_its_default():
    usual = {
        "min-sdk": 24,
        "scale": None,
        "title": None,
        "fast": False,
        "notice": None,
        "range": (),
        "level": None,
        "abi": ("arm64",),
    }
    assert values(Gadget, ExportOptions("m.onnx")) == usual
    assert values(Gadget, given(**{"min-sdk": 24, "abi": "arm64"})) == usual
    assert BuildContext(given(scale=2), Gadget()).target_options == {**usual, "scale": 2.0}
    assert chosen(Gadget, given(**{"min-sdk": 24})) == {}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"min-sdk": "x"}, "--gadget-min-sdk x: expected a whole number"),
        ({"min-sdk": 1.5}, "--gadget-min-sdk 1.5: expected a whole number"),
        ({"min-sdk": True}, "--gadget-min-sdk True: expected a whole number"),
        ({"scale": "nan"}, "--gadget-scale nan: expected a finite number"),
        ({"scale": [1, 2]}, r"--gadget-scale \[1, 2\]: expected a number"),
        ({"title": 3}, "--gadget-title 3: expected text"),
        ({"title": ""}, "--gadget-title : expected text"),
        ({"fast": "yes"}, "--gadget-fast yes: expected true or false"),
        ({"notice": "nowhere.txt"}, "--gadget-notice nowhere.txt: there is no such file or folder"),
        (
            {"notice": "~no-such-user/a.txt"},
            "--gadget-notice ~no-such-user/a.txt: not a value of this option, which is PATH",
        ),
        ({"range": "1"}, "--gadget-range 1: expected LEFT:RIGHT"),
        ({"range": ["1:2", "01:2"]}, "--gadget-range 1:2 is given twice"),
        ({"range": "1:x"}, r"--gadget-range 1:x: not a value of this option, which is VALUE \(A range\)$"),
        ({"level": "x"}, r"--gadget-level x: not a value of this option, which is LEVEL \(How much is kept\)$"),
        ({"range": {"1": 2}}, "--gadget-range {'1': 2}: expected one value as text"),
        ({"abi": ["arm64", "mips"]}, "--gadget-abi mips: not one of arm64, x86"),
        ({"min-sdc": 1}, "target gadget has no option 'min-sdc'. Did you mean 'min-sdk'?"),
        ({"zzz": 1}, "target gadget has no option 'zzz'; it has: min-sdk, scale, title"),
    ],
)
def test_what_is_no_value_is_refused(found, says):
    with pytest.raises(UsageError, match=says):
        chosen(Gadget, given(**found))


@pytest.mark.parametrize(
    "option",
    [
        TargetOption("Upper", int, ""),
        TargetOption("two words", int, ""),
        TargetOption("on", bool, "", default=True),
        TargetOption("on", bool, "", repeatable=True),
        TargetOption("several", int, "", default=3, repeatable=True),
    ],
)
def test_a_faulty_declaration_is_told(option):
    assert option.fault
    assert not any(each.fault for each in Gadget.options)


def test_passes_get_what_the_profile_reads_and_nothing_else():
    kept = for_passes(Gadget, given(title="t", scale=2.0)).target_options
    assert kept == {"gadget": {"title": "t"}}
    unchanged = given(title="t")
    assert for_passes(Gadget, unchanged) is unchanged


def test_the_flags_of_a_command_give_the_same_options():
    options = given(scale=-0.5, fast=True, range=["1:2", "3:4"])
    assert words(Gadget, options) == [
        "--gadget-scale=-0.5",
        "--gadget-fast",
        *("--gadget-range", "1:2"),
        *("--gadget-range", "3:4"),
    ]


def test_a_recipe_names_targets_by_their_tables(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text(
        'int8 = true\n[target.trt]\nprofile = ["N=1,2,3"]\n[target.tflite]\n[target.onnxruntime]\nir_version = 8\n'
    )
    read = read_recipe(recipe)
    assert read["target"] == ("tensorrt", "tflite", "onnxruntime")
    assert read["target_options"] == {"tensorrt": {"profile": ["N=1,2,3"]}, "onnxruntime": {"ir_version": 8}}
    options = options_from({"source": "m.onnx", **merged(read, {"target": ("onnxruntime",)})})
    assert options.target_options == {"onnxruntime": {"ir_version": 8}}, "tables of others go with their targets"
    more = {"target_options": {"tensorrt": {"profile": ("N=4,5,6",)}}}
    assert merged(read, more)["target_options"]["tensorrt"] == {"profile": ("N=4,5,6",)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "int8 = true\n[target.tensorrt]\nprofil = 'N=1,2,3'\n",
            r"r.toml:3: target tensorrt has no option 'profil'. Did",
        ),
        ("[target.onnxruntime]\n\nir-version = 'new'\n", "r.toml:3: --onnxruntime-ir-version new: expected a whole"),
        ("[target.tensort]\n", "r.toml:1: unknown target 'tensort', did you mean 'tensorrt'"),
        ("[target]\ntensorrt = 3\n", "target.tensorrt: expected a table of the target's options, found 3"),
        ("target = 'tflite'\n[target.tflite]\n", "so that target = … is left out beside it"),
        ("[target_options.tflite]\nx = 1\n", 'r.toml:1: unknown key "target_options"'),
    ],
)
def test_recipes_that_make_no_sense_are_refused(tmp_path, text, says):
    (tmp_path / "r.toml").write_text(text)
    with pytest.raises(RecipeError, match=says):
        read_recipe(tmp_path / "r.toml")


def test_a_table_within_a_target_s_is_of_what_that_one_packages(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text("[target.triton]\nmax-batch = 4\n[target.triton.ort]\nir-version = 9\n")
    read = read_recipe(recipe)
    assert read["target"] == ("triton",)
    assert read["target_options"] == {"triton": {"max-batch": 4}, "onnxruntime": {"ir-version": 9}}
    kept = merged(read, {"target": ("kserve",)})["target_options"]
    assert kept == read["target_options"], "kserve packages triton's, which packages onnxruntime's"
    assert merged(read, {"target": ("tflite",)})["target_options"] == {}
    for text, says in {
        "[target.triton.ort]\nir-version = 'x'\n": "r.toml:2: --onnxruntime-ir-version x: expected a whole number",
        "[target.triton.zzz]\nx = 1\n": "r.toml:1: unknown target 'zzz'",
        "[target.ort]\nir-version = 8\n[target.triton.ort]\nir-version = 9\n": "r.toml:3: .* in another table, too",
    }.items():
        recipe.write_text(text)
        with pytest.raises(RecipeError, match=says):
            read_recipe(recipe)


@pytest.fixture
def network(tmp_path):
    return onnx_models.write(tmp_path, onnx_models.mlp(), "mlp.onnx")


def test_flags_recipe_and_python_are_the_same(tmp_path, network):
    flags = ["--onnxruntime-ir-version", "9", "--tensorrt-profile", "N=1,8,32"]
    assert here("export", network, "-t", "onnxruntime,tensorrt", *flags, "-o", tmp_path / "flags").code == 0
    (tmp_path / "r.toml").write_text('[target.onnxruntime]\nir-version = 9\n[target.tensorrt]\nprofile = "N=1,8,32"\n')
    assert here("export", network, "--recipe", tmp_path / "r.toml", "-o", tmp_path / "recipe").code == 0
    both = {"onnxruntime": {"ir_version": 9}, "tensorrt": {"profile": "N=1,8,32"}}
    python = ExportOptions(
        str(network), targets=("onnxruntime", "tensorrt"), output=str(tmp_path / "python"), target_options=both
    )
    convertkit.export_all(python)
    names = {"model.onnx", "report.json", "report.html", "manifest.json"}
    package = {"README.md", "build_engine.py", "check_gpu.py", "capability.json", "constraints.json", "trtexec.txt"}
    golden = {"golden", "golden/edges.npz", "golden/inputs.json", "golden/outputs.json"}
    assert everything_below(tmp_path / "flags" / "tensorrt") == names | package | golden
    for name in ("onnxruntime/model.onnx", "tensorrt/trtexec.txt", "tensorrt/manifest.json"):
        assert len({(tmp_path / way / name).read_bytes() for way in ("flags", "recipe", "python")}) == 1


def test_the_report_s_command_gives_the_same_again(tmp_path, network):
    kept = convertkit.export(
        network, "tensorrt", target_options={"trt": {"profile": ["N=1,8,32"]}}, output=tmp_path / "a"
    )
    assert kept.report["target_options"] == {"profile": ["N=1,8,32"], "allow": [], "release": "10", "rtx-sm": None}
    line = shlex.split(kept.report["command"])
    assert line[-2:] == ["--tensorrt-profile", "N=1,8,32"]
    assert kept.report["command"] in (tmp_path / "a" / "report.html").read_text()
    assert here("export", network, *line[3:], "-o", tmp_path / "b").code == 0
    manifest, again = ((tmp_path / name / "manifest.json").read_text() for name in "ab")
    assert manifest == again
    assert json.loads(manifest)["target_options"] == {
        "profile": ["N=1,8,32"],
        "allow": [],
        "release": "10",
        "rtx-sm": None,
    }


@pytest.mark.parametrize(
    ("target", "found", "model"),
    [
        ("triton", {"onnxruntime": {"ir-version": 9}}, "repository/*/1/model.onnx"),
        ("ort-mobile", {"onnxruntime": {"ir-version": 9}}, "model.ort"),
        ("kserve", {"onnxruntime": {"ir-version": 9}, "triton": {"max-batch": 4}}, "**/config.pbtxt"),
    ],
)
def test_options_of_what_is_packaged_are_taken(tmp_path, network, target, found, model):
    rows = onnx_models.np.random.default_rng(3).standard_normal((40, 5)).astype("float32")
    onnx_models.np.savez(tmp_path / "calib.npz", x=rows)
    shared = {"int8": True, "calib": tmp_path / "calib.npz", "cache": str(tmp_path / "cache")}
    convertkit.export(network, target, output=tmp_path / "usual", **shared)
    kept = convertkit.export(network, target, output=tmp_path / "given", target_options=found, **shared)
    usual, given = (next((tmp_path / name).glob(model)).read_bytes() for name in ("usual", "given"))
    assert usual != given
    assert not kept.report["steps"][-1]["cached"]
    for name, options in found.items():
        assert options.items() <= kept.report["packaged_options"][name].items()
    line = shlex.split(kept.report["command"])
    at = line.index("--calib") + 1
    line[at] = str(tmp_path / line[at])
    assert here("export", network, *line[3:], "-o", tmp_path / "again").code == 0
    manifests = [(tmp_path / name / "manifest.json").read_text() for name in ("given", "again")]
    assert manifests[0] == manifests[1]


def test_a_changed_option_makes_only_its_targets_own_steps_anew(tmp_path, network):
    rows = onnx_models.np.random.default_rng(3).standard_normal((40, 5)).astype("float32")
    onnx_models.np.savez(tmp_path / "calib.npz", x=rows)

    def cached(name, profile):
        flags = [
            "-t",
            "tensorrt,onnxruntime",
            "--int8",
            "--calib",
            tmp_path / "calib.npz",
            "--cache",
            tmp_path / "cache",
        ]
        said = here("export", network, *flags, "--tensorrt-profile", profile, "-o", tmp_path / name)
        assert said.code == 0, said.err
        reports = ((tmp_path / name / target / "report.json").read_text() for target in ("tensorrt", "onnxruntime"))
        return [{step["stage"]: step["cached"] for step in json.loads(text)["steps"]} for text in reports]

    cached("a", "N=1,8,32")
    tensorrt, onnxruntime = cached("b", "N=1,8,64")
    assert tensorrt == {"canonical-onnx": True, "quantize": True, "tensorrt": False}
    assert all(onnxruntime.values())
    assert "x:64x5" in (tmp_path / "b" / "tensorrt" / "trtexec.txt").read_text()
    assert all(cached("c", "N=1,8,64")[0].values())
    assert (tmp_path / "c" / "tensorrt" / "trtexec.txt").is_file(), "what lies beside the model is kept with it"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["-t", "tflite", "--tensorrt-profile", "N=1,2,3"],
            "--tensorrt-profile does nothing for tflite; it is for --targ",
        ),
        (["-t", "ort-mobile", "--tensorrt-allow", "Det"], "--tensorrt-allow does nothing for ort-mobile; it"),
        (
            ["-t", "triton-tensorrt", "--triton-tensorrt-backend", "onnxruntime", "--tensorrt-profile", "N=1,2,3"],
            "--tensorrt-profile does nothing for triton-tensorrt, which has the model alone",
        ),
        (["-t", "openvino", "--openvino-cpu", "vnni"], "--openvino-cpu vnni is about int8 weights; it go"),
        (["-t", "tensorrt", "--tensorrt-profil", "N=1,2,3"], "one of: '--tensorrt-allow', '--tensorrt-profile'"),
        (["-t", "tensorrt", "--minShapes", "x:1"], "There is no --minShapes; here it is --tensorrt-profile"),
    ],
)
def test_flags_that_cannot_be_are_refused_before_any_work(tmp_path, network, words, says):
    check_refusal(here("export", network, *words, "-o", tmp_path / "out"), 2, says)
    assert everything_below(tmp_path) == {network.name}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ({"tensort": {"profile": "N=1,2,3"}}, "unknown target 'tensort', did you mean 'tensorrt'"),
        ({"tensorrt": {"profil": "N=1,2,3"}}, "no option 'profil'. Did you mean 'profile'?"),
        ({"tensorrt": "profile"}, 'target_options: expected {"TARGET": {"OPTION": VALUE}}'),
        ({"onnxruntime": {"ir_version": 8}}, "--onnxruntime-ir-version does nothing for tensorrt"),
    ],
)
def test_keywords_that_cannot_be_are_refused(tmp_path, network, found, says):
    with pytest.raises(UsageError, match=says):
        convertkit.export(network, "tensorrt", target_options=found, output=tmp_path / "out")
    with pytest.raises(UsageError, match=says):
        convertkit.export_all(ExportOptions(str(network), ("tensorrt",), str(tmp_path / "out"), target_options=found))


def test_help_and_listing_tell_them():
    said = here("export", "--help").out
    assert "--onnxruntime-ir-version N" in said[said.index("\nTarget onnxruntime:") : said.index("\nTarget tensorrt:")]
    assert said.index("\nTarget tensorrt:") < said.index("\nExamples:")
    targets = {each["name"]: each for each in json.loads(here("targets", "--json").out)["targets"]}
    listed, *_ = targets["tensorrt"]["options"]
    assert (listed["flag"], listed["value"], listed["repeatable"]) == ("--tensorrt-profile", "NAME=MIN,OPT,MAX", True)
    assert targets["tflite"]["options"] == []


def test_they_are_completed():
    complete = ShellComplete(cli, {}, "convertkit", "_CONVERTKIT_COMPLETE")
    found = {each.value for each in complete.get_completions(["export", "m.onnx"], "--tens")}
    assert found == {"--tensorrt-profile", "--tensorrt-allow", "--tensorrt-release", "--tensorrt-rtx-sm"}
    sizes = complete.get_completions(["export", "m.onnx", "--onnxruntime-ir-version"], "1")
    assert {each.value for each in sizes} == {"10", "11", "12", "13"}

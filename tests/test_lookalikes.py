"""What users give in the place of a model, a target, a flag or a command gets the sentence that helps."""

import gzip
import pickle
import tarfile
import zipfile

import onnxruntime
import pytest

from convertkit.options.export_recipe import read_recipe
from convertkit.options.flags import options_from
from tests import onnx_models
from tests.command_line import check_refusal, here


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx_models.write(tmp_path, onnx_models.mlp(), "model.onnx")
    return tmp_path


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("https://example.org/models/resnet.onnx", ["is an address", "download it first"]),
        ("s3://bucket/model.pt", ["is an address"]),
        ("hf://bert-base-uncased", ["is an address"]),
        ("google/vit-base-patch16-224", ["on a hub", "--model pkg.mod:factory"]),
        ("bert-base-uncased", ["on a hub", "--model pkg.mod:factory"]),
        ("modle.onnx", ["does not exist, did you mean 'model.onnx'"]),
        ("missing/model.onnx", ["does not exist"]),
    ],
)
def test_what_is_not_on_this_disk(place, source, words):
    check_refusal(here("export", source), 1, *words)


def test_a_folder_of_several_artifacts(place):
    """The model to look at is one of them; a release is checked as a whole."""
    assert here("export", "model.onnx", "-t", "onnxruntime", "-t", "tflite", "-o", "out").code == 0
    words = ("out is what an export for several targets delivered", "try   its artifact out/tflite/model.tflite")
    check_refusal(here("inspect", "out"), 1, *words)
    words = ("out/tflite is what an export delivered, not a model", "try   its artifact out/tflite/model.tflite")
    check_refusal(here("export", "out/tflite"), 1, *words)
    (place / "site").mkdir()
    (place / "site" / "manifest.json").write_text('{"name": "an app", "artifact": {"path": "app.js"}}')
    check_refusal(here("export", "site"), 1, "this folder is not a model")
    models, targets = '[models."a/b"]\nsource = "model.onnx"', 'targets = ["onnxruntime"]'
    (place / "release.toml").write_text(f"{models}\n[defaults]\n{targets}\n")
    assert here("run", "release.toml", "-o", "made").code == 0
    words = (
        "made is a release, not a model; it holds one artifact",
        "artifact made/a/b/onnxruntime-float32/model.onnx",
        "convertkit verify made",
    )
    check_refusal(here("inspect", "made"), 1, *words)
    assert here("inspect", "made/a/b/onnxruntime-float32").code == 0


@pytest.mark.parametrize("name", ["model2.onnx", "model.pt", "model.safetensors", "model.tflite", "model.keras"])
def test_what_a_download_left_in_the_place_of_a_model(place, name):
    (place / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123\n")
    check_refusal(here("export", name), 1, "is a Git LFS pointer", "git lfs pull")
    (place / name).write_text("\n\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>")
    check_refusal(here("export", name), 1, "is a page of HTML", "try   the address of the download")


@pytest.mark.parametrize("command", [("export",), ("inspect",)])
def test_a_file_of_onnx_runtimes_own_format(place, command):
    session = onnxruntime.SessionOptions()
    session.optimized_model_filepath = "model.ort"
    session.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession("model.onnx", session, providers=["CPUExecutionProvider"])
    check_refusal(here(*command, "model.ort"), 1, "is a .ort file", "does not read it", "try   the .onnx")


@pytest.mark.parametrize("inner", ["model.onnx", "deep/net.tflite", "net/saved_model.pb", "notes.txt"])
def test_an_archive_around_a_model(place, inner):
    with zipfile.ZipFile("packed.zip", "w") as archive:
        archive.writestr(inner, (place / "model.onnx").read_bytes())
    found = "in which no file has the name of a model" if inner == "notes.txt" else f"with {inner} in it"
    if inner.endswith("saved_model.pb"):
        found = "with net/saved_model.pb, net/ in it"
    check_refusal(here("export", "packed.zip"), 1, f"is a zip archive {found}", "unzip packed.zip")
    for mode in ("w", "w:gz"):
        with tarfile.open("packed.tar", mode) as archive:
            archive.add("model.onnx", inner)
        check_refusal(here("export", "packed.tar"), 1, "is a tar archive", "tar xf packed.tar")


def test_a_compressed_model(place):
    (place / "model.onnx.gz").write_bytes(gzip.compress((place / "model.onnx").read_bytes()))
    check_refusal(here("export", "model.onnx.gz"), 1, "is compressed", "gunzip model.onnx.gz")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("tflite,onnxruntime", ("tflite", "onnxruntime")),
        ("litert", ("tflite",)),
        ("TFLite", ("tflite",)),
        ("ort", ("onnxruntime",)),
        ("onnx", ("onnxruntime",)),
        ("TensorRT", ("tensorrt",)),
        (("trt", "ONNX_Runtime"), ("tensorrt", "onnxruntime")),
    ],
)
def test_targets_as_they_are_called_elsewhere(given, meant):
    assert options_from({"source": "m.onnx", "target": given}).targets == meant


def test_a_target_twice_under_two_names(place):
    check_refusal(here("export", "model.onnx", "-t", "tflite,litert"), 2, "--target tflite is given twice")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["convert", "model.onnx"], "did you mean 'convertkit export'"),
        (["model.onnx"], "did you mean 'convertkit export model.onnx …'"),
        (["export", "model.onnx", "--quantize", "int8"], "here it is --int8"),
        (["export", "model.onnx", "--precision=fp16"], "here it is --int8"),
        (["export", "model.onnx", "--input-shape", "1,5"], "here it is --input NAME"),
        (["export", "model.onnx", "--overwrite"], "here it is --force"),
        (["export", "model.onnx", "--calibration-data", "x"], "here it is --calib"),
    ],
)
def test_words_of_other_tools(place, words, says):
    check_refusal(here(*words), 2, says)


def test_help_is_a_command_too():
    assert here("help").out == here("--help").out
    assert here("-V").out == here("--version").out


def test_home_is_found_where_no_shell_has_looked(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place))
    options = options_from({"source": "~/model.onnx", "calib": "~/x.npy", "output": "~/out", "label_file": "~/l"})
    paths = (options.source, options.calib, options.output, options.label_file)
    assert paths == tuple(str(place / name) for name in ("model.onnx", "x.npy", "out", "l"))
    (place / "deep").mkdir()
    (place / "deep" / "recipe.toml").write_text('source = "~/model.onnx"\n')
    assert here("export", "--recipe", "~/deep/recipe.toml").code == 0
    assert read_recipe(place / "deep" / "recipe.toml") == {"source": str(place / "model.onnx")}


OTHERS = [
    (
        "model.json",
        '{\n "format": "graph-model",\n "modelTopology": {"node": []}}',
        "a TensorFlow.js model",
        "the SavedModel",
    ),
    (
        "model.json",
        '{"format": "layers-model", "modelTopology": {}}',
        "a TensorFlow.js model",
        "tensorflowjs_converter",
    ),
    ("model.json", '{"learner": {"attributes": {}}, "version": [2, 0, 0]}', "a model of XGBoost", "convert_xgboost"),
    ("model.txt", "tree\nversion=v4\nnum_class=1\n", "a model of LightGBM", "convert_lightgbm"),
    (
        "model.xml",
        '<?xml version="1.0"?>\n<net name="x" version="11"></net>',
        "a model of OpenVINO",
        "it was made from",
    ),
    ("model.param", "7767517\n2 2\nInput in 0 1 x\n", "a model of ncnn", "it was made from"),
    ("yolo.cfg", "# a detector\n[net]\nbatch=1\n", "a model of Darknet", "the .onnx"),
    ("net.prototxt", 'name: "x"\nlayer {\n  name: "conv"\n}\n', "a model of Caffe", "the .onnx"),
    ("model.mlmodel", "\x08\x04", "a model of Core ML", "it was made from"),
]


@pytest.mark.parametrize(("name", "text", "what", "way"), OTHERS)
def test_a_model_of_another_format(place, name, text, what, way):
    (place / name).write_text(text)
    check_refusal(here("export", name), 1, f"{name} is {what}, which convertkit does not read", "try   ", way)


def test_a_model_that_was_fitted(place):
    """Its pickle is not PyTorch's, whose ways out lead nowhere."""
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier().fit([[0], [1]], [0, 1])
    (place / "model.pkl").write_bytes(pickle.dumps(tree))
    words = ("is a pickle of scikit-learn, which convertkit does not read", "skl2onnx.to_onnx(model, x[:1])")
    check_refusal(here("export", "model.pkl"), 1, *words)

"""Keras files: what is recognised, what is refused before anything loads, what Keras 2 meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from keras_files import export, functional, layer, parity

from convertkit.converters.keras import archive, converter, legacy
from convertkit.errors import SourceError, Unsupported, Untrusted
from tests.installed import needs

RULES = legacy.Rules(
    layer=lambda name: name in {"Dense", "GRU", "LSTM", "DepthwiseConv2D", "InputLayer", "Activation", "Add"},
    accepts=lambda layer, option: option in {"name", "units", "activation", "kernel_size", "dtype", "strides"},
    operation=lambda name: "keras.src.ops.numpy" if name == "Add" else "",
    custom=lambda name: name == "Mine",
    function=lambda name: name == "concat",
    keras2=True,
)


X = layer("x", "InputLayer", [], batch_input_shape=[None, 4], dtype="float32", sparse=False, ragged=False)


def made(entry: dict) -> dict:
    return legacy.translated(functional(X, entry, last=entry["name"]), RULES)["config"]["layers"][1]


def test_depthwise_groups_of_one_go_and_others_are_refused():
    assert "groups" not in made(layer("d", "DepthwiseConv2D", [[["x", 0, 0, {}]]], groups=1))["config"]
    with pytest.raises(Unsupported, match="groups=3"):
        made(layer("d", "DepthwiseConv2D", [[["x", 0, 0, {}]]], groups=3))


def test_what_only_training_needs_goes():
    old = {"class_name": "VarianceScaling", "config": {"dtype": "float32", "scale": 1.0}}
    config = made(layer("d", "Dense", [[["x", 0, 0, {}]]], units=3, kernel_initializer=old, bias_constraint=None))
    assert set(config["config"]) == {"name", "units"}


def test_hard_sigmoid_is_the_one_of_keras_2():
    config = made(layer("a", "Activation", [[["x", 0, 0, {}]]], activation="hard_sigmoid"))
    assert config["config"]["activation"] == legacy.HARD_SIGMOID


def test_an_old_gru_resets_before_the_product():
    assert made(layer("g", "GRU", [[["x", 0, 0, {}]]], units=3))["config"]["reset_after"] is False


def test_recorded_operators_keep_their_arguments():
    entry = {"class_name": "TFOpLambda", "name": "tf.concat", "config": {"name": "tf.concat", "function": "concat"},
             "inbound_nodes": [[["x", 0, 0, {"axis": -1}], ["x", 0, 0, {"axis": -1}]]]}  # fmt: skip
    config = made(entry)
    assert config["class_name"] == legacy.OPERATION
    assert config["config"]["values"] == [{"tensor": 0}, {"tensor": 1}]
    assert config["config"]["options"] == {"axis": -1}


def test_initial_states_become_a_keyword():
    node = made(layer("l", "LSTM", [[["x", 0, 0, {}], ["x", 0, 0, {}], ["x", 0, 0, {}]]], units=3))["inbound_nodes"][0]
    assert len(node["args"]) == 1
    assert len(node["kwargs"]["initial_state"]) == 2


def test_unknown_layers_are_named():
    with pytest.raises(Unsupported, match="CuDNNLSTM"):
        made(layer("c", "CuDNNLSTM", [[["x", 0, 0, {}]]]))


def keras_file(path: Path, config: object) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", json.dumps(config))
        file.writestr("metadata.json", json.dumps({"keras_version": "3.15.1"}))
        file.writestr("model.weights.h5", b"")
    return path


def test_sniffing_goes_by_content(tmp_path: Path):
    assert converter.sniff(str(keras_file(tmp_path / "a.bin", {}))) == "keras"
    (tmp_path / "b").write_bytes(b"\x89HDF\r\n\x1a\n....")
    assert converter.sniff(str(tmp_path / "b")) == "keras-h5"
    (tmp_path / "c.keras").write_bytes(b"PK\x03\x04 no zip")
    assert converter.sniff(str(tmp_path / "c.keras")) is None


def test_lambda_code_is_refused_before_anything_loads(tmp_path: Path):
    code = {"class_name": "__lambda__", "config": {"code": "4wEAAA=="}}
    config = {"class_name": "Sequential", "config": {"layers": [{"class_name": "Lambda", "config": {
        "name": "evil", "function": code}}]}}  # fmt: skip
    described = archive.describe(keras_file(tmp_path / "m.keras", config))
    with pytest.raises(Untrusted, match="--trust lambda"):
        archive.refuse_code(tmp_path, described.config, trusted=False)
    assert archive.refuse_code(tmp_path, described.config, trusted=True)


def test_lookups_are_refused_by_name():
    config = {"layers": [{"module": "keras.layers", "class_name": "IntegerLookup", "config": {"name": "ids"}}]}
    with pytest.raises(Unsupported, match=r"ids \(IntegerLookup\): a lookup table"):
        archive.refuse_tables(config)
    archive.refuse_tables({"layers": [{"module": "mine", "class_name": "Hashing", "config": {}}]})


def test_random_initialisers_are_not_drawn():
    """What the file's weights replace costs nothing; constants stay, because a layer may compute with them."""
    config = {
        "kernel": {"module": "keras.initializers", "class_name": "HeNormal", "config": {"seed": 3}},
        "bias": {"module": "keras.initializers", "class_name": "Constant", "config": {"value": 2.0}},
    }
    made = archive.without_random_weights([config])[0]
    assert made["kernel"]["class_name"] == "Zeros"
    assert made["bias"] == config["bias"]


def test_custom_classes_need_their_module(tmp_path: Path):
    config = {"module": "mine", "class_name": "Layer", "config": {}, "registered_name": "mine>Layer"}
    with pytest.raises(Untrusted, match="--model mine:Layer"):
        archive.refuse_unknown(tmp_path, config, lambda name: False)
    archive.refuse_unknown(tmp_path, config, lambda name: name == "Layer")


@pytest.mark.parametrize("cut", [0.2, 0.6, 0.95])
def test_truncated_archives_are_one_sentence(tmp_path: Path, cut: float):
    whole = keras_file(tmp_path / "m.keras", {"class_name": "Sequential"}).read_bytes()
    (tmp_path / "cut.keras").write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(SourceError):
        archive.describe(tmp_path / "cut.keras")


def test_weights_alone_say_what_to_do(tmp_path: Path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["dense/kernel"] = np.ones(3)
    with pytest.raises(SourceError, match=r"--model pkg\.mod:factory"):
        archive.describe(tmp_path / "w.h5")


def test_links_out_of_the_file_are_refused(tmp_path: Path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["weights"] = h5py.ExternalLink("/etc/passwd", "/x")
        file.attrs["model_config"] = "{}"
    with pytest.raises(SourceError, match="another file"):
        archive.describe(tmp_path / "w.h5")


@pytest.mark.case
def test_a_keras_2_file_converts_without_tensorflow(cases: Path, tmp_path: Path):
    """TensorFlow is made unimportable for the worker and for us."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('this road needs no TensorFlow')")
    source = cases / "mlperf-ic" / "pretrainedResnet.h5"
    command = [sys.executable, "-m", "convertkit", "export", str(source), "--target", "onnxruntime", "-o"]
    done = subprocess.run(
        [*command, str(tmp_path / "out")], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "model.onnx").exists()


@pytest.mark.case
@pytest.mark.parametrize("target", ["onnxruntime", "tflite"])
def test_the_image_classifier_becomes_float(cases: Path, tmp_path: Path, target: str):
    done = export(tmp_path, str(cases / "mlperf-ic" / "pretrainedResnet.h5"), "--target", target)
    assert done.returncode == 0, done.stderr
    assert parity(tmp_path) <= 1e-5


@pytest.mark.case
def test_the_image_classifier_becomes_int8(cases: Path, tmp_path: Path):
    images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3)).astype(np.float32)
    np.savez(tmp_path / "calib.npz", input_1=images)
    source = str(cases / "mlperf-ic" / "pretrainedResnet.h5")
    done = export(tmp_path, source, "--target", "tflite", "--int8", "--calib", "calib.npz")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["passed"]


KERAS = """
import keras
def factory():
    x = keras.Input((4,), name="x")
    return keras.Model(x, keras.layers.Dense(3)(x))
"""

WRITE = """
import keras
import user_model
keras.utils.set_random_seed(3)
model = user_model.factory()
model.save_weights("only.weights.h5")
x = keras.Input((4,), name="x")
keras.Model(x, keras.layers.Lambda(lambda v: v * 2.0 + 1.0)(model(x))).save("code.keras")
"""


def test_weights_alone_and_trusted_code_end_to_end(tmp_path: Path):
    needs("keras")
    pytest.importorskip("jax")
    (tmp_path / "user_model.py").write_text(KERAS)
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-c", WRITE], cwd=tmp_path, env=environment, check=True, capture_output=True)
    refused = export(tmp_path, "only.weights.h5")
    assert refused.returncode != 0
    assert "--model" in refused.stderr
    done = export(tmp_path, "only.weights.h5", "--model", "user_model:factory")
    assert done.returncode == 0, done.stderr
    assert parity(tmp_path) <= 1e-5
    refused = export(tmp_path, "code.keras")
    assert refused.returncode != 0
    assert "--trust lambda" in refused.stderr
    done = export(tmp_path, "code.keras", "--trust", "lambda")
    assert done.returncode == 0, done.stderr
    assert parity(tmp_path) <= 1e-5


@pytest.mark.nightly
@pytest.mark.case
def test_the_keras_extra_alone_is_enough(cases: Path, root: Path, tmp_path: Path):
    """A fresh environment with ``convertkit-ml[keras]`` has no TensorFlow and converts the file."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    constraints = ["-c", str(root / "constraints.txt")] if (root / "constraints.txt").exists() else []
    subprocess.run([python, "-m", "pip", "install", "-q", *constraints, f"{root}[keras]"], check=True, timeout=1800)
    missing = subprocess.run([python, "-c", "import tensorflow"], capture_output=True, check=False)
    assert missing.returncode != 0
    source = cases / "mlperf-ic" / "pretrainedResnet.h5"
    command = [python, "-m", "convertkit", "export", str(source), "--target", "onnxruntime", "-o"]
    subprocess.run([*command, str(tmp_path / "out")], check=True, timeout=600)

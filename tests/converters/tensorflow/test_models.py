"""Whole models through TensorFlow: the grid, the real cases, broken files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.converters.tensorflow import converter
from convertkit.errors import Unsupported, UsageError
from convertkit.onnx.runner import OnnxRunner
from convertkit.progress import Silent
from convertkit.recipe import ExportOptions, InputSpec
from tests.installed import needs

sys.path.insert(0, str(Path(__file__).parent))


@pytest.mark.case
def test_keyword_spotting_keeps_its_accuracy(cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """TensorFlow 2's loader rejects this file; TensorFlow 1's reads it."""
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)  # Keras of another test may have imported it
    folder = cases / "mlperf-kws" / "saved_model"
    data = np.load(cases / "mlperf-kws" / "kws01.npz")
    features = ((data["mfcc_int8"].astype(np.float32) - 83) * 0.5847029).reshape(-1, 49, 10, 1)
    with converter.open(str(folder), ExportOptions(str(folder), timeout_s=300), tmp_path, Silent()) as source:
        assert source.artifact.inputs[0].shape == ("batch", 49, 10, 1)
        assert "tensorflow" not in sys.modules
        made = source.stage().run(source.artifact, tmp_path)
        with source.runner() as reference, OnnxRunner(made) as runner:
            scores = runner.run({"input_1": features})["dense"]
            expected = reference.run({"input_1": features})["dense"]
    assert abs((scores.argmax(-1) == data["label"]).mean() * 100 - 91.3) <= 0.1
    assert np.abs(scores - expected).max() / np.abs(expected).max() <= 1e-5


@pytest.mark.case
def test_keyword_spotting_becomes_tflite_of_the_same_accuracy(cases: Path, tmp_path: Path):
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    folder = cases / "mlperf-kws" / "saved_model"
    data = np.load(cases / "mlperf-kws" / "kws01.npz")
    features = ((data["mfcc_int8"].astype(np.float32) - 83) * 0.5847029).reshape(-1, 1, 49, 10, 1)
    made = convertkit.export(folder, target="tflite", output=tmp_path / "out")
    interpreter = litert.Interpreter(str(made.path / "model.tflite"), num_threads=1)
    interpreter.allocate_tensors()
    into, out = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
    scores = []
    for each in features:
        interpreter.set_tensor(into, each)
        interpreter.invoke()
        scores.append(interpreter.get_tensor(out)[0].copy())
    options = ExportOptions(str(folder), timeout_s=300)
    with converter.open(str(folder), options, tmp_path, Silent()) as source, source.runner() as reference:
        expected = reference.run({"input_1": features[:, 0]})["dense"]
    got = np.stack(scores)
    assert (got.argmax(-1) == data["label"]).mean() == 0.913
    assert np.abs(got - expected).max() / np.abs(expected).max() <= 1e-5


LGAMMA = """
import sys
import tensorflow as tf
class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
    def __call__(self, x):
        return {"y": tf.math.lgamma(x + 1.5)}
model = Model()
tf.saved_model.save(model, sys.argv[1], signatures=model.__call__)
"""


def test_what_tf2onnx_lacks_takes_the_second_route(tmp_path: Path):
    needs("tf2onnx")
    subprocess.run([sys.executable, "-c", LGAMMA, str(tmp_path / "model")], check=True, capture_output=True)
    made = convertkit.export(tmp_path / "model", output=tmp_path / "out")
    report = json.loads((made.path / "report.json").read_text())
    assert report["passed"]
    assert report["steps"][0]["options"]["route"] == "StableHLO"
    assert made.artifact.inputs[0].shape == (1, 4)
    assert [note for note in made.notes if note.startswith("the batch is fixed at 1, --static batch=SIZE fixes anoth")]


BRIDGE = """
import sys
import tensorflow as tf
low, high = tf.constant(-2.0), tf.constant(2.0)
ways = {
    "saturation": ((None, 4, 5, 3), lambda x: tf.image.adjust_saturation(tf.nn.sigmoid(x), 0.4)),
    "scan": ((2, 4, 6), lambda x: tf.scan(lambda a, r: 0.5 * a + r, tf.transpose(x, [1, 0, 2]))),
    "rounded": ((None, 6), lambda x: (tf.quantization.fake_quant_with_min_max_args(x, -2, 2)
                                      + tf.quantization.fake_quant_with_min_max_vars(x * 0.7, low, high))),
    "mapped": ((2, 4, 6), lambda x: tf.map_fn(lambda r: tf.reduce_max(r, 0) - r, x)),
    "printed": ((None, 6), lambda x: (tf.print("x is", x), x * 2)[1]),
}
for name, (shape, way) in ways.items():
    model = tf.Module()
    model.call = tf.function(lambda x: {"y": way(x)}, input_signature=[tf.TensorSpec(shape, name="x")])
    tf.saved_model.save(model, f"{sys.argv[1]}/{name}", signatures=model.call)
"""


CANCELLED = """
import sys
import tensorflow as tf
class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 500], tf.float32)])
    def __call__(self, x):
        kernel = tf.reshape(tf.sin(tf.range(3000.0) * 1.7), [500, 6])
        power = tf.square(tf.matmul(x + 1e3, kernel) - tf.matmul(x + 999.0, kernel))
        return {"y": tf.math.log(power + 1e-7)}
model = Model()
tf.saved_model.save(model, sys.argv[1], signatures=model.__call__.get_concrete_function())
"""


def test_a_model_that_amplifies_roundings_is_judged_by_its_float64_twin(tmp_path: Path):
    """No route gives the numbers of TensorFlow, whose own are as far from what the model computes."""
    needs("tf2onnx")
    subprocess.run([sys.executable, "-c", CANCELLED, str(tmp_path / "saved")], check=True, capture_output=True)
    made = convertkit.export(tmp_path / "saved", output=tmp_path / "out")
    assert made.passed
    assert any("on which the model's float64 twin decides" in note for note in made.notes)


def test_functions_that_tf2onnx_takes_for_others(tmp_path: Path):
    """Colours keep their batch, lists of tensors are refused, ranges are as in TensorFlow, prints go."""
    needs("tf2onnx")
    subprocess.run([sys.executable, "-c", BRIDGE, str(tmp_path)], check=True, capture_output=True)
    made = convertkit.export(tmp_path / "saturation", output=tmp_path / "out")
    assert made.artifact.inputs[0].shape == ("batch", 4, 5, 3)
    assert not any("fixed at 1" in note for note in made.notes)
    with pytest.raises(Unsupported) as refused:
        convertkit.export(tmp_path / "scan", output=tmp_path / "out-scan")
    said = r"scan/while \(StatelessWhile\): it hands on a list of tensors, which StableHLO does not have$"
    assert re.search(said, str(refused.value).splitlines()[0])
    for name, shape in {"rounded": ("batch", 6), "printed": ("batch", 6), "mapped": (2, 4, 6)}.items():
        made = convertkit.export(tmp_path / name, target="tflite", output=tmp_path / f"out-{name}")
        assert made.passed
        assert made.artifact.inputs[0].shape == shape


UNSTEADY = """
import sys
import tensorflow as tf
spec = tf.TensorSpec([None, 4], tf.float32, "x")
class Counting(tf.Module):
    def __init__(self):
        self.count = tf.Variable(0.0)
    @tf.function(input_signature=[spec])
    def __call__(self, x):
        return {"y": x + self.count.assign_add(1.0)}
class Drawing(tf.Module):
    @tf.function(input_signature=[spec])
    def __call__(self, x):
        return {"y": x + tf.random.normal([4])}
class Seeded(tf.Module):
    @tf.function(input_signature=[spec])
    def __call__(self, x):
        return {"y": x + tf.random.stateless_normal([4], [1, 2])}
for kind in (Counting, Drawing, Seeded):
    model = kind()
    tf.saved_model.save(model, f"{sys.argv[1]}/{kind.__name__}", signatures=model.__call__)
"""


def test_models_that_change_from_call_to_call_are_refused_with_what_does(tmp_path: Path):
    needs("tf2onnx")
    subprocess.run([sys.executable, "-c", UNSTEADY, str(tmp_path)], check=True, capture_output=True)
    says = {"Counting": "AssignAddVariableOp. changes a variable, so", "Drawing": "RandomStandardNormal. draws random"}
    for kind, words in says.items():
        with pytest.raises(Unsupported, match=words):
            convertkit.export(tmp_path / kind, output=tmp_path / "out")
        assert not (tmp_path / "out").exists()
    assert convertkit.export(tmp_path / "Seeded", output=tmp_path / "out").report["passed"]


ENDS = """
import sys
import tensorflow as tf
rows = [("zeta", 3), ("alpha", 5), ("mid", 7)]
class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, size], tf.float32, name=name) for name, size in rows])
    def __call__(self, zeta, alpha, mid):
        area = tf.reduce_sum(tf.math.lgamma(mid + 4.5), 1)
        return {"wide": tf.concat([zeta, alpha], 1), "area": area, "zeta": tf.transpose(zeta), "beta": alpha * 2}
model = Model()
tf.saved_model.save(model, sys.argv[1] + "/module", signatures=model.__call__)
import keras
keras.utils.set_random_seed(0)
class Lgamma(keras.layers.Layer):
    def call(self, x):
        return tf.math.lgamma(x + 1.5)
x = keras.Input((4,), batch_size=2, name="x")
zeta, alpha = keras.layers.Dense(7, name="zeta")(Lgamma()(x)), keras.layers.Dense(3, name="alpha")(x)
keras.Model(x, {"zeta": zeta, "alpha": alpha}).export(sys.argv[1] + "/keys", verbose=False)
keras.Model(x, [zeta, alpha]).export(sys.argv[1] + "/list", verbose=False)
"""
"""Inputs and outputs that stand in other orders in the function, by the alphabet and in the bridge's module."""
_ENDS = {
    "module": ({"alpha": (2, 5), "mid": (2, 7), "zeta": (2, 3)},
               {"area": (2,), "beta": (2, 5), "wide": (2, 8), "zeta_out": (3, 2)}),
    "keys": ({"x": (2, 4)}, {"alpha": (2, 3), "zeta": (2, 7)}),
    "list": ({"x": (2, 4)}, {"output_0": (2, 7), "output_1": (2, 3)}),
}  # fmt: skip


def test_the_second_route_keeps_each_name_with_its_tensor(tmp_path: Path):
    needs("tf2onnx")
    subprocess.run([sys.executable, "-c", ENDS, str(tmp_path)], check=True, capture_output=True)
    for kind, (inputs, outputs) in _ENDS.items():
        given = tuple(InputSpec(name, shape=shape) for name, shape in inputs.items() if kind != "module")
        static = (("batch", 2),) if kind == "module" else ()
        options = ExportOptions(str(tmp_path / kind), inputs=given, static=static, timeout_s=300)
        workdir = tmp_path / f"{kind}-onnx"
        workdir.mkdir()
        with converter.open(str(tmp_path / kind), options, workdir, Silent()) as source, source.runner() as reference:
            stage = source.stage()
            made = stage.run(source.artifact, workdir)
            assert stage.options["route"] == "StableHLO", source.notes
            rng = np.random.default_rng(3)
            feed = {name: rng.random(shape, np.float32) for name, shape in inputs.items()}
            expected = reference.run(feed)
        assert {spec.name: spec.shape for spec in made.inputs} == inputs
        assert {spec.name: spec.shape for spec in made.outputs} == outputs
        assert [spec.name for spec in made.outputs] == list(outputs)
        with OnnxRunner(made) as runner:
            got = runner.run(feed)
        for name, value in expected.items():
            assert np.abs(got[name] - value).max() <= 1e-5 * np.abs(value).max(), f"{kind}: {name}"


FROZEN = """
import sys
import tensorflow as tf
graph = tf.Graph()
with graph.as_default():
    tf.compat.v1.disable_control_flow_v2()
    x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
    turns, total = tf.compat.v1.while_loop(
        lambda i, v: i < 4, lambda i, v: (i + 1, v * 0.5 + tf.math.erfc(v)), [tf.constant(0), x])
    tf.identity(total, name="result")
open(sys.argv[1], "wb").write(graph.as_graph_def().SerializeToString())
"""


@pytest.mark.nightly
def test_a_frozen_graph_with_a_while_loop(tmp_path: Path):
    needs("tf2onnx")
    path = tmp_path / "frozen.pb"
    subprocess.run([sys.executable, "-c", FROZEN, str(path)], check=True, capture_output=True)
    command = [sys.executable, "-m", "convertkit", "export", str(path), "--target", "onnxruntime", "-o"]
    done = subprocess.run([*command, str(tmp_path / "out")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["passed"]


UNKNOWN_RANK = """
import sys
import tensorflow as tf
v1 = tf.compat.v1
def classifier(images):
    kernel = tf.reshape(tf.sin(7.3 * tf.range(135.0)), [3, 3, 3, 5])
    return tf.reduce_mean(tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "SAME")), [1, 2], name="scores")
for kind in ("images", "file"):
    with tf.Graph().as_default() as graph:
        if kind == "images":
            classifier(v1.placeholder(tf.float32, name="images"))
        else:
            pixels = tf.io.decode_image(v1.placeholder(tf.string, [], name="file"))
            classifier(tf.identity(tf.cast(pixels, tf.float32, name="pixels"), name="picture")[None])
    open(f"{sys.argv[1]}/{kind}.pb", "wb").write(graph.as_graph_def().SerializeToString())
class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def __call__(self, images):
        return {"scores": classifier(images)}
model = Model()
tf.saved_model.save(model, sys.argv[1] + "/saved", signatures=model.__call__.get_concrete_function())
"""


@pytest.mark.nightly
def test_an_input_of_unknown_rank_is_given_its_shape(tmp_path: Path):
    """What the refusal suggests works: for a placeholder without shape, and to begin behind what reads a file."""
    needs("tf2onnx")
    subprocess.run([sys.executable, "-c", UNKNOWN_RANK, str(tmp_path)], check=True, capture_output=True)
    refusals = {}
    for name in ("images.pb", "file.pb", "saved"):
        with pytest.raises(UsageError) as refused:
            convertkit.export(tmp_path / name, output=tmp_path / "out")
        refusals[name] = str(refused.value)
    assert "the rank of input 'images' is unknown\n  try   --input images:N,224,224,3" in refusals["images.pb"]
    assert "input 'file' holds text" in refusals["file.pb"]
    assert "--input pixels:N,224,224,3: the model begins at that node" in refusals["file.pb"]
    assert "--input images:SHAPE" in refusals["saved"]
    for name, said, shape in (
        ("images.pb", "images:N,8,9,3", ("batch", 8, 9, 3)),
        ("file.pb", "picture:8,9,3", (8, 9, 3)),
        ("saved", "images:N,8,9,3", ("batch", 8, 9, 3)),
    ):
        made = convertkit.export(tmp_path / name, input=said, output=tmp_path / f"{name}-out")
        assert [spec.shape for spec in made.artifact.inputs] == [shape]
        assert made.artifact.outputs[0].name == "scores"
        assert made.passed


SOUND = """
import sys
import tensorflow as tf
v1 = tf.compat.v1
with tf.Graph().as_default() as graph:
    sound = tf.audio.decode_wav(v1.placeholder(tf.string, [], name="file"), 1, 800, name="samples")
    power = tf.raw_ops.AudioSpectrogram(input=sound.audio, window_size=160, stride=80, magnitude_squared=True)
    cepstrum = tf.raw_ops.Mfcc(spectrogram=power, sample_rate=sound.sample_rate, dct_coefficient_count=5, name="mfcc")
    tf.reduce_max(cepstrum, [1, 2], name="scores")
open(sys.argv[1], "wb").write(graph.as_graph_def().SerializeToString())
"""


def test_a_graph_begins_behind_everything_that_reads_its_file(tmp_path: Path):
    """The samples alone are not enough: the cepstrum also reads the file's sample rate."""
    needs("tf2onnx")
    path = tmp_path / "sound.pb"
    subprocess.run([sys.executable, "-c", SOUND, str(path)], check=True, capture_output=True)
    way = "try   --input mfcc:1,9,5: the model begins at that node"
    for given, says in (
        ((), "input 'file' holds text, not numbers"),
        ("samples:800,1", "node 'samples' also reads input 'file', for which --input gives nothing"),
    ):
        with pytest.raises(UsageError) as refused:
            convertkit.export(path, input=given, output=tmp_path / "out")
        assert says in str(refused.value)
        assert way in str(refused.value)
    assert convertkit.export(path, input="mfcc:1,9,5", output=tmp_path / "out").passed


@pytest.mark.nightly
@pytest.mark.parametrize(
    "model",
    ["functional_cnn", "attention_gelu", "recurrent", "while_if", "several_inputs", "string_table", "bytes_input",
     "custom_layer"],
)  # fmt: skip
def test_the_grid(tmp_path: Path, model: str):
    """Every cell converts; only string signatures are refused."""
    needs("tf2onnx")
    import tensorflow_grid

    tensorflow_grid.make(tmp_path, model)
    for suffix in tensorflow_grid.FORMATS:
        outcome = tensorflow_grid.convert(tmp_path, model, suffix)
        if model == "string_table":
            assert outcome.absent or "string" in outcome.refused
        elif model == "while_if" and suffix in (".keras", ".h5"):
            assert outcome.absent
        else:
            assert outcome.exit_code == 0, (suffix, outcome.text)
            assert not outcome.absent, suffix

"""Whole ``.h5`` files as Keras 2 wrote them, from the command line to ONNX."""

from __future__ import annotations

import base64
import marshal
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from keras_files import export, functional, layer, parity, part, recorded, write, x

from tests.installed import needs

needs("keras")
pytest.importorskip("jax")
pytest.importorskip("h5py")

RNG = np.random.default_rng(5)
OLD = {"class_name": "VarianceScaling", "config": {"scale": 1.0, "mode": "fan_avg", "distribution": "uniform"}}


def recorded_operators() -> dict:
    """A depthwise convolution with Keras 2's options, then what Keras 2 recorded for expressions of ``tf``."""
    return functional(
        x(5, 4, 3),
        layer("block/dw", "DepthwiseConv2D", [[["x", 0, 0, {}]]], kernel_size=[1, 1], strides=[1, 1], groups=1,
              padding="valid", data_format="channels_last", dilation_rate=[1, 1], activation="linear", use_bias=True,
              depth_multiplier=1, depthwise_initializer=OLD, bias_initializer={"class_name": "Zeros", "config": {}}),
        recorded("twice", "math.multiply", [["block/dw", 0, 0, {"y": 2.0, "name": None}]]),
        recorded("more", "__operators__.add", [["twice", 0, 0, {"y": ["block/dw", 0, 0], "name": None}]]),
        recorded("sum", "math.add", [["more", 0, 0, {"y": 0.5}]]),
        recorded("relu6", "nn.relu6", [["sum", 0, 0, {}]]),
        recorded("item", "__operators__.getitem",
                 [["relu6", 0, 0, {"slice_spec": [part(), part(1, -1), part(None, None, 2)]}]], "SlicingOpLambda"),
        recorded("flat", "reshape", [["item", 0, 0, {"shape": [-1, 18]}]]),
        recorded("wide", "expand_dims", [["flat", 0, 0, {"axis": 1}]]),
        recorded("minus", "math.subtract", [["_CONSTANT_VALUE", -1, 1.0, {"y": ["wide", 0, 0], "name": None}]]),
        recorded("both", "concat", [[["wide", 0, 0, {"axis": 1}], ["minus", 0, 0, {"axis": 1}]]]),
        last="both",
    )  # fmt: skip


def test_recorded_operators_become_onnx(tmp_path: Path):
    kernel, bias = RNG.standard_normal((1, 1, 3, 1)), RNG.standard_normal(3)
    weights = {"block/dw": {"depthwise_kernel": kernel.astype("f"), "bias": bias.astype("f")}}
    write(tmp_path / "ops.h5", recorded_operators(), weights)
    done = export(tmp_path, "ops.h5", "--target", "onnxruntime")
    assert done.returncode == 0, done.stderr
    assert parity(tmp_path) <= 1e-5
    feed = RNG.standard_normal((2, 5, 4, 3))
    session = ort.InferenceSession(tmp_path / "out" / "model.onnx")
    got = session.run(None, {"x": feed.astype("f")})[0]
    clipped = np.clip(3 * (feed * kernel[0, 0, :, 0] + bias) + 0.5, 0, 6)
    wide = clipped[:, 1:-1, ::2].reshape(-1, 1, 18)
    np.testing.assert_allclose(got, np.concatenate([wide, 1 - wide], 1), atol=1e-5)


def test_a_model_as_a_layer_gives_the_next_layer_its_tensor(tmp_path: Path):
    """As fine-tuned models are written: a pretrained network, then a head; Keras 3 hands on a list of one tensor."""
    whole = functional(x(5, 4, 3), layer("positive", "ReLU", [[["x", 0, 0, {}]]]), last="positive")
    base = {**whole, "name": "m", "config": {**whole["config"], "name": "m"}}
    head = layer("mean", "GlobalAveragePooling2D", [], data_format="channels_last", keepdims=False)
    write(tmp_path / "tuned.h5", {"class_name": "Sequential", "config": {"layers": [x(5, 4, 3), base, head]}}, {})
    done = export(tmp_path, "tuned.h5", "--target", "onnxruntime")
    assert done.returncode == 0, done.stderr
    feed = RNG.standard_normal((2, 5, 4, 3)).astype("f")
    session = ort.InferenceSession(tmp_path / "out" / "model.onnx")
    np.testing.assert_allclose(session.run(None, {"x": feed})[0], np.maximum(feed, 0).mean((1, 2)), atol=1e-6)


def test_an_unknown_recorded_operator_is_named(tmp_path: Path):
    config = functional(x(4), recorded("bessel", "math.bessel_i0", [["x", 0, 0, {}]]), last="bessel")
    write(tmp_path / "unknown.h5", config, {})
    done = export(tmp_path, "unknown.h5")
    assert done.returncode == 1
    assert "bessel (TFOpLambda math.bessel_i0): no counterpart" in done.stderr


def lambda_layer(made: object, /, **others: object) -> dict:
    code = base64.encodebytes(marshal.dumps(made.__code__)).decode()
    options = {"function": [code, None, None], "function_type": "lambda", "module": "__main__", "output_shape": None,
               "output_shape_type": "raw", "output_shape_module": None, "arguments": {}}  # fmt: skip
    return layer("mine", "Lambda", [[["x", 0, 0, {}]]], **{**options, **others})


def test_stored_code_that_calls_tensorflow_goes_through_it(tmp_path: Path):
    needs("tensorflow")
    needs("tf2onnx")
    code = lambda_layer(lambda t: tf.nn.relu6(t * 9.0) + 1.0)  # noqa: F821
    write(tmp_path / "code.h5", functional(x(3, 4), code, last="mine"), {})
    refused = export(tmp_path, "code.h5")
    assert refused.returncode == 1
    assert "--trust lambda" in refused.stderr
    done = export(tmp_path, "code.h5", "--trust", "lambda", "--target", "onnxruntime")
    assert done.returncode == 0, done.stderr
    assert "not taken: Keras on JAX" in done.stderr + done.stdout
    feed = RNG.standard_normal((2, 3, 4)).astype("f")
    session = ort.InferenceSession(tmp_path / "out" / "model.onnx")
    got = session.run(None, {"x": feed})[0]
    np.testing.assert_allclose(got, np.clip(feed * 9, 0, 6) + 1, atol=1e-5)


def test_code_that_the_file_does_not_hold_is_refused(tmp_path: Path):
    named = lambda_layer(lambda t: t, function="scaled", function_type="function")
    write(tmp_path / "named.h5", functional(x(4), named, last="mine"), {})
    done = export(tmp_path, "named.h5", "--trust", "lambda")
    assert done.returncode == 1
    assert "mine (Lambda): its function is not stored in the file" in done.stderr

"""Inputs with a default, inputs that are sizes, and outputs whose rank the graph does not say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import convertkit
from convertkit.errors import ToolError
from tests.installed import needs

MODELS = """
import sys
import tensorflow as tf
folder, v1 = sys.argv[1], tf.compat.v1

def frozen(name, build):
    with tf.Graph().as_default() as graph:
        build()
    open(f"{folder}/{name}.pb", "wb").write(graph.as_graph_def().SerializeToString())

def with_flag():
    x = v1.placeholder(tf.float32, [None, 4], "x")
    rate = v1.placeholder_with_default(tf.reduce_sum(tf.constant([1.0, 0.5])), [], "rate")
    tf.multiply(x, rate, "y")

def only_defaults():
    tf.multiply(v1.placeholder_with_default(tf.zeros([1, 4]), [None, 4], "x"), 3.0, "y")

frozen("flag", with_flag)
frozen("defaults", only_defaults)

def saved(name, way, *specs):
    model = tf.Module()
    model.call = tf.function(lambda *x: {"y": way(*x)}, input_signature=specs)
    tf.saved_model.save(model, f"{folder}/{name}", signatures=model.call)

saved("rank", lambda x, axis: tf.exp(tf.expand_dims(x, axis)),
      tf.TensorSpec([None, 4], name="x"), tf.TensorSpec([], tf.int32, name="axis"))
saved("sizes", lambda x, sizes: tf.reshape(x, sizes) * 2.0,
      tf.TensorSpec([2, 6], name="x"), tf.TensorSpec([2], tf.int32, name="sizes"))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needs("tf2onnx")
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, "-c", MODELS, str(folder)], check=True, capture_output=True)
    return folder


def test_a_default_that_nothing_else_is_given_for_is_baked_in(models: Path, tmp_path: Path):
    made = convertkit.export(models / "flag.pb", output=tmp_path / "out")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(made.run({"x": x})["y"], x * 1.5)


def test_an_input_with_a_default_is_an_input(models: Path, tmp_path: Path):
    named = [convertkit.InputSpec("x"), convertkit.InputSpec("rate")]
    made = convertkit.export(models / "flag.pb", input=named, output=tmp_path / "named")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(made.run({"x": x, "rate": np.float32(3)})["y"], x * 3)
    made = convertkit.export(models / "defaults.pb", output=tmp_path / "only")
    np.testing.assert_array_equal(made.run({"x": x})["y"], x * 3)


def test_the_rank_of_an_output_is_found_by_running(models: Path, tmp_path: Path):
    made = convertkit.export(models / "rank", output=tmp_path / "out")
    assert len(made.artifact.outputs[0].shape) == 3
    x = np.arange(8, dtype=np.float32).reshape(2, 4) / 8
    np.testing.assert_allclose(made.run({"x": x, "axis": np.int32(0)})["y"], np.exp(x)[None], rtol=1e-6)


def test_an_input_that_is_sizes_needs_samples(models: Path, tmp_path: Path):
    """Sizes of a reshape that nobody can make up."""
    with pytest.raises(ToolError, match="the source fails on generated inputs: on input 1 of 6: TensorFlow fails"):
        convertkit.export(models / "sizes", output=tmp_path / "out")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2, 6)).astype(np.float32)
    sizes = np.array([[3, 4], [4, 3], [12, 1]], np.int32)
    made = convertkit.export(models / "sizes", calib={"x": x, "sizes": sizes}, output=tmp_path / "sampled")
    np.testing.assert_array_equal(made.run({"x": x[0], "sizes": sizes[0]})["y"], x[0].reshape(3, 4) * 2)

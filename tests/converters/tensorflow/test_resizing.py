"""TensorFlow's bicubic, area and antialiased resizing, held against TensorFlow to the last roundings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import convertkit
from tests.installed import needs

SIZES = """
import sys
import tensorflow as tf
resize, v1 = tf.image.resize, tf.compat.v1.image
ways = {
    "bicubic": lambda x: resize(x, (7, 17), "bicubic"),
    "smaller": lambda x: resize(x, (4, 5), "bicubic"),
    "corners": lambda x: v1.resize_bicubic(x, (7, 17), align_corners=True),
    "older": lambda x: v1.resize_bicubic(x, (7, 17)),
    "bilinear_corners": lambda x: v1.resize_bilinear(x, (7, 17), align_corners=True),
    "with_pad": lambda x: tf.image.resize_with_pad(x, 16, 16),
    "area": lambda x: resize(x, (4, 7), "area"),
    "antialias": lambda x: resize(x, (5, 7), antialias=True),
    "lanczos": lambda x: resize(x, (12, 5), "lanczos5"),
    "nearest": lambda x: resize(x, (7, 17), "nearest"),
    "nearest_corners": lambda x: v1.resize_nearest_neighbor(x, (7, 5), align_corners=True),
    "older_nearest": lambda x: v1.resize_nearest_neighbor(x, (7, 5)),
    "between_nearest": lambda x: resize(tf.tile(x, (1, 8, 1, 1)), (24, 5), "nearest"),
    "older_between_nearest": lambda x: v1.resize_nearest_neighbor(tf.tile(x, (1, 8, 1, 1)), (24, 9)),
    "twice_nearest": lambda x: resize(x, (20, 6), "nearest"),
    "bytes": lambda x: resize(tf.cast(tf.clip_by_value(x * 50 + 100, 0, 255), tf.uint8), (7, 17), "bicubic"),
}
class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 10, 12, 3], tf.float32, name="x")])
    def __call__(self, x):
        return {name: way(x) for name, way in ways.items()}
model = Model()
tf.saved_model.save(model, sys.argv[1], signatures=model.__call__)
"""


def test_pictures_are_resized_as_tensorflow_does(tmp_path: Path):
    needs("tf2onnx")
    subprocess.run([sys.executable, "-c", SIZES, str(tmp_path / "model")], check=True, capture_output=True)
    made = convertkit.export(tmp_path / "model", target="tflite", output=tmp_path / "out")
    report = json.loads((made.path / "report.json").read_text())
    assert report["steps"][0]["options"]["route"] == "tf2onnx"
    found = {each["name"]: each for each in report["steps"][0]["parity"]["versus_source"]["tensors"]}
    assert len(found) == 16
    by_products = found.keys() - {"bytes", "with_pad", "bilinear_corners"}  # the latter by coordinates, as TensorFlow
    assert max(float(found[name]["relative"]) for name in by_products) < 1e-6
    assert not any(float(found[name]["relative"]) for name in found if "nearest" in name)
    assert made.artifact.inputs[0].shape[0] == "batch"

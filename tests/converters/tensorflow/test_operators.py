"""TensorFlow's operators that ``converters/tensorflow`` writes in ONNX's, held against TensorFlow with a free batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import convertkit
from tests.installed import needs

HEAD = """
import sys
import numpy as np
import tensorflow as tf
steady = lambda x: x[:, :, None] * x[:, None, :] / (1 + tf.reduce_sum(x * x, 1)[:, None, None]) + 2 * tf.eye(6)
ways = {
"""
TAIL = """
}
class Model(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, *SHAPE], tf.float32, name="x")])
    def __call__(self, x):
        return {name: way(x) for name, way in ways.items()}
tf.saved_model.save(model := Model(), sys.argv[1], signatures=model.__call__)
"""
COUNTS = """
    "scattered": lambda x: tf.scatter_nd([[1], [4], [1], [0]], x[:1, 0] * tf.ones([4, 1]), [6, 6]),
    "places": lambda x: tf.math.invert_permutation(tf.argsort(x[0, 0])),
    "counts": lambda x: tf.math.bincount(tf.cast(tf.abs(x[:, 0] * 3), tf.int32), minlength=4, maxlength=4, axis=-1),
    "seen": lambda x: tf.math.bincount(
        tf.cast(tf.abs(x[:, 0] * 3), tf.int32), minlength=4, maxlength=4, axis=-1, binary_output=True),
    "weighed": lambda x: tf.math.bincount([3, 0, 3, 9, 1, 1], x[0, 0], minlength=5, maxlength=5),
    "histogram": lambda x: tf.histogram_fixed_width(x, [-1.0, 2.0], 7),
    "histogram_of_edges": lambda x: tf.histogram_fixed_width(
        tf.round(x * 3) * np.float32(3 / 7) - 1, [-1.0, 2.0], 7),
    "nth": lambda x: tf.raw_ops.NthElement(input=x, n=2),
    "nth_last": lambda x: tf.raw_ops.NthElement(input=x, n=1, reverse=True),
    "sorted_in": lambda x: tf.searchsorted(tf.sort(x[:, 0]), x[:, 1]),
    "sorted_after": lambda x: tf.searchsorted(tf.sort(x[:, 0]), tf.sort(x[:, 0]), "right"),
    "buckets": lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[-1.0, 0.0, 0.25, 2.0]),
    "buckets_of_integers": lambda x: tf.raw_ops.Bucketize(input=tf.cast(x * 3, tf.int32), boundaries=[-1.0, 0.0, 2.5]),
    "euclidean": lambda x: tf.math.reduce_euclidean_norm(x, 1),
    "cross_entropy": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits(
        tf.cast(tf.abs(x[:, 1, 0]), tf.int32) % 6, x[:, 0]),
    "largest": lambda x: tf.math.segment_max(x[0], [0, 0, 3, 3]),
    "least": lambda x: tf.math.segment_min(x[0], [0, 0, 3, 3]),
    "mean": lambda x: tf.math.segment_mean(x[0], [0, 0, 3, 3]),
    "product": lambda x: tf.math.segment_prod(x[0], [0, 0, 3, 3]),
    "turned_in_time": lambda x: tf.reverse_sequence(x, tf.cast(tf.minimum(tf.abs(x[:, 0, 0]) * 3, 6), tf.int32), 2, 0),
    "turned_rows": lambda x: tf.reverse_sequence(x, [1, 6, 3, 4], 2, 1),
    "printed": lambda x: tf.raw_ops.Print(input=x, data=[x], message="x"),
    "largest_of_nothing": lambda x: tf.math.segment_max(tf.where(x[0] > 0.0, x[0], -np.inf), [0, 0, 3, 3]),
    "largest_of_any": lambda x: tf.math.unsorted_segment_max(x[0], [4, 0, -1, 4], 6),
    "least_of_any": lambda x: tf.math.unsorted_segment_min(tf.cast(x[0] * 9, tf.int32), [4, 0, 1, 4], 6),
    "sum_of_blocks": lambda x: tf.math.unsorted_segment_sum(x[0], [[4, 0, -1, 4, 2, 2]] * 4, 6),
    "sum_for_rows": lambda x: tf.math.unsorted_segment_sum(x, tf.range(tf.shape(x)[0]) // 2, tf.shape(x)[0]),
    "mean_of_any": lambda x: tf.math.unsorted_segment_mean(x[0], [4, 0, -2, 4], 6),
    "product_of_any": lambda x: tf.math.unsorted_segment_prod(x[0], [4, 0, -1, 4], 6),
    "rooted": lambda x: tf.sparse.segment_sqrt_n(x[0], [1, 0, 2], [0, 2, 2]),
"""
INTEGERS = """
    "floored": lambda x: tf.cast(x * 9, tf.int32) // [4, 3, 7, -4, -3, 1],
    "chosen": lambda x: tf.one_hot(tf.cast(x * 3, tf.int32), 4, 2.0, -1.0),
    "chosen_in_between": lambda x: tf.one_hot(tf.cast(x * 3, tf.int64), 4, axis=1),
    "chosen_integers": lambda x: tf.one_hot(tf.cast(x * 3, tf.int32), 4, axis=1, dtype=tf.int32),
    "chosen_bools": lambda x: tf.one_hot(tf.cast(x * 3, tf.int32), 4, True, False),
    "floored_small": lambda x: tf.cast(x * 9, tf.int8) // tf.constant([4, 3, 7, -4, -3, 1], tf.int8),
    "floored_unsigned": lambda x: tf.cast(tf.abs(x) * 9, tf.uint8) // tf.constant(4, tf.uint8),
    "rest": lambda x: tf.cast(x * 9, tf.int32) % [4, 3, 7, -4, -3, 1],
    "rest_of_long": lambda x: tf.cast(x * 9, tf.int64) % -4,
    "rest_of_reals": lambda x: x * 1000 % [0.7, 3.0, -0.7, 5.0, -3.0, 1e-3],
    "shifted": lambda x: tf.bitwise.right_shift(tf.cast(x * 99, tf.int32), [0, 1, 5, 31, 40, -2]),
    "shifted_small": lambda x: tf.bitwise.right_shift(tf.cast(x * 20, tf.int8), tf.constant(2, tf.int8)),
    "shifted_unsigned": lambda x: tf.bitwise.right_shift(tf.cast(tf.abs(x) * 20, tf.uint8), tf.constant(2, tf.uint8)),
    "first_of_bools": lambda x: tf.argmax(x > 0.5, 1),
    "first_false": lambda x: tf.argmin(x < 0.5, -1, tf.int32),
    "summed_small": lambda x: tf.reduce_sum(tf.cast(tf.clip_by_value(x * 99, -128, 127), tf.int8), 1),
    "summed_up_small": lambda x: tf.cumsum(tf.cast(tf.clip_by_value(tf.abs(x) * 99, 0, 255), tf.uint8), 1),
    "multiplied_small": lambda x: tf.reduce_prod(tf.cast(tf.clip_by_value(x * 9, -128, 127), tf.int8), 1),
    "positive_small": lambda x: tf.nn.relu(tf.cast(tf.clip_by_value(tf.abs(x) * 99, 0, 255), tf.uint8)),
    "places_small": lambda x: tf.where(tf.cast(tf.clip_by_value(x, -128, 127), tf.int8)),
    "shifted_left": lambda x: tf.bitwise.left_shift(tf.cast(x * 99, tf.int32), [0, 1, 5, 31, 40, -2]),
"""
RANGES = """
    "quantized": lambda x: tf.quantization.fake_quant_with_min_max_args(x, -2, 2),
    "quantized_narrow": lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.1, 1.9, narrow_range=True),
    "quantized_to_four_bits": lambda x: tf.quantization.fake_quant_with_min_max_vars(x, -1.1, 1.9, num_bits=4),
    "quantized_by_channel": lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(
        x, [-1.0, -2.0, 0.0, -0.3, -1.0, 0.0], [1.0, 0.5, 3.0, 0.1, 1.0, 0.0]),
    "quantized_narrow_by_channel": lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(
        x, [-1.0, -2.0, -3.0, -0.3, -1.0, -0.5], [1.0, 2.0, 3.0, 0.3, 1.0, 0.5], narrow_range=True),
    "sizes": lambda x: tf.cast(tf.raw_ops.ShapeN(input=[x, x[:, :2]])[1], tf.float32) + x[:1, :2],
"""
HALVES = """
    "half": lambda x: tf.sigmoid(tf.cast(x, tf.float16)),
    "halves_of_rows": lambda x: tf.math.l2_normalize(tf.nn.softmax(tf.cast(x, tf.float16)), 1),
    "mean_of_halves": lambda x: tf.reduce_mean(tf.cast(x, tf.float16), 1),
    "finite": lambda x: tf.math.is_finite(tf.cast(x, tf.float16) / tf.cast(tf.round(x), tf.float16)),
    "endless": lambda x: tf.math.is_inf(tf.cast(x, tf.float16) / tf.cast(tf.round(x), tf.float16)),
"""
MATRICES = """
    "diagonal": lambda x: tf.linalg.diag(x),
    "beside": lambda x: tf.linalg.diag(x, k=-2, padding_value=7.0),
    "wide": lambda x: tf.linalg.diag(x, k=0, num_rows=6, num_cols=8),
    "bands": lambda x: tf.linalg.diag(x[:, None, :4] * tf.constant([[1.0], [2.0], [3.0]]), k=(-1, 1)),
    "bands_left": lambda x: tf.linalg.diag(
        x[:, None, :4] * tf.constant([[1.0], [2.0], [3.0]]), k=(0, 2), align="LEFT_RIGHT"),
    "inverse": lambda x: tf.linalg.inv(steady(x)),
    "turned": lambda x: tf.linalg.inv(steady(x) + tf.linalg.band_part(steady(x), 0, -1), adjoint=True),
    "moved_rows": lambda x: tf.linalg.inv(tf.reverse(steady(x), [1])),
    "moved_negative_rows": lambda x: tf.linalg.inv(-tf.reverse(steady(x), [1])),
    "solved": lambda x: tf.linalg.solve(tf.reverse(steady(x), [1]), x[:, :, None]),
    "determinant": lambda x: tf.linalg.det(tf.reverse(steady(x), [1]) / 2),
    "orthogonal": lambda x: tf.linalg.qr(steady(x))[0],
    "orthogonal_of_negative": lambda x: tf.linalg.qr(-steady(x))[0],
    "upper": lambda x: tf.linalg.qr(steady(x)[:, :, :4], full_matrices=True)[1],
    "eigenvalues": lambda x: tf.linalg.eigvalsh(steady(x)[:, :5, :5]),
    "eigenvalues_far_off_the_diagonal": lambda x: tf.linalg.eigvalsh(
        tf.reverse(steady(x), [1]) + tf.transpose(tf.reverse(steady(x), [1]), [0, 2, 1])),
    "sign": lambda x: tf.linalg.slogdet(tf.reverse(steady(x), [1]))[0],
    "logarithm": lambda x: tf.linalg.slogdet(steady(x))[1],
"""
PICTURES = """
    "dilated": lambda x: tf.nn.dilation2d(
        x, np.linspace(-1, 1, 18, dtype="f").reshape(3, 2, 3), [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]),
    "strided": lambda x: tf.nn.dilation2d(
        x, np.linspace(-1, 1, 18, dtype="f").reshape(3, 2, 3), [1, 2, 2, 1], "VALID", "NHWC", [1, 2, 1, 1]),
    "patches": lambda x: tf.image.extract_patches(x, [1, 3, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME"),
    "patches_apart": lambda x: tf.image.extract_patches(x, [1, 3, 2, 1], [1, 1, 1, 1], [1, 2, 2, 1], "VALID"),
    "crops": lambda x: tf.image.crop_and_resize(
        x, [[0.0, 0.1, 0.8, 0.9], [0.5, 0.9, 0.2, 0.1], [-0.2, 0.0, 1.3, 1.0]], [0, 0, 0], [4, 5], "bilinear", -3.0),
    "crops_nearest": lambda x: tf.image.crop_and_resize(x, [[0.0, 0.1, 0.8, 0.9]], [0], [4, 5], "nearest"),
    "crops_between": lambda x: tf.image.crop_and_resize(x, [[0.0, 0.1, 0.6875, 0.9]], [0], [2, 5], "nearest"),
    "crops_one": lambda x: tf.image.crop_and_resize(x, [[0.0, 0.1, 0.8, 0.9]], [0], [1, 5]),
    "grown": lambda x: tf.nn.conv2d_transpose(
        x, np.linspace(-1, 1, 90, dtype="f").reshape(3, 2, 5, 3), [tf.shape(x)[0], 19, 17, 5], 2, "VALID"),
    "hue": lambda x: tf.image.rgb_to_hsv(tf.clip_by_value(x, 0.0, 1.0)),
    "colours": lambda x: tf.image.hsv_to_rgb(tf.clip_by_value(x, 0.0, 1.0)),
    "saturated": lambda x: tf.image.adjust_saturation(tf.clip_by_value(x, 0.0, 1.0), 1.7),
"""


@pytest.mark.parametrize(
    ("ways", "shape"),
    [
        pytest.param(COUNTS, "4, 6", id="counts"),
        pytest.param(INTEGERS, "6", id="integers"),
        pytest.param(HALVES, "6", id="halves"),
        pytest.param(RANGES, "6", id="ranges"),
        pytest.param(MATRICES, "6", id="matrices"),
        pytest.param(PICTURES, "9, 8, 3", id="pictures"),
    ],
)
def test_operators_are_written_in_onnx_s(tmp_path: Path, ways: str, shape: str):
    needs("tf2onnx")
    script = HEAD + ways + TAIL.replace("*SHAPE", shape)
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "model")], check=True, capture_output=True)
    made = convertkit.export(tmp_path / "model", target="tflite", output=tmp_path / "out")
    report = json.loads((made.path / "report.json").read_text())
    assert report["steps"][0]["options"]["route"] == "tf2onnx"
    assert made.artifact.inputs[0].shape[0] == "batch"
    found = report["steps"][0]["parity"]["versus_source"]["tensors"]
    assert len(found) == ways.count('    "')


def test_zeros_of_both_signs_tie_as_in_tensorflow(tmp_path: Path):
    """Behind TensorFlow's bridge, whose order is that of StableHLO, in which -0 is less than 0."""
    needs("tf2onnx")
    ways = """
    "best": lambda x: tf.math.top_k(tf.where(x > 1, x, 0.0 * x), 3).indices,
    "hit": lambda x: tf.nn.in_top_k(tf.argmax(x[:, ::-1], -1), x, 2),
    """
    script = HEAD + ways + TAIL.replace("None, *SHAPE", "4, 8")
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "model")], check=True, capture_output=True)
    made = convertkit.export(tmp_path / "model", target="onnxruntime", output=tmp_path / "out")
    assert json.loads((made.path / "report.json").read_text())["steps"][0]["options"]["route"] == "StableHLO"


def test_scores_that_boxes_lower_are_refused(tmp_path: Path):
    needs("tf2onnx")
    way = '"soft": lambda x: tf.image.non_max_suppression_with_scores(x, x[:, 0], 3, 0.4, 0.1, 0.5)[0],'
    script = HEAD + way + TAIL.replace("*SHAPE", "4")
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "model")], check=True, capture_output=True)
    with pytest.raises(convertkit.errors.ConvertKitError, match="no route"):
        convertkit.export(tmp_path / "model", target="onnxruntime", output=tmp_path / "out")

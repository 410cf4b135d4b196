"""Plain TensorFlow functions that Keras models seldom hold, for ``bench/outside_tensorflow.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

ROW, PICTURE, BATCH = (None, 6), (None, 10, 12, 3), (2, 4, 6)
WEIGHTS = np.random.default_rng(3).normal(size=(3, 3, 3, 4)).astype(np.float32) / 3
Entry = tuple[Callable[..., Any], tuple[tf.TensorSpec, ...]]


def _f(shape: tuple[int | None, ...], dtype: Any = tf.float32, name: str = "x") -> tf.TensorSpec:
    return tf.TensorSpec(shape, dtype, name)


def _on(shape: tuple[int | None, ...], call: Callable[..., Any], dtype: Any = tf.float32) -> Entry:
    return call, (_f(shape, dtype),)


def control() -> Mapping[str, Entry]:
    """Branches, loops and lists of tensors."""

    def unrolled(x: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, 4)
        for i in tf.range(4):
            rows = rows.write(i, tf.nn.tanh(x[:, i]) * tf.cast(i + 1, tf.float32))
        return tf.transpose(rows.stack(), [1, 0, 2])

    def early(x: tf.Tensor) -> tf.Tensor:
        total = tf.zeros_like(x[:, 0])
        for i in tf.range(4):
            total += x[:, i]
            if tf.reduce_sum(tf.abs(total)) > 3.0:
                break
        return total

    def halved(x: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(lambda v: tf.reduce_max(tf.abs(v)) > 0.5, lambda v: (v * 0.5,), (x,))[0]

    return {
        "cond": _on(ROW, lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: tf.exp(-tf.abs(x)))),
        "switch-case": _on((2, 6), lambda x: tf.switch_case(
            tf.cast(tf.reduce_sum(x) > 0, tf.int32), [lambda: x + 1, lambda: x * 3])),
        "while-data": _on(ROW, halved),
        "tensor-array": _on(BATCH, unrolled),
        "loop-break": _on(BATCH, early),
        "map-fn": _on(BATCH, lambda x: tf.map_fn(lambda r: tf.reduce_max(r, 0) - r, x)),
        "vectorized-map": _on(BATCH, lambda x: tf.vectorized_map(lambda r: tf.matmul(r, r, transpose_b=True), x)),
        "scan": _on(BATCH, lambda x: tf.scan(lambda a, r: 0.5 * a + r, tf.transpose(x, [1, 0, 2]))),
        "foldl": _on(BATCH, lambda x: tf.foldl(lambda a, r: a * 0.9 + r, tf.transpose(x, [1, 0, 2]))),
        "assert-and-print": _on(ROW, lambda x: (tf.debugging.assert_all_finite(x, "finite"), tf.print("x"), x * 2)[-1]),
        "recompute-grad": _on(ROW, tf.recompute_grad(tf.nn.gelu)),
        "gradient": _on(ROW, _gradient),
    }  # fmt: skip


def _gradient(x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.sin(x) * x)
    return tape.gradient(y, x)


def pictures() -> Mapping[str, Entry]:
    """Resizing, patches and convolutions as TensorFlow has them."""
    resize, w = tf.image.resize, WEIGHTS
    boxes = np.array([[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 0.5]], np.float32)
    return {
        "resize-bilinear": _on(PICTURE, lambda x: resize(x, (7, 17))),
        "resize-nearest": _on(PICTURE, lambda x: resize(x, (7, 17), "nearest")),
        "resize-bicubic": _on(PICTURE, lambda x: resize(x, (7, 17), "bicubic")),
        "resize-area": _on(PICTURE, lambda x: resize(x, (5, 6), "area")),
        "resize-antialias": _on(PICTURE, lambda x: resize(x, (5, 7), antialias=True)),
        "resize-corners": _on(PICTURE, lambda x: tf.compat.v1.image.resize_bilinear(x, (7, 17), align_corners=True)),
        "resize-v1": _on(PICTURE, lambda x: tf.compat.v1.image.resize_bilinear(x, (7, 17))),
        "resize-with-pad": _on(PICTURE, lambda x: tf.image.resize_with_pad(x, 16, 16)),
        "resize-any-size": _on((1, None, None, 3), lambda x: resize(x, (8, 8))),
        "resize-of-size": _on((1, None, None, 3), lambda x: resize(x, tf.shape(x)[1:3] * 2)),
        "crop-and-resize": _on((2, 10, 12, 3), lambda x: tf.image.crop_and_resize(x, boxes, [0, 1], (4, 5))),
        "extract-patches": _on(PICTURE, lambda x: tf.image.extract_patches(
            x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME")),
        "dilation2d": _on(PICTURE, lambda x: tf.nn.dilation2d(
            x, w[..., 0], [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1])),
        "conv-explicit": _on(PICTURE, lambda x: tf.nn.conv2d(x, w, [1, 2, 1, 1], [[0, 0], [1, 2], [0, 1], [0, 0]])),
        "conv-dilated": _on(PICTURE, lambda x: tf.nn.conv2d(x, w, 1, "SAME", dilations=2)),
        "conv-transpose": _on((2, 5, 6, 4), lambda x: tf.nn.conv2d_transpose(x, w, (2, 10, 12, 3), 2)),
        "depthwise": _on(PICTURE, lambda x: tf.nn.depthwise_conv2d(x, w[..., :2], [1, 2, 2, 1], "SAME")),
        "space-to-batch": _on((4, 10, 12, 3), lambda x: tf.space_to_batch(x, [2, 3], [[0, 0], [0, 0]])),
        "depth-to-space": _on((None, 5, 6, 8), lambda x: tf.nn.depth_to_space(x, 2)),
        "max-pool-argmax": _on((2, 10, 12, 3), lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "VALID")[0]),
        "avg-pool-same": _on(PICTURE, lambda x: tf.nn.avg_pool2d(x, 3, 2, "SAME")),
        "lrn": _on(PICTURE, lambda x: tf.nn.local_response_normalization(x, 1, 1.5, 0.1, 0.6)),
        "adjust-hue": _on(PICTURE, lambda x: tf.image.adjust_hue(tf.nn.sigmoid(x), 0.2)),
        "adjust-saturation": _on(PICTURE, lambda x: tf.image.adjust_saturation(tf.nn.sigmoid(x), 0.4)),
        "grayscale-flip": _on(PICTURE, lambda x: tf.image.flip_left_right(tf.image.rgb_to_grayscale(x))),
        "standardize": _on(PICTURE, tf.image.per_image_standardization),
        "sobel": _on(PICTURE, tf.image.sobel_edges),
        "uint8-picture": _on((None, 10, 12, 3), lambda x: tf.cast(x, tf.float32) / 255.0 - 0.5, tf.uint8),
        "convert-image": _on((None, 10, 12, 3), lambda x: tf.image.convert_image_dtype(x, tf.float32), tf.uint8),
    }  # fmt: skip


def indexing() -> Mapping[str, Entry]:
    """Gathers, scatters, segments, sorts and sums."""
    ids, rows = np.array([0, 2, 2, 1, 0, 1], np.int32), np.array([[3], [0]], np.int32)
    return {
        "gather-nd": _on(BATCH, lambda x: tf.gather_nd(x, [[0, 1], [1, 3]])),
        "gather-batch": _on(BATCH, lambda x: tf.gather(x, [[0, 2], [3, 3]], axis=1, batch_dims=1)),
        "scatter-nd": _on((2, 5), lambda x: tf.scatter_nd(rows, x, (6, 5))),
        "scatter-update": _on((6, 5), lambda x: tf.tensor_scatter_nd_update(x, rows, x[1:3] * 2)),
        "scatter-max": _on((6, 5), lambda x: tf.tensor_scatter_nd_max(x, rows, x[1:3])),
        "segment-sum": _on((6, 5), lambda x: tf.math.unsorted_segment_sum(x, ids, 4)),
        "segment-mean": _on((6, 5), lambda x: tf.math.segment_mean(x, np.sort(ids))),
        "segment-max": _on((6, 5), lambda x: tf.math.unsorted_segment_max(x, ids, 3)),
        "top-k": _on(ROW, lambda x: tf.math.top_k(x, 3)[0]),
        "sort-argsort": _on(ROW, lambda x: tf.sort(x, direction="DESCENDING")),
        "searchsorted": _on(ROW, lambda x: tf.searchsorted(tf.sort(x), tf.zeros_like(x[:, :2]))),
        "cumsum-exclusive": _on(ROW, lambda x: tf.cumsum(x, 1, exclusive=True, reverse=True)),
        "cumprod": _on(ROW, lambda x: tf.math.cumprod(tf.nn.sigmoid(x), 1)),
        "cumulative-logsumexp": _on(ROW, lambda x: tf.math.cumulative_logsumexp(x, 1)),
        "boolean-mask": _on((4, 6), lambda x: tf.boolean_mask(x, x[:, 0] < 1e9)),
        "where-indices": _on((4, 6), lambda x: tf.where(x < 1e9)),
        "unique": _on((9,), lambda x: tf.unique(tf.round(x))[0]),
        "roll-reverse": _on(ROW, lambda x: tf.roll(tf.reverse(x, [1]), 2, 1)),
        "reverse-sequence": _on(BATCH, lambda x: tf.reverse_sequence(x, [2, 3], seq_axis=1)),
        "band-part": _on((2, 6, 6), lambda x: tf.linalg.band_part(x, 1, 2)),
        "diag": _on(ROW, lambda x: tf.linalg.set_diag(tf.linalg.diag(x), x * 2)),
        "one-hot": _on((None, 4), lambda x: tf.one_hot(x, 5, 2.0, -1.0), tf.int32),
        "bincount": _on((2, 7), lambda x: tf.math.bincount(x, minlength=9, maxlength=9, axis=-1), tf.int32),
        "integers-floor": _on((None, 4), lambda x: x // 3 + x % -4, tf.int32),
        "bitwise": _on((None, 4), lambda x: tf.bitwise.bitwise_xor(tf.bitwise.left_shift(x, 2), 5), tf.int32),
        "int64-embedding": _on((None, 4), lambda x: tf.nn.embedding_lookup(WEIGHTS.reshape(9, -1), x), tf.int64),
        "strided-slice": _on(BATCH, lambda x: x[:, ::-2, tf.newaxis, ..., 1:-1]),
        "dynamic-slice": _on(BATCH, lambda x: tf.slice(x, [0, 1, 0], [-1, 2, -1])),
        "pad-symmetric": _on(ROW, lambda x: tf.pad(x, [[0, 0], [2, 3]], "SYMMETRIC")),
        "tile-repeat": _on(ROW, lambda x: tf.repeat(tf.tile(x, [1, 2]), 2, axis=1)),
        "meshgrid": _on((5,), lambda x: tf.stack(tf.meshgrid(x, x[:3], indexing="ij"))),
        "sequence-mask": _on((3,), lambda x: tf.sequence_mask(x, 6, tf.float32), tf.int32),
        "nms": _on((12, 4), lambda x: tf.image.non_max_suppression(tf.nn.sigmoid(x), tf.nn.sigmoid(x[:, 0]), 4, 0.4)),
    }  # fmt: skip


def numbers() -> Mapping[str, Entry]:
    """Algebra, signals and types."""
    table = np.random.default_rng(5).normal(size=(6, 6)).astype(np.float32)
    positive = table @ table.T + 3 * np.eye(6, dtype=np.float32)
    steady: Callable[[tf.Tensor], tf.Tensor] = lambda x: tf.tanh(x)[:, :, None] * positive + 4 * tf.eye(6)  # noqa: E731
    return {
        "einsum": _on(BATCH, lambda x: tf.einsum("bij,bkj->bik", x, x)),
        "tensordot": _on(BATCH, lambda x: tf.tensordot(x, table, [[2], [1]])),
        "matmul-adjoint": _on(BATCH, lambda x: tf.matmul(x, x, adjoint_b=True)),
        "norms": _on(ROW, lambda x: tf.linalg.norm(x, axis=1) + tf.reduce_euclidean_norm(x, 1)),
        "l2-normalize": _on(ROW, lambda x: tf.math.l2_normalize(x, 1)),
        "moments": _on(BATCH, lambda x: tf.stack(tf.nn.moments(x, [1]))),
        "logsumexp": _on(ROW, lambda x: tf.reduce_logsumexp(x, 1)),
        "inverse": _on((2, 6), lambda x: tf.linalg.inv(steady(x))),
        "determinant": _on((2, 6), lambda x: tf.linalg.det(steady(x) / 8)),
        "cholesky-solve": _on((6, 2), lambda x: tf.linalg.cholesky_solve(tf.linalg.cholesky(positive), x)),
        "svd": _on((5, 4), lambda x: tf.linalg.svd(x, compute_uv=False)),
        "eigenvalues": _on((4, 4), lambda x: tf.linalg.eigvalsh(x + tf.transpose(x))),
        "stft": _on((2, 128), lambda x: tf.abs(tf.signal.stft(x, 32, 16))),
        "rfft": _on((2, 32), lambda x: tf.math.imag(tf.signal.rfft(x))),
        "irfft": _on((2, 32), lambda x: tf.signal.irfft(tf.signal.rfft(x) * 0.5)),
        "dct": _on((2, 32), tf.signal.dct),
        "mfcc": _on((2, 5, 8), tf.signal.mfccs_from_log_mel_spectrograms),
        "frame": _on((2, 32), lambda x: tf.signal.frame(x, 8, 3)),
        "complex-product": _on((2, 6), lambda x: tf.abs(tf.complex(x, x[:, ::-1]) * tf.complex(1.0, -2.0))),
        "double": _on(ROW, lambda x: tf.cast(tf.exp(-tf.cast(x, tf.float64) ** 2), tf.float32)),
        "bfloat16": _on(ROW, lambda x: tf.cast(tf.cast(x, tf.bfloat16) * 3, tf.float32)),
        "half": _on(ROW, lambda x: tf.cast(tf.nn.relu(tf.cast(x, tf.float16)), tf.float32)),
        "fake-quant": _on(ROW, lambda x: tf.quantization.fake_quant_with_min_max_args(x, -2, 2)),
        "special": _on(ROW, lambda x: tf.math.erf(x) + tf.math.lgamma(tf.abs(x) + 1) + tf.math.digamma(tf.abs(x) + 1)),
        "activations": _on(ROW, lambda x: tf.nn.selu(x) + tf.nn.softsign(x) + tf.nn.crelu(x)[:, :6] + tf.nn.swish(x)),
        "div-no-nan": _on(ROW, lambda x: tf.math.divide_no_nan(x, tf.nn.relu(x)) + tf.math.xlogy(tf.nn.relu(x), 2.0)),
        "clip-norm": _on(ROW, lambda x: tf.clip_by_norm(x, 1.5, [1])),
        "batch-norm": _on(PICTURE, lambda x: tf.nn.batch_normalization(x, 0.3, 0.8, 0.1, 1.2, 1e-3)),
    }  # fmt: skip


def refused() -> Mapping[str, Entry]:
    """What has to be refused in one sentence: text, tables, ragged rows, chance, Python."""
    keys = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 5], tf.int64), tf.constant([0.5, 2.0]))
    table = tf.lookup.StaticHashTable(keys, -1.0)
    words = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
    named = tf.lookup.StaticHashTable(words, 0)
    return {
        "no-string-length": _on((None,), tf.strings.length, tf.string),
        "no-string-split": _on((None,), lambda x: tf.strings.split(x).to_tensor(), tf.string),
        "no-string-table": (named.lookup, (_f((None,), tf.string),)),
        "no-integer-table": (table.lookup, (_f((None,), tf.int64),)),
        "no-number-to-string": _on(ROW, tf.strings.as_string),
        "no-ragged": _on((4,), lambda x: tf.ragged.range(x).to_tensor(0), tf.int32),
        "no-random": _on(ROW, lambda x: x + tf.random.normal(tf.shape(x))),
        "no-stateless-random": _on(ROW, lambda x: x + tf.random.stateless_normal((6,), [1, 2])),
        "no-py-function": _on(ROW, lambda x: tf.ensure_shape(tf.numpy_function(np.sort, [x], tf.float32), ROW)),
        "no-ctc": _on((5, 2, 4), lambda x: tf.sparse.to_dense(tf.nn.ctc_greedy_decoder(x, [5, 5])[0][0])),
    }


def functions() -> Mapping[str, Entry]:
    """All of them."""
    return {**control(), **pictures(), **indexing(), **numbers(), **refused()}

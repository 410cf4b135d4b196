"""Signals, matrices, losses and loops of TensorFlow for ``bench/tensorflow_functions.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow_cases import NUMBERS, ROWS, SEQUENCE, Case, filters, on


def numbers() -> Iterator[tuple[str, Case]]:
    """Those of this file by name."""
    for part in (signals(), linear(), losses(), flow()):
        yield from part.items()


def steady(x: Any) -> Any:
    """Square matrices that are far from singular, of rows of six."""
    return x[:, :, None] * x[:, None, :] / (1 + tf.reduce_sum(x * x, 1)[:, None, None]) + 2 * tf.eye(6, dtype=x.dtype)


def signals() -> Mapping[str, Case]:
    """tf.signal."""
    s, w = tf.signal, (3, 32)
    return {
        "rfft": on(lambda x: tf.stack([tf.math.real(s.rfft(x)), tf.math.imag(s.rfft(x))]), w),  # one scale for both
        "rfft_length": on(lambda x: tf.abs(s.rfft(x, [20])), w),
        "irfft": on(lambda x: s.irfft(s.rfft(x) * 0.5), w),
        "fft": on(lambda x, y: tf.abs(s.fft(tf.complex(x, y))), w, w),
        "ifft": on(lambda x, y: tf.math.real(s.ifft(tf.complex(x, y))), w, w),
        "fft2d": on(lambda x: tf.abs(s.fft2d(tf.complex(x, x))), (2, 6, 8)),
        "rfft2d": on(lambda x: tf.abs(s.rfft2d(x)), (2, 6, 8)),
        "irfft2d": on(lambda x: s.irfft2d(s.rfft2d(x)), (2, 6, 8)),
        "fftshift": on(lambda x: s.ifftshift(s.fftshift(x, [1]), [1]), w),
        "dct2": on(s.dct, w),
        "dct3": on(lambda x: s.dct(x, 3, norm="ortho"), w),
        "idct": on(lambda x: s.idct(x, norm="ortho"), w),
        "stft": on(lambda x: tf.abs(s.stft(x, 8, 4)), w),
        "stft_padded": on(lambda x: tf.abs(s.stft(x, 7, 3, 16, pad_end=True)), w),
        "inverse_stft": on(lambda x: s.inverse_stft(s.stft(x, 8, 4), 8, 4), w),
        "mdct": on(lambda x: s.mdct(x, 8), w),
        "inverse_mdct": on(lambda x: s.inverse_mdct(s.mdct(x, 8)), w),
        "frame": on(lambda x: s.frame(x, 8, 3, pad_end=True), w),
        "overlap_and_add": on(lambda x: s.overlap_and_add(x, 3), (3, 5, 8)),
        "mfcc": on(s.mfccs_from_log_mel_spectrograms, (2, 5, 8)),
        "mel": on(lambda x: tf.tensordot(x, s.linear_to_mel_weight_matrix(8, 17, 8000, 80.0, 3000.0), 1), (3, 17)),
        "hann": on(lambda x: x * s.hann_window(32) * s.hamming_window(32) * s.kaiser_window(32), w),
        "vorbis": on(lambda x: x * s.vorbis_window(32) * s.kaiser_bessel_derived_window(32), w),
        "cross": on(tf.linalg.cross, (3, 3), (3, 3)),
    }


def linear() -> Mapping[str, Case]:
    """tf.linalg, on matrices that are far from singular."""
    a = tf.linalg

    def symmetric(x: Any) -> Any:
        return x + a.matrix_transpose(x)

    def positive(x: Any) -> Any:
        return a.matmul(x, x, transpose_b=True) + 3 * tf.eye(tf.shape(x)[-1], dtype=x.dtype)

    m = (2, 4, 4)
    return {
        "matmul": on(lambda x, y: tf.matmul(x, y, transpose_a=True), (2, 5, 3), (2, 5, 4), kinds=NUMBERS),
        "matvec": on(a.matvec, m, (2, 4), kinds=NUMBERS),
        "inverse": on(lambda x: a.inv(steady(x))),
        "inverse_adjoint": on(lambda x: a.inv(steady(x), adjoint=True)),
        "det": on(lambda x: a.det(steady(x))),
        "logdet": on(lambda x: a.logdet(positive(x)), m),
        "slogdet": on(lambda x: a.slogdet(steady(x))),
        "solve": on(lambda x, y: a.solve(steady(x), y), (2, 6), (2, 6, 3)),
        "solve_adjoint": on(lambda x, y: a.solve(steady(x), y, adjoint=True), (2, 6), (2, 6, 3)),
        "cholesky": on(lambda x: a.cholesky(positive(x)), m),
        "cholesky_solve": on(lambda x, y: a.cholesky_solve(a.cholesky(positive(x)), y), m, (2, 4, 3)),
        "triangular_solve": on(lambda x, y: a.triangular_solve(positive(x), y, lower=False), m, (2, 4, 3)),
        "lu": on(lambda x: a.lu(steady(x)), (2, 6)),
        "lu_solve": on(lambda x, y: a.lu_solve(*a.lu(steady(x)), y), (2, 6), (2, 6, 3)),
        "qr": on(a.qr, (2, 5, 3)),
        "qr_full": on(lambda x: a.qr(x, full_matrices=True), (2, 5, 3)),
        "svd_values": on(lambda x: a.svd(x, compute_uv=False), (2, 5, 3)),
        "svd_product": on(lambda x: a.svd(x)[1] ** 2, (2, 5, 3)),
        "eigvalsh": on(lambda x: a.eigvalsh(symmetric(x)), m),
        "eigh_squares": on(lambda x: a.eigh(symmetric(x))[1] ** 2, m),
        "pinv": on(a.pinv, (2, 5, 3)),
        "lstsq": on(lambda x, y: a.lstsq(x, y, 0.1), (2, 5, 3), (2, 5, 2)),
        "lstsq_slow": on(lambda x, y: a.lstsq(x, y, fast=False), (2, 5, 3), (2, 5, 2)),
        "expm": on(lambda x: a.expm(x / 4), m),
        "sqrtm": on(lambda x: a.sqrtm(positive(x)), m),
        "matrix_rank": on(a.matrix_rank, (2, 5, 3)),
        "trace": on(a.trace, m, kinds=NUMBERS),
        "diag": on(a.diag, kinds=NUMBERS),
        "diag_k": on(lambda x: a.diag(x, k=1, padding_value=7.0)),
        "diag_bands": on(lambda x: a.diag(x[:, None, :4] * tf.ones([1, 3, 1]), k=(-1, 1))),
        "diag_part": on(lambda x: a.diag_part(x, k=-1), m, kinds=NUMBERS),
        "diag_part_bands": on(lambda x: a.diag_part(x, k=(-1, 1)), m),
        "set_diag": on(a.set_diag, m, (2, 4), kinds=NUMBERS),
        "set_diag_k": on(lambda x, y: a.set_diag(x, y[:, :3], k=1), m, (2, 4)),
        "tensor_diag": on(lambda x: a.tensor_diag(x[0]), kinds=NUMBERS),
        "tensor_diag_part": on(lambda x: a.tensor_diag_part(x[0]), m, kinds=NUMBERS),
        "band_part": on(lambda x: a.band_part(x, 0, -1), m, kinds=NUMBERS),
        "normalize": on(lambda x: a.normalize(x, axis=1), m),
        "tridiagonal_solve": on(lambda x, y: a.tridiagonal_solve(x[:, :3] + [[0.0], [9.0], [0.0]], y), m, (2, 4)),
        "tridiagonal_matmul": on(lambda x, y: a.tridiagonal_matmul(x[:, :3], y, "compact"), m, (2, 4, 2)),
        "banded_triangular_solve": on(lambda x, y: a.banded_triangular_solve(x[:, :2] + 4, y), m, (2, 4, 2)),
        "kron": on(lambda x, y: tf.experimental.numpy.kron(x[0], y[0]), m, m),
        "l2norm": on(lambda x: a.norm(x, "fro", axis=[1, 2]), m),
        "global_norm": on(lambda x: a.global_norm([x, x * 2]), m),
    }  # fmt: skip


def losses() -> Mapping[str, Case]:
    """tf.nn's losses and activations with arguments."""
    n = tf.nn
    return {
        "softmax_axis": on(lambda x: n.softmax(x, 1), SEQUENCE),
        "log_softmax_axis": on(lambda x: n.log_softmax(x, 1), SEQUENCE),
        "gelu_approximate": on(lambda x: n.gelu(x, approximate=True)),
        "leaky_relu": on(lambda x: n.leaky_relu(x, 0.3)),
        "silu": on(lambda x: n.silu(x, 1.7)),
        "cross_entropy": on(lambda x, y: n.softmax_cross_entropy_with_logits(n.softmax(y), x), ROWS, ROWS),
        "sparse_cross_entropy": on(lambda x, i: n.sparse_softmax_cross_entropy_with_logits(i, x), ROWS, (3,), i1=6),
        "sigmoid_cross_entropy": on(lambda x, y: n.sigmoid_cross_entropy_with_logits(n.sigmoid(y), x), ROWS, ROWS),
        "weighted_cross_entropy": on(
            lambda x, y: n.weighted_cross_entropy_with_logits(n.sigmoid(y), x, 1.5), ROWS, ROWS),
        "poisson_loss": on(lambda x, y: n.log_poisson_loss(tf.abs(y), x, True), ROWS, ROWS),
        "ctc_loss": on(
            lambda x: n.ctc_loss(tf.constant([[1, 2], [2, 1]]), x, [2, 2], [5, 5], blank_index=0), (5, 2, 4)),
        "ctc_greedy": on(lambda x: tf.sparse.to_dense(n.ctc_greedy_decoder(x, [5, 5])[0][0]), (5, 2, 4)),
        "ctc_unique_labels": on(n.ctc_unique_labels, (2, 4), i0=4),
        "scale_regularization": on(n.scale_regularization_loss),
        "xw_plus_b": on(lambda x: tf.compat.v1.nn.xw_plus_b(x, filters(6, 4), filters(4))),
        "relu_layer": on(lambda x: tf.compat.v1.nn.relu_layer(x, filters(6, 4), filters(4))),
        "nce": on(lambda x: n.sampled_softmax_loss(filters(9, 6), filters(9), [[1], [2], [3]], x, 4, 9, sampled_values=(
            tf.constant([1, 4, 5, 6], tf.int64), tf.ones([3, 1]), tf.ones([4]))), (3, 6)),
        "dropout_off": on(lambda x: n.dropout(x, 0.0)),
        "conditional": on(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x * 2, lambda: x - 1)),
        "fake_quant_args": on(lambda x: tf.quantization.fake_quant_with_min_max_args(x, -2, 2)),
        "fake_quant_channel": on(lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(
            x, -tf.ones(6), 2 * tf.ones(6))),
        "quantize_dequantize": on(lambda x: tf.quantization.quantize_and_dequantize_v2(x, -3.0, 3.0, range_given=True)),
        "quantize_dequantize_free": on(lambda x: tf.quantization.quantize_and_dequantize_v2(x, 0.0, 0.0)),
        "quantize_pair": on(lambda x: tf.quantization.dequantize(
            *tf.quantization.quantize(x, -3.0, 3.0, tf.quint8))),
        "isotonic": on(lambda x: n.isotonic_regression(x)[0]),
        "collapse_repeated": on(lambda i: n.collapse_repeated(i, tf.constant([5, 5, 5])), (3, 5), i0=3),
        "betainc": on(lambda x, y: tf.math.betainc(tf.abs(x) + 0.5, tf.abs(y) + 0.5, tf.sigmoid(x)), ROWS, ROWS),
        "igamma": on(lambda x, y: tf.math.igamma(tf.abs(x) + 0.5, tf.abs(y)), ROWS, ROWS),
        "polygamma": on(lambda x: tf.math.polygamma(2.0, tf.abs(x) + 0.5)),
        "zeta": on(lambda x: tf.math.zeta(tf.abs(x) + 1.5, 2.0)),
        "pow_int": on(lambda x: [x ** 3, 2 ** tf.abs(x % 5)], kinds=NUMBERS),
        "pow": on(lambda x, y: tf.abs(x) ** y, ROWS, ROWS),
        "clip_grad": on(lambda x: tf.stop_gradient(tf.clip_by_value(x, -1.0, 1.0))),
        "depth_attention": on(lambda x: tf.matmul(n.softmax(tf.matmul(x, x, transpose_b=True) / 2), x), SEQUENCE),
    }  # fmt: skip


def flow() -> Mapping[str, Case]:
    """Loops, conditions, arrays of tensors."""

    def collatz(i: Any) -> Any:
        return tf.while_loop(lambda n, k: n > 1, lambda n, k: (tf.where(n % 2 == 0, n // 2, 3 * n + 1), k + 1),
                             [i[0] + 1, tf.constant(0)])  # fmt: skip

    def array(x: Any) -> Any:
        held = tf.TensorArray(x.dtype, 5)
        for place in range(5):
            held = held.write(place, x[place] * place)
        return held.stack()

    def summed(x: Any) -> Any:
        total = tf.zeros_like(x[0])
        for row in x:
            total = total * 0.5 + row
        return total

    return {
        "while": on(collatz, (1,), kinds=("int32",), i0=9),
        "tensor_array": on(array, (5, 4)),
        "for_rows": on(tf.autograph.to_graph(summed), (5, 4)),
        "case": on(lambda i: tf.switch_case(i[0], [lambda: tf.constant(3), lambda: tf.constant(7)], lambda: i[0] * 9),
                   (1,), i0=4),
        "gradient": on(lambda x: tf.gradients(tf.reduce_sum(tf.tanh(x) ** 2), x)),
        "ragged_sum": on(lambda x: tf.reduce_sum(tf.RaggedTensor.from_row_lengths(x[0], [2, 0, 4]), 1)),
        "ragged_dense": on(lambda x: tf.RaggedTensor.from_row_lengths(x[0], [2, 0, 4]).to_tensor(-1.0)),
    }  # fmt: skip

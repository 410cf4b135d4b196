"""Functions of TensorFlow and Keras whose numbers hang on an epsilon, a neutral constant, a tie or a limit.

x is (4, 16).  Layers are made for the type of x, so that the same function tells the truth in doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import keras
import tensorflow as tf
from tensorflow import Tensor

Function = Callable[[Tensor], Tensor]


class _Layer(tf.Module):
    """A Keras layer with its initial weights, once in each precision."""

    def __init__(self, kind: type[keras.layers.Layer], **options: object) -> None:
        super().__init__()
        self.single, self.double = (kind(dtype=name, **options) for name in ("float32", "float64"))

    def __call__(self, x: Tensor) -> Tensor:
        return (self.single if x.dtype == tf.float32 else self.double)(x)


def _image(x: Tensor) -> Tensor:
    return tf.reshape(x, (2, 4, 4, 2))


def _flat(x: Tensor) -> Tensor:
    return tf.reshape(x, (2, 32))


def _moments_norm(x: Tensor) -> Tensor:
    mean, variance = tf.nn.moments(x, -1, keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, None, None, 1e-12)


_group_norm = _Layer(keras.layers.GroupNormalization, groups=2, epsilon=1e-6)


def _often(step: Function, x: Tensor) -> Tensor:
    """So often that a factor of nearly 1 counts."""
    for _ in range(20):
        x = step(x)
    return x


LOGARITHMS: Mapping[str, Function] = {
    "log_of_power": lambda x: tf.math.log(x * x + 1e-10),
    "log_of_size": lambda x: tf.math.log(tf.abs(x) + 1e-8),
    "log_of_clamped": lambda x: tf.math.log(tf.maximum(tf.abs(x), 1e-6)),
    "log1p": lambda x: tf.math.log1p(tf.abs(x)),
    "log1p_of_little": lambda x: tf.math.log1p(x * x * 1e-5),
    "expm1": lambda x: tf.math.expm1(tf.clip_by_value(x, -5, 5)),
    "log_sigmoid": tf.math.log_sigmoid,
    "log_of_sigmoid": lambda x: tf.math.log(tf.sigmoid(x) + 1e-7),
    "log_softmax": tf.nn.log_softmax,
    "log_of_softmax": lambda x: tf.math.log(tf.nn.softmax(x) + 1e-9),
    "logsumexp": lambda x: tf.reduce_logsumexp(x, -1),
    "softplus": tf.nn.softplus,
    "xlogy": lambda x: tf.math.xlogy(tf.abs(x), tf.abs(x)),
    "divided": lambda x: tf.math.divide_no_nan(tf.ones_like(x), x),
}
NORMS: Mapping[str, Function] = {
    "over_norm": lambda x: x / (tf.norm(x, axis=-1, keepdims=True) + 1e-12),
    "l2_normalize": lambda x: tf.math.l2_normalize(x, -1),
    "root_mean_square": lambda x: x * tf.math.rsqrt(tf.reduce_mean(x * x, -1, keepdims=True) + 1e-9),
    "moments": _moments_norm,
    "over_deviation": lambda x: (x - tf.reduce_mean(x, -1, True)) / (tf.math.reduce_std(x, -1, True) + 1e-8),
    "layer_norm": _Layer(keras.layers.LayerNormalization, epsilon=1e-6),
    "batch_norm": _Layer(keras.layers.BatchNormalization, epsilon=1e-6),
    "unit_norm": _Layer(keras.layers.UnitNormalization),
    "rms_norm": _Layer(keras.layers.RMSNormalization, epsilon=1e-6),
    "group_norm": lambda x: _flat(_group_norm(_image(x))),
    "over_greatest": lambda x: x / (tf.reduce_max(tf.abs(x), -1, True) + 1e-8),
    "shares": lambda x: tf.abs(x) / (tf.reduce_sum(tf.abs(x), -1, True) + 1e-10),
}
NEUTRAL: Mapping[str, Function] = {
    "plus_little": lambda x: (tf.abs(x) * 1e-9 + 1e-9) * 1e9,
    "times_nearly_one": lambda x: _often(lambda y: y * 1.000009, x),
    "over_nearly_one": lambda x: _often(lambda y: y / 1.000008, x),
    "over_added_zero": lambda x: 1.0 / (-x + 0.0),
    "plus_least": lambda x: 1.0 / (tf.abs(x) + 1e-30),
    "bounds_that_do_not_meet": lambda x: tf.clip_by_value(tf.clip_by_value(x, 0.0, 1.0), 2.0, 3.0) + x,
    "relu_of_negative": lambda x: tf.nn.relu(tf.clip_by_value(x, -2.0, -1.0)) + x,
    "gelu": tf.nn.gelu,
    "gelu_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "nearly_hardswish": lambda x: x * tf.clip_by_value(x + 3.0001, 0.0, 6.0001) / 6.0001,
    "hard_sigmoid": keras.activations.hard_sigmoid,
}
POWERS: Mapping[str, Function] = {
    "root_of_size": lambda x: (tf.abs(x) + 1e-8) ** 0.3,
    "cube": lambda x: tf.pow(x, 3.0),
    "reciprocal_root": lambda x: tf.math.rsqrt(tf.abs(x) + 1e-12),
    "selu": tf.nn.selu,
    "elu": tf.nn.elu,
    "erf_of_little": lambda x: tf.math.erf(x * 1e-3),
    "atan2": lambda x: tf.atan2(x, x[:, ::-1]),
    "asinh": tf.asinh,
    "atanh": lambda x: tf.atanh(tf.clip_by_value(x, -0.999, 0.999)),
    "sinh": lambda x: tf.sinh(tf.clip_by_value(x, -5, 5)),
    "sine_of_much": lambda x: tf.sin(tf.clip_by_value(x, -10, 10) * 30),
    "round": tf.round,
    "floor_of_quotient": lambda x: tf.math.floordiv(x, 0.5),
    "floor_of_remainder": lambda x: tf.math.floormod(x, 0.5),
    "sign": tf.sign,
    "greatest_place": lambda x: tf.argmax(x, -1),
    "where_zero": lambda x: tf.where(x == 0, tf.ones_like(x), x),
    "where_it_has_a_logarithm": lambda x: tf.where(x > 0, tf.math.log(x), x),
    "where_it_has_an_inverse": lambda x: tf.where(tf.abs(x) > 0.1, 1 / x, x),
}
GROUPS = {"logarithms": LOGARITHMS, "norms": NORMS, "neutral": NEUTRAL, "powers": POWERS}


def saved(group: str, to: str) -> None:
    """Write a group as a SavedModel with an output of each function's name."""
    module = tf.Module()
    functions = GROUPS[group]
    module.layers = [each for each in (_group_norm, *functions.values()) if isinstance(each, tf.Module)]

    @tf.function(input_signature=[tf.TensorSpec((4, 16), tf.float32, "x")])
    def serve(x: Tensor) -> dict[str, Tensor]:
        return {name: function(x) for name, function in functions.items()}

    tf.saved_model.save(module, to, signatures={"serving_default": serve})

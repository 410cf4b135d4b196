"""Operators that compute each element for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.targets.tf_serving.call import Call, Handler


def _binary(name: str) -> Handler:
    """``name`` is a path below ``tf``, such as ``math.add``."""

    def handler(call: Call) -> Any:
        return call.activated(_found(call, name)(call[0], call[1]))

    return handler


def _unary(name: str) -> Handler:
    def handler(call: Call) -> Any:
        return _found(call, name)(call[0])

    return handler


def _found(call: Call, path: str) -> Any:
    found = call.tf
    for part in path.split("."):
        found = getattr(found, part)
    return found


def div(call: Call) -> Any:
    """Integers are cut towards zero, as C does."""
    divided = call.tf.math.divide if call.outputs[0].dtype.startswith("float") else call.tf.truncatediv
    return call.activated(divided(call[0], call[1]))


def gelu(call: Call) -> Any:
    return call.tf.nn.gelu(call[0], approximate=bool(call.options["approximate"]))


def hard_swish(call: Call) -> Any:
    x = call[0]
    return x * call.tf.nn.relu6(x + 3.0) / 6.0


def leaky_relu(call: Call) -> Any:
    return call.tf.nn.leaky_relu(call[0], alpha=call.options["alpha"])


def prelu(call: Call) -> Any:
    x, slope = call[0], call[1]
    return call.tf.where(x >= 0, x, x * slope)


def relu_n1_to_1(call: Call) -> Any:
    return call.tf.clip_by_value(call[0], -1.0, 1.0)


def cast(call: Call) -> Any:
    return call.tf.cast(call[0], call.outputs[0].dtype)


def bitcast(call: Call) -> Any:
    return call.tf.bitcast(call[0], call.outputs[0].dtype)


def softmax(call: Call) -> Any:
    beta = call.options["beta"]
    return call.tf.nn.softmax(call[0] if beta == 1.0 else call[0] * beta)


def l2_normalization(call: Call) -> Any:
    """Over the last axis; a length below 1e-6 counts as that.

    Source: tflite/kernels/internal/reference/l2normalization.h.
    """
    tf, x = call.tf, call[0]
    length = tf.sqrt(tf.reduce_sum(tf.square(x), axis=-1, keepdims=True))
    return call.activated(x / tf.maximum(length, 1e-6))


def select(call: Call) -> Any:
    return call.tf.where(call[0], call[1], call[2])


ELEMENTWISE: Mapping[str, Handler] = {
    **{
        code: _unary(name)
        for code, name in {
            "ABS": "abs", "NEG": "negative", "SQUARE": "square", "SQRT": "sqrt", "RSQRT": "math.rsqrt", "EXP": "exp",
            "LOG": "math.log", "SIN": "sin", "COS": "cos", "CEIL": "math.ceil", "FLOOR": "floor", "ROUND": "round",
            "SIGN": "sign", "TANH": "tanh", "LOGISTIC": "sigmoid", "RELU": "nn.relu", "RELU6": "nn.relu6",
            "ELU": "nn.elu", "LOG_SOFTMAX": "nn.log_softmax", "LOGICAL_NOT": "logical_not", "ZEROS_LIKE": "zeros_like",
        }.items()
    },
    **{
        code: _binary(name)
        for code, name in {
            "ADD": "add", "SUB": "subtract", "MUL": "multiply", "MAXIMUM": "maximum", "MINIMUM": "minimum",
            "SQUARED_DIFFERENCE": "math.squared_difference", "POW": "pow", "FLOOR_DIV": "math.floordiv",
            "FLOOR_MOD": "math.floormod", "ATAN2": "atan2", "EQUAL": "equal", "NOT_EQUAL": "not_equal", "LESS": "less",
            "LESS_EQUAL": "less_equal", "GREATER": "greater", "GREATER_EQUAL": "greater_equal",
            "LOGICAL_AND": "logical_and", "LOGICAL_OR": "logical_or", "BITWISE_XOR": "bitwise.bitwise_xor",
            "RIGHT_SHIFT": "bitwise.right_shift",
        }.items()
    },
    "DIV": div, "GELU": gelu, "HARD_SWISH": hard_swish, "LEAKY_RELU": leaky_relu, "PRELU": prelu,
    "RELU_N1_TO_1": relu_n1_to_1, "CAST": cast, "BITCAST": bitcast, "SOFTMAX": softmax,
    "L2_NORMALIZATION": l2_normalization, "SELECT_V2": select, "SELECT": select,
}  # fmt: skip

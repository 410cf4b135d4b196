"""TensorFlow operators that Keras 2 recorded as layers (TFOpLambda), computed by ``keras.ops``.

Imports Keras, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops


def hard_sigmoid(x: Any) -> Any:
    """Keras 2's: ``clip(0.2 * x + 0.5, 0, 1)``."""
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: Any, y: Any) -> Any:
        return function(x, y)

    return compute


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(input_tensor: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return function(input_tensor, axis=axis, keepdims=keepdims)

    return compute


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(x: Any) -> Any:
        return function(x)

    return compute


def _item(tensor: Any, slice_spec: Any) -> Any:
    spec = slice_spec if isinstance(slice_spec, list) else [slice_spec]
    return tensor[tuple(_index(each) for each in spec)]


def _index(each: Any) -> Any:
    if isinstance(each, dict):
        if each.get("value") == "Ellipsis" or each.get("class_name") == "__ellipsis__":
            return Ellipsis
        return slice(each.get("start"), each.get("stop"), each.get("step"))
    return each


def _concat(values: Any, axis: int) -> Any:
    return ops.concatenate(values, axis=axis)


def _split(value: Any, num_or_size_splits: Any, axis: int = 0) -> Any:
    if isinstance(num_or_size_splits, int):
        return ops.split(value, num_or_size_splits, axis=axis)
    places, total = [], 0
    for size in num_or_size_splits[:-1]:
        total += size
        places.append(total)
    return ops.split(value, places, axis=axis)


def _clip(t: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    return ops.clip(t, clip_value_min, clip_value_max)


def _matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    first = ops.swapaxes(a, -1, -2) if transpose_a else a
    return ops.matmul(first, ops.swapaxes(b, -1, -2) if transpose_b else b)


def _pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0) -> Any:
    if mode.upper() == "CONSTANT":
        return ops.pad(tensor, paddings, mode="constant", constant_values=constant_values)
    return ops.pad(tensor, paddings, mode=mode.lower())


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _binary(function) for name, function in {
        "math.add": ops.add, "__operators__.add": ops.add, "math.subtract": ops.subtract,
        "math.multiply": ops.multiply, "math.truediv": ops.true_divide, "math.divide": ops.true_divide,
        "math.pow": ops.power, "math.maximum": ops.maximum, "math.minimum": ops.minimum,
        "math.floordiv": ops.floor_divide, "math.floormod": ops.mod, "math.greater": ops.greater,
        "math.greater_equal": ops.greater_equal, "math.less": ops.less, "math.less_equal": ops.less_equal,
        "math.equal": ops.equal, "math.not_equal": ops.not_equal, "__operators__.eq": ops.equal,
        "__operators__.ne": ops.not_equal, "math.logical_and": ops.logical_and, "math.logical_or": ops.logical_or,
    }.items()},
    **{name: _reduction(function) for name, function in {
        "math.reduce_mean": ops.mean, "math.reduce_sum": ops.sum, "math.reduce_max": ops.max,
        "math.reduce_min": ops.min, "math.reduce_prod": ops.prod, "math.reduce_variance": ops.var,
        "math.reduce_std": ops.std, "math.reduce_logsumexp": ops.logsumexp,
    }.items()},
    **{name: _unary(function) for name, function in {
        "math.abs": ops.abs, "math.exp": ops.exp, "math.log": ops.log, "math.sqrt": ops.sqrt,
        "math.rsqrt": ops.rsqrt, "math.square": ops.square, "math.sin": ops.sin, "math.cos": ops.cos,
        "math.tanh": ops.tanh, "nn.tanh": ops.tanh, "math.sigmoid": ops.sigmoid, "math.negative": ops.negative,
        "math.floor": ops.floor, "math.ceil": ops.ceil, "math.round": ops.round, "math.sign": ops.sign,
        "math.softplus": ops.softplus, "nn.softplus": ops.softplus, "math.erf": ops.erf,
        "math.logical_not": ops.logical_not,
    }.items()},
    "nn.relu": lambda features: ops.relu(features),
    "nn.relu6": lambda features: ops.relu6(features),
    "nn.elu": lambda features: ops.elu(features),
    "nn.silu": lambda features, beta=1.0: features * ops.sigmoid(beta * features),
    "nn.gelu": lambda features, approximate=False: ops.gelu(features, approximate=approximate),
    "nn.leaky_relu": lambda features, alpha=0.2: ops.leaky_relu(features, negative_slope=alpha),
    "nn.softmax": lambda logits, axis=-1: ops.softmax(logits, axis=axis),
    "nn.log_softmax": lambda logits, axis=-1: ops.log_softmax(logits, axis=axis),
    "nn.bias_add": lambda value, bias: ops.add(value, bias),
    "concat": _concat,
    "stack": lambda values, axis=0: ops.stack(values, axis=axis),
    "unstack": lambda value, num=None, axis=0: ops.unstack(value, num, axis=axis),
    "split": _split,
    "reshape": lambda tensor, shape: ops.reshape(tensor, shape),
    "expand_dims": lambda input, axis: ops.expand_dims(input, axis),
    "compat.v1.squeeze": lambda input, axis=None: ops.squeeze(input, axis),
    "squeeze": lambda input, axis=None: ops.squeeze(input, axis),
    "transpose": lambda a, perm=None, conjugate=False: ops.transpose(a, perm),
    "compat.v1.transpose": lambda a, perm=None, conjugate=False: ops.transpose(a, perm),
    "tile": lambda input, multiples: ops.tile(input, multiples),
    "pad": _pad,
    "compat.v1.pad": _pad,
    "cast": lambda x, dtype: ops.cast(x, dtype),
    "clip_by_value": _clip,
    "linalg.matmul": _matmul,
    "where": lambda condition, x=None, y=None: ops.where(condition, x, y),
    "gather": lambda params, indices, axis=0, batch_dims=0: ops.take(params, indices, axis=axis),
    "compat.v1.gather": lambda params, indices, axis=0, batch_dims=0: ops.take(params, indices, axis=axis),
    "math.argmax": lambda input, axis=None, output_type="int64": ops.cast(ops.argmax(input, axis), output_type),
    "math.l2_normalize": lambda x, axis=None, epsilon=1e-12: x * ops.rsqrt(
        ops.maximum(ops.sum(ops.square(x), axis=axis, keepdims=True), epsilon)),
    "identity": lambda input: input,
    "zeros_like": lambda input, dtype=None: ops.zeros_like(input, dtype=dtype),
    "ones_like": lambda input, dtype=None: ops.ones_like(input, dtype=dtype),
    "shape": lambda input: ops.shape(input),
    "compat.v1.shape": lambda input: ops.shape(input),
    "__operators__.getitem": _item,
    "slice": lambda input_, begin, size: ops.slice(input_, begin, size),
}  # fmt: skip
"""By the name that Keras 2 wrote, with TensorFlow's own argument names."""

_IGNORED = frozenset({"name"})


def computes(function: str) -> bool:
    """Whether an operator, named with or without ``tf.``, is among ``FUNCTIONS``."""
    return function.removeprefix("tf.") in FUNCTIONS


class Keras2Operation(keras.layers.Layer):  # type: ignore[misc]
    """Calls one function with the arguments that the file recorded."""

    def __init__(self, function: str, values: Any, options: dict[str, Any], name: str | None = None) -> None:
        super().__init__(name=name)
        self._function = FUNCTIONS[function.removeprefix("tf.")]
        self._values = values
        self._options = {key: value for key, value in options.items() if key not in _IGNORED}

    def call(self, tensors: Any) -> Any:
        given = tensors if isinstance(tensors, list | tuple) else [tensors]
        options = {key: _filled(value, given) for key, value in self._options.items()}
        return self._function(_filled(self._values, given), **options)


def _filled(value: Any, tensors: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"tensor"}:
        return tensors[value["tensor"]]
    if isinstance(value, list):
        return [_filled(each, tensors) for each in value]
    if isinstance(value, dict):
        return {key: _filled(each, tensors) for key, each in value.items()}
    return value

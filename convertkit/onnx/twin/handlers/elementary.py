"""Functions of single elements that have no double kernel, and sums of several tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.values import Tensor, widened

_POLYNOMIAL = 3.0
"""Unit roundoffs; measured over [-4, 4] and small arguments: Tanh 4.5, Atan 4.1, Asin 6.7, and 2 of Sinh and Erf."""


def _function(compute: Callable[[Array], Array]) -> Handler:
    return lambda call: [call.rounded(compute(call.array(0)))]


def _approximated(compute: Callable[[Array], Array]) -> Handler:
    """A function whose float32 kernels are polynomials, 4 to 7 unit roundoffs off at worst in ONNX Runtime.

    So ``x - tanh(x)`` near 0, where tanh(x) rounds to x itself, is not 0 in every runtime, nor is tanh(20) 1.
    """

    def handler(call: Call) -> Results:
        y = compute(call.array(0))
        return [call.rounded(call.noise.within(y, call.dtype, _POLYNOMIAL * np.abs(y)))]

    return handler


def _erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.reshape(-1).tolist()), np.float64, x.size).reshape(x.shape)


def _softplus(call: Call) -> Results:
    """``max(x, 0) + log(1 + exp(-|x|))``: the logarithm's operand is rounded near 1, as kernels round it."""
    x = call.array(0)
    tail = call.step(np.exp(-np.abs(x)))
    near_one = np.log1p(tail) if call.noise.is_silent else np.log(call.step(1.0 + tail))
    return [call.rounded(np.maximum(x, 0.0) + near_one)]


def _sigmoid(call: Call) -> Results:
    return [call.rounded(logistic(call, call.array(0)))]


def logistic(call: Call, x: Array) -> Array:
    """``1 / (1 + exp(-x))``; ONNX Runtime adds a fraction to 0.5 instead, so what is lost is a part of 0.5."""
    return np.abs(call.noise.within(1.0 / (1.0 + np.exp(-x)), call.dtype, np.asarray(0.5)))


def _wave(compute: Callable[[Array], Array]) -> Handler:
    """Sine or cosine, of which kernels reduce the argument in float32: to a unit roundoff of 1, of small ones of x.

    LiteRT's sine of float32's pi is 0, where the true value is -8.7e-8.
    """

    def handler(call: Call) -> Results:
        x = call.array(0)
        return [call.rounded(call.noise.within(compute(x), call.dtype, np.minimum(np.abs(x), 1.0)))]

    return handler


def _sum(call: Call) -> Results:
    total = call.array(0)
    for place in range(1, len(call.inputs)):
        total = call.step(total + call.array(place))
    return [call.rounded(total)]


def _mean(call: Call) -> Results:
    (total,) = _sum(call)
    assert total is not None
    return [call.rounded(total.array / len(call.inputs))]  # type: ignore[union-attr]


def _hardmax(call: Call) -> Results:
    x = call.array(0)
    if call.opset < 13:
        axis = call.whole("axis", 1) % max(x.ndim, 1)
        rows = x.reshape(int(np.prod(x.shape[:axis])), -1)
        return [call.rounded(_first_largest(rows, 1).reshape(x.shape))]
    return [call.rounded(_first_largest(x, call.whole("axis", -1)))]


def _first_largest(x: Array, axis: int) -> Array:
    ones = np.zeros_like(x)
    np.put_along_axis(ones, np.expand_dims(x.argmax(axis), axis), 1.0, axis)
    return ones


def _non_zero(call: Call) -> Results:
    return [widened(np.array(np.nonzero(np.atleast_1d(call.array(0))), np.int64))]


def _drawn(call: Call) -> Results:
    raise Unsupported("it draws random numbers, which no other run draws again", subject=call.title)


def _dropout(call: Call) -> Results:
    """The operand, and a mask that drops nothing; in training it draws."""
    training = call.optional(2)
    if training is not None and bool(training.reshape(-1)[0]):
        return _drawn(call)
    mask = np.ones(call.array(0).shape, bool)
    return [call.given(0), Tensor(mask, ir.DataType.BOOL)]


HANDLERS: Mapping[str, Handler] = {
    "Bernoulli": _drawn,
    "Dropout": _dropout,
    "Multinomial": _drawn,
    "RandomNormal": _drawn,
    "RandomNormalLike": _drawn,
    "RandomUniform": _drawn,
    "RandomUniformLike": _drawn,
    "Acos": _approximated(np.arccos),
    "Acosh": _function(np.arccosh),
    "Asin": _approximated(np.arcsin),
    "Asinh": _function(np.arcsinh),
    "Atan": _approximated(np.arctan),
    "Atanh": _function(np.arctanh),
    "Cosh": _function(np.cosh),
    "Erf": _function(_erf),
    "Hardmax": _hardmax,
    "Mean": _mean,
    "NonZero": _non_zero,
    "Sigmoid": _sigmoid,
    "Cos": _wave(np.cos),
    "Sin": _wave(np.sin),
    "Sinh": _function(np.sinh),
    "Softplus": _softplus,
    "Sum": _sum,
    "Tan": _function(np.tan),
    "Tanh": _approximated(np.tanh),
}

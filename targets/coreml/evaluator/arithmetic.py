"""Element by element: arithmetic, comparisons, activations and casts.

Source of each meaning: coremltools, mil/ops/defs, elementwise_unary.py, elementwise_binary.py and activation.py.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

arithmetic = Table()

_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "exp2": np.exp2,
    "floor": np.floor,
    "identity": lambda x: x,
    "logical_not": np.logical_not,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "round": np.rint,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "softplus": lambda x: np.logaddexp(x, np.zeros((), x.dtype)),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}


def _divided(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """``function`` of floats, and of integers without a 0 among the divisors: for that one there is no answer."""

    def quotient(x: Array, y: Array) -> Array:
        if y.dtype.kind in "iu" and not y.all():
            raise ValueError("a division of integers by 0")
        return function(x, y)

    return quotient


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "equal": np.equal,
    "floor_div": _divided(np.floor_divide),
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": _divided(np.mod),
    "mul": np.multiply,
    "not_equal": np.not_equal,
    "pow": np.power,
    "real_div": _divided(np.divide),
    "sub": np.subtract,
}


def _unary(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda *, x: np.asarray(function(x))


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda *, x, y: np.asarray(function(x, y))


for _name, _function in _UNARY.items():
    arithmetic.add(_name, _unary(_function))
for _name, _pair in _BINARY.items():
    arithmetic.add(_name, _binary(_pair))


def sigmoid_of(x: Array) -> Array:
    """``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def erf_of(x: Array) -> Array:
    """The error function in float64, by the Maclaurin series and, from 2.5 on, the continued fraction of erfc."""
    z = np.abs(x.astype(np.float64))
    inner = np.minimum(z, 2.5)
    term, total = inner.copy(), inner.copy()
    for n in range(1, 60):
        term *= -(inner**2) / n
        total += term / (2 * n + 1)
    outer = np.clip(z, 2.5, 6.5)
    fraction = outer
    for n in range(60, 0, -1):
        fraction = outer + (n / 2) / fraction
    tail = 1 - np.exp(-(outer**2)) / (fraction * np.sqrt(np.pi))
    value = np.where(z < 2.5, total * 2 / np.sqrt(np.pi), tail)
    return np.asarray(np.where(np.isnan(x), np.nan, np.copysign(value, x))).astype(x.dtype)


@arithmetic.computes("sigmoid")
def _sigmoid(*, x: Array) -> Array:
    return sigmoid_of(x)


@arithmetic.computes("silu")
def _silu(*, x: Array) -> Array:
    return x * sigmoid_of(x)


@arithmetic.computes("erf")
def _erf(*, x: Array) -> Array:
    return erf_of(x)


@arithmetic.computes("gelu")
def _gelu(*, x: Array, mode: Array | None = None) -> Array:
    kind = "EXACT" if mode is None else str(mode)
    if kind == "TANH_APPROXIMATION":
        inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x**3)
        return np.asarray(x * (1 + np.tanh(inner)) / 2)
    if kind == "SIGMOID_APPROXIMATION":
        return x * sigmoid_of(np.float32(1.702) * x)
    return np.asarray(x * (1 + erf_of(x / np.float32(np.sqrt(2)))) / 2)


@arithmetic.computes("elu")
def _elu(*, x: Array, alpha: Array) -> Array:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


@arithmetic.computes("leaky_relu")
def _leaky_relu(*, x: Array, alpha: Array) -> Array:
    return np.where(x >= 0, x, x * alpha)


@arithmetic.computes("prelu")
def _prelu(*, x: Array, alpha: Array) -> Array:
    slope = alpha.reshape(1, -1, *[1] * (x.ndim - 2))
    return np.where(x > 0, x, x * slope)


@arithmetic.computes("clip")
def _clip(*, x: Array, alpha: Array, beta: Array) -> Array:
    return np.minimum(np.maximum(x, alpha), beta)


@arithmetic.computes("sigmoid_hard")
def _sigmoid_hard(*, x: Array, alpha: Array, beta: Array) -> Array:
    return np.asarray(np.clip(alpha * x + beta, 0, 1))


@arithmetic.computes("thresholded_relu")
def _thresholded_relu(*, x: Array, alpha: Array) -> Array:
    return np.where(x >= alpha, x, 0)


@arithmetic.computes("scaled_tanh")
def _scaled_tanh(*, x: Array, alpha: Array, beta: Array) -> Array:
    return np.asarray(alpha * np.tanh(beta * x))


@arithmetic.computes("log")
def _log(*, x: Array, epsilon: Array) -> Array:
    return np.asarray(np.log(x + epsilon))


@arithmetic.computes("inverse")
def _inverse(*, x: Array, epsilon: Array) -> Array:
    return np.asarray(1 / (x + epsilon))


@arithmetic.computes("rsqrt")
def _rsqrt(*, x: Array, epsilon: Array) -> Array:
    return np.asarray(1 / np.sqrt(x + epsilon))


@arithmetic.computes("select")
def _select(*, cond: Array, a: Array, b: Array) -> Array:
    return np.where(cond, a, b)


@arithmetic.computes("cast")
def _cast(*, x: Array, dtype: Array) -> Array:
    """Towards zero from floats to integers, as C does; what lies outside is held at the limits."""
    kind = {"fp32": "float32", "fp16": "float16"}.get(str(dtype), str(dtype))
    if np.dtype(kind).kind in "iu" and x.dtype.kind == "f":
        limits = np.iinfo(kind)
        return np.clip(np.trunc(np.nan_to_num(x.astype(np.float64))), limits.min, limits.max).astype(kind)
    return x.astype(getattr(ml_dtypes, kind, kind))

"""Elementwise arithmetic, reductions and products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf as _erf
from math import prod

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.mxnet.attributes import Attributes
from convertkit.errors import SourceError

erf = np.vectorize(_erf, otypes=[np.float64])
Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]

UNARY: Mapping[str, Unary] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "cos": np.cos,
    "erf": erf,
    "exp": np.exp,
    "floor": np.floor,
    "identity": lambda x: x,
    "log": np.log,
    "negative": np.negative,
    "reciprocal": lambda x: 1 / x,
    "relu": lambda x: np.maximum(x, 0),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "sign": np.sign,
    "sin": np.sin,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sqrt": np.sqrt,
    "square": np.square,
    "tanh": np.tanh,
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
}
ALIASES: Mapping[str, str] = {
    "_copy": "identity",
    "BlockGrad": "identity",
    "stop_gradient": "identity",
    "make_loss": "identity",
    "MakeLoss": "identity",
    "LinearRegressionOutput": "identity",
    "MAERegressionOutput": "identity",
    "LogisticRegressionOutput": "sigmoid",
}
BINARY: Mapping[str, Binary] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "power": np.power,
}
NAMES: Mapping[str, tuple[str, ...]] = {
    "add": ("elemwise_add", "_plus", "_Plus", "broadcast_add", "broadcast_plus"),
    "sub": ("elemwise_sub", "_minus", "_Minus", "broadcast_sub", "broadcast_minus"),
    "mul": ("elemwise_mul", "_mul", "_Mul", "broadcast_mul"),
    "div": ("elemwise_div", "_div", "_Div", "broadcast_div"),
    "maximum": ("_maximum", "_Maximum", "broadcast_maximum"),
    "minimum": ("_minimum", "_Minimum", "broadcast_minimum"),
    "power": ("_power", "_Power", "broadcast_power"),
}
SCALAR: Mapping[str, tuple[str, bool]] = {
    "_plus_scalar": ("add", False),
    "_PlusScalar": ("add", False),
    "_minus_scalar": ("sub", False),
    "_MinusScalar": ("sub", False),
    "_rminus_scalar": ("sub", True),
    "_RMinusScalar": ("sub", True),
    "_mul_scalar": ("mul", False),
    "_MulScalar": ("mul", False),
    "_div_scalar": ("div", False),
    "_DivScalar": ("div", False),
    "_rdiv_scalar": ("div", True),
    "_RDivScalar": ("div", True),
    "_maximum_scalar": ("maximum", False),
    "_minimum_scalar": ("minimum", False),
    "_power_scalar": ("power", False),
    "_PowerScalar": ("power", False),
    "_rpower_scalar": ("power", True),
}
"""The operation, and whether the number stands in front."""
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


def axes_of(a: Attributes, rank: int) -> tuple[int, ...]:
    """What a reduction runs over: all axes where it names none; ``exclude`` turns the choice around."""
    named = tuple(axis % rank for axis in a.ints("axis"))
    every = tuple(range(rank))
    if not named:
        return every
    return tuple(axis for axis in every if axis not in named) if a.flag("exclude") else named


def _scalar(name: str) -> Callable[[Attributes, Array], Array]:
    kind, in_front = SCALAR[name]

    def apply(a: Attributes, x: Array) -> Array:
        number = np.asarray(a.real("scalar"))
        a.flag("is_int", True)
        return BINARY[kind](number, x) if in_front else BINARY[kind](x, number)

    return apply


def _reduction(name: str) -> Callable[[Attributes, Array], Array]:
    def apply(a: Attributes, x: Array) -> Array:
        axes = axes_of(a, x.ndim)
        a.refuse("dtype", "None")
        found = getattr(np, name)(x, axis=axes, keepdims=a.flag("keepdims"))
        return np.asarray(found).reshape(1) if np.ndim(found) == 0 else np.asarray(found)

    return apply


def _norm(a: Attributes, x: Array) -> Array:
    order, axes = a.whole("ord", 2), axes_of(a, x.ndim)
    found = np.abs(x).sum(axes, keepdims=True) if order == 1 else np.sqrt((x**2).sum(axes, keepdims=True))
    shape = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    return np.asarray(found if a.flag("keepdims") else found.reshape(shape or (1,)))


def _argmax(a: Attributes, x: Array) -> Array:
    return np.asarray(np.argmax(x, axis=a.whole("axis"), keepdims=a.flag("keepdims")), np.float64)


def _clip(a: Attributes, x: Array) -> Array:
    return np.clip(x, a.real("a_min"), a.real("a_max"))


def _sum_of_all(a: Attributes, *xs: Array) -> Array:
    return np.asarray(sum(xs))


def _dot(a: Attributes, x: Array, y: Array) -> Array:
    """Of the last axis of one and the first of the other."""
    x = x.transpose((*range(1, x.ndim), 0)) if a.flag("transpose_a") else x
    y = y.transpose((y.ndim - 1, *range(y.ndim - 1))) if a.flag("transpose_b") else y
    return np.tensordot(x, y, 1)


def _batch_dot(a: Attributes, x: Array, y: Array) -> Array:
    x = x.swapaxes(-1, -2) if a.flag("transpose_a") else x
    y = y.swapaxes(-1, -2) if a.flag("transpose_b") else y
    return np.asarray(x @ y)


def _dropout(a: Attributes, x: Array) -> Array:
    """Nothing, where nothing is trained."""
    a.refuse("mode", "training")
    a.real("p", 0.5)
    a.ints("axes")
    return x


def _where(a: Attributes, which: Array, x: Array, y: Array) -> Array:
    return np.where(which != 0, x, y)


def _fully_connected(a: Attributes, x: Array, weight: Array, bias: Array | None = None) -> Array:
    if (count := a.whole("num_hidden")) != len(weight):
        raise SourceError(f"{a.title}: num_hidden is {count}, and the weight gives {len(weight)} numbers")
    if a.flag("flatten", True):
        x = x.reshape(len(x), prod(x.shape[1:]))
    a.flag("no_bias")
    return np.asarray(x @ weight.T if bias is None else x @ weight.T + bias)


def _unary(name: str) -> Callable[..., Array]:
    return lambda a, x, *labels: UNARY[name](x)


ELEMENTS: Mapping[str, Callable[..., Array]] = {
    **{name: _unary(name) for name in UNARY},
    **{name: _unary(kind) for name, kind in ALIASES.items()},
    **{name: (lambda a, x, y, kind=kind: BINARY[kind](x, y)) for kind, names in NAMES.items() for name in names},
    **{name: _scalar(name) for name in SCALAR},
    **{name: _reduction(name) for name in REDUCTIONS},
    "norm": _norm,
    "argmax": _argmax,
    "clip": _clip,
    "add_n": _sum_of_all,
    "ElementWiseSum": _sum_of_all,
    "dot": _dot,
    "batch_dot": _batch_dot,
    "where": _where,
    "Dropout": _dropout,
    "FullyConnected": _fully_connected,
}

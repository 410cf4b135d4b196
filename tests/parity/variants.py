"""Small models that can be built in many ways: the same numbers in another order, or a planted fault.

A model is a function of a :class:`Builder`.  Every call of a builder's method is a place; at one place of a variant
another spelling of that method is used: a harmless one (the same mathematics: fused or not, another order of the sum)
or a fault.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
_USUAL = 4.0
"""The usual largest value of a layer whose values are normal with variance 1."""


@dataclass
class Builder:
    """Writes nodes; ``chosen`` is the place that is spelled otherwise, and how."""

    chosen: tuple[int, Callable | None] = (-1, None)
    nodes: list = field(default_factory=list)
    initializers: list = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    seed: int = 5

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def node(self, op: str, *inputs: str, **attributes) -> str:
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    def constant(self, value) -> str:
        name = f"c{len(self.initializers)}"
        value = np.asarray(value)
        value = value.astype(np.float32) if value.dtype.kind == "f" else value
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)

    def call(self, method: str, *arguments) -> str:
        place = len(self.places)
        self.places.append(method)
        spelled = self.chosen[1] if place == self.chosen[0] else PLAIN[method]
        return spelled(self, *arguments)

    def __getattr__(self, name: str):
        if name not in PLAIN:
            raise AttributeError(name)
        return lambda *arguments: self.call(name, *arguments)


def _axes(b: Builder, *axes: int) -> str:
    return b.constant(np.array(axes, np.int64))


def _mean(b, x, axis=-1):
    return b.node("ReduceMean", x, _axes(b, axis))


def _scaled_sum(b, x, axis, size):
    total = b.node("ReduceSum", x, _axes(b, axis))
    return b.node("Div", total, b.constant(np.float32(size)))


def _matmul(b, x, w):
    return b.node("MatMul", x, b.constant(w))


def _split_matmul(b, x, w):
    half = len(w) // 2
    ends = [(0, half), (half, len(w))]
    parts = [
        b.node("Slice", x, b.constant(np.array([low])), b.constant(np.array([high])), b.constant(np.array([-1])))
        for low, high in ends
    ]
    products = [b.node("MatMul", part, b.constant(w[low:high])) for part, (low, high) in zip(parts, ends, strict=True)]
    return b.node("Add", *products)


def _turned_matmul(b, x, w):
    order = np.argsort(np.cos(np.arange(len(w)) * 2.3))
    turned = b.node("Gather", x, b.constant(order.astype(np.int64)), axis=-1)
    return b.node("MatMul", turned, b.constant(w[order]))


def _thirds_matmul(b, x, w):
    return b.node("Mul", b.node("MatMul", x, b.constant(w * np.float32(3))), b.constant(np.float32(1 / 3)))


def _double(op):
    def made(b, x, *rest):
        wide = b.node("Cast", x, to=TensorProto.DOUBLE)
        if op == "MatMul":
            made = b.node("MatMul", wide, b.node("Cast", b.constant(rest[0]), to=TensorProto.DOUBLE))
        else:
            made = b.node(op, wide)
        return b.node("Cast", made, to=TensorProto.FLOAT)

    return made


def _changed(change):
    return lambda b, x, w, *rest: PLAIN_OF_WEIGHT[len(rest)](b, x, change(w), *rest)


def _without_the_largest(w):
    return np.where(np.abs(w) == np.abs(w).max(), np.float32(0), w)


def _one_more(w):
    moved = w.copy()
    moved.flat[0] += np.float32(1e-3) * np.abs(w).max()
    return moved


def _bias(b, x, v):
    return b.node("Add", x, b.constant(v))


def _off(v):
    moved = v.copy()
    moved[0] += np.float32(1e-4) * _USUAL
    return moved


def _eps(b, x, value):
    return b.node("Add", x, b.constant(np.float32(value)))


def _layernorm(b, x, scale, shift, eps=1e-5):
    return b.node("LayerNormalization", x, b.constant(scale), b.constant(shift), axis=-1, epsilon=eps)


def _plain_layernorm(b, x, scale, shift, eps=1e-5, *, stable=True):
    mean = b.node("ReduceMean", x, _axes(b, -1))
    centred = b.node("Sub", x, mean)
    if stable:
        variance = b.node("ReduceMean", b.node("Mul", centred, centred), _axes(b, -1))
    else:
        squares = b.node("ReduceMean", b.node("Mul", x, x), _axes(b, -1))
        variance = b.node("Sub", squares, b.node("Mul", mean, mean))
    root = b.node("Sqrt", b.node("Add", variance, b.constant(np.float32(eps))))
    made = b.node("Mul", b.node("Div", centred, root), b.constant(scale))
    return b.node("Add", made, b.constant(shift))


def _gelu(b, x, approximate="none"):
    return b.node("Gelu", x, approximate=approximate)


def _erf_gelu(b, x):
    error = b.node("Erf", b.node("Mul", x, b.constant(np.float32(math.sqrt(0.5)))))
    half = b.node("Mul", x, b.constant(np.float32(0.5)))
    return b.node("Mul", half, b.node("Add", error, b.constant(np.float32(1))))


def _softmax(b, x):
    return b.node("Softmax", x, axis=-1)


def _plain_softmax(b, x):
    risen = b.node("Exp", b.node("Sub", x, b.node("ReduceMax", x, _axes(b, -1))))
    return b.node("Div", risen, b.node("ReduceSum", risen, _axes(b, -1)))


def _sigmoid(b, x):
    return b.node("Sigmoid", x)


def _plain_sigmoid(b, x):
    one = b.constant(np.float32(1))
    return b.node("Div", one, b.node("Add", one, b.node("Exp", b.node("Neg", x))))


def _square(b, x):
    return b.node("Mul", x, x)


def _power(b, x):
    return b.node("Pow", x, b.constant(np.float32(2)))


def _rsqrt(b, x):
    return b.node("Reciprocal", b.node("Sqrt", x))


def _under_one(b, x):
    return b.node("Div", b.constant(np.float32(1)), b.node("Sqrt", x))


def _clip(b, x, low, high):
    return b.node("Clip", x, b.constant(np.float32(low)), b.constant(np.float32(high)))


def _min_of_max(b, x, low, high):
    return b.node("Min", b.node("Max", x, b.constant(np.float32(low))), b.constant(np.float32(high)))


def _clip_moved(b, x, low, high):
    return _clip(b, x, low, np.nextafter(np.float32(high), np.float32(0)))


def _round(b, x):
    return b.node("Round", x)


def _half_away(b, x):
    away = b.node("Floor", b.node("Add", b.node("Abs", x), b.constant(np.float32(0.5))))
    return b.node("Mul", b.node("Sign", x), away)


def _conv(b, x, w):
    return b.node("Conv", x, b.constant(w), pads=[1, 1, 1, 1])


def _split_conv(b, x, w):
    half = w.shape[1] // 2
    parts = []
    for low, high in ((0, half), (half, w.shape[1])):
        part = b.node("Slice", x, b.constant(np.array([low])), b.constant(np.array([high])), b.constant(np.array([1])))
        parts.append(b.node("Conv", part, b.constant(w[:, low:high]), pads=[1, 1, 1, 1]))
    return b.node("Add", *parts)


def _thirds_conv(b, x, w):
    return b.node("Mul", _conv(b, x, w * np.float32(3)), b.constant(np.float32(1 / 3)))


def _variance(b, x):
    mean = b.node("ReduceMean", x, _axes(b, -1))
    centred = b.node("Sub", x, mean)
    return b.node("ReduceMean", b.node("Mul", centred, centred), _axes(b, -1))


def _raw_variance(b, x):
    mean = b.node("ReduceMean", x, _axes(b, -1))
    return b.node("Sub", b.node("ReduceMean", b.node("Mul", x, x), _axes(b, -1)), b.node("Mul", mean, mean))


def _sample_variance(b, x):
    return b.node("Mul", _variance(b, x), b.constant(np.float32(16 / 15)))


def _relu(b, x):
    return b.node("Relu", x)


PLAIN: dict[str, Callable] = {
    "mean": _mean,
    "matmul": _matmul,
    "bias": _bias,
    "eps": _eps,
    "layernorm": _layernorm,
    "gelu": _gelu,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "square": _square,
    "rsqrt": _rsqrt,
    "clip": _clip,
    "round": _round,
    "conv": _conv,
    "variance": _variance,
    "relu": _relu,
}
PLAIN_OF_WEIGHT = {0: lambda b, x, w: (_matmul if w.ndim == 2 else _conv)(b, x, w)}

HARMLESS: dict[str, dict[str, Callable]] = {
    "mean": {
        "sum and division": lambda b, x, axis=-1: _scaled_sum(b, x, axis, 16),
        "by a product": lambda b, x: b.node("MatMul", x, b.constant(np.full((16, 1), 1 / 16))),
    },
    "relu": {"largest": lambda b, x: b.node("Max", x, b.constant(np.float32(0)))},
    "bias": {"subtracted": lambda b, x, v: b.node("Sub", x, b.constant(-v))},
    "eps": {"on the other side": lambda b, x, value: b.node("Add", b.constant(np.float32(value)), x)},
    "matmul": {
        "two halves": _split_matmul,
        "another order": _turned_matmul,
        "three times, a third": _thirds_matmul,
        "in float64": _double("MatMul"),
    },
    "layernorm": {
        "decomposed": _plain_layernorm,
        "of squares": lambda b, x, scale, shift: _plain_layernorm(b, x, scale, shift, stable=False),
    },
    "gelu": {"by erf": _erf_gelu},
    "softmax": {"decomposed": _plain_softmax, "in float64": _double("Softmax")},
    "sigmoid": {"decomposed": _plain_sigmoid, "in float64": _double("Sigmoid")},
    "square": {"power": _power, "of the absolute": lambda b, x: _square(b, b.node("Abs", x))},
    "rsqrt": {"one by root": _under_one},
    "clip": {"min of max": _min_of_max},
    "conv": {"two halves": _split_conv, "three times, a third": _thirds_conv},
    "variance": {"of squares": _raw_variance},
}
FAULTS: dict[str, dict[str, Callable]] = {
    "matmul": {
        "a thousandth more": _changed(lambda w: w * np.float32(1.001)),
        "one weight lost": _changed(_without_the_largest),
        "one weight off": _changed(_one_more),
        "columns turned": _changed(lambda w: np.roll(w, 1, 1)),
        "first row doubled": _changed(lambda w: np.concatenate([2 * w[:1], w[1:]])),
    },
    "conv": {
        "a thousandth more": _changed(lambda w: w * np.float32(1.001)),
        "kernel flipped": _changed(lambda w: w[..., ::-1]),
        "channels turned": _changed(lambda w: np.roll(w, 1, 1)),
        "one weight lost": _changed(_without_the_largest),
    },
    "bias": {"one off by 1e-4": lambda b, x, v: _bias(b, x, _off(v)), "lost": lambda b, x, v: b.node("Identity", x)},
    "eps": {
        "dropped": lambda b, x, value: b.node("Identity", x),
        "ten times": lambda b, x, value: _eps(b, x, 10 * value),
        "doubled": lambda b, x, value: _eps(b, x, 2 * value),
    },
    "layernorm": {
        "eps ten times": lambda b, x, scale, shift: _layernorm(b, x, scale, shift, 1e-4),
        "eps dropped": lambda b, x, scale, shift: _layernorm(b, x, scale, shift, 0.0),
        "without shift": lambda b, x, scale, shift: _layernorm(b, x, scale, 0 * shift),
    },
    "gelu": {"tanh": lambda b, x: _gelu(b, x, "tanh"), "relu": lambda b, x: b.node("Relu", x)},
    "softmax": {"other axis": lambda b, x: b.node("Softmax", x, axis=1)},
    "sigmoid": {"hard": lambda b, x: b.node("HardSigmoid", x)},
    "square": {"absolute": lambda b, x: b.node("Abs", x)},
    "rsqrt": {"root": lambda b, x: b.node("Sqrt", x)},
    "clip": {
        "one ulp less": _clip_moved,
        "none above": lambda b, x, low, high: _clip(b, x, low, 1e9),
        "none below": lambda b, x, low, high: _clip(b, x, -1e9, high),
    },
    "round": {"half away from zero": _half_away, "floor": lambda b, x: b.node("Floor", x)},
    "variance": {"of the sample": _sample_variance},
    "relu": {"leaky": lambda b, x: b.node("LeakyRelu", x, alpha=0.001), "none": lambda b, x: b.node("Identity", x)},
    "mean": {"sum": lambda b, x, axis=-1: b.node("ReduceSum", x, _axes(b, axis))},
}


def spectrum(b):
    power = b.square(b.matmul("x", b.weight(16, 16)))
    return b.bias(b.matmul(b.node("Log", b.eps(power, 1e-10)), b.weight(16, 6)), b.weight(6))


def unit_length(b):
    length = b.node("Sqrt", b.node("ReduceSum", b.square("x"), _axes(b, -1)))
    return b.matmul(b.node("Div", "x", b.eps(length, 1e-12)), b.weight(16, 6))


def rms_norm(b):
    scaled = b.node("Mul", "x", b.rsqrt(b.eps(b.mean(b.square("x")), 1e-6)))
    return b.matmul(b.gelu(b.matmul(scaled, b.weight(16, 16))), b.weight(16, 6))


def standardized(b):
    deviation = b.eps(b.node("Sqrt", b.variance("x")), 1e-8)
    return b.bias(b.matmul(b.node("Div", b.node("Sub", "x", b.mean("x")), deviation), b.weight(16, 6)), b.weight(6))


def root(b):
    grown = b.node("Pow", b.eps(b.node("Abs", "x"), 1e-8), b.constant(np.float32(0.3)))
    return b.sigmoid(b.bias(b.matmul(grown, b.weight(16, 6)), b.weight(6)))


def attention(b):
    normed = b.layernorm("x", 1 + b.weight(16), b.weight(16))
    q, k, v = (b.matmul(normed, b.weight(16, 16)) for _ in range(3))
    scores = b.node("Mul", b.node("MatMul", q, b.node("Transpose", k, perm=[0, 2, 1])), b.constant(np.float32(0.25)))
    mixed = b.node("Add", "x", b.node("MatMul", b.softmax(scores), v))
    hidden = b.gelu(
        b.bias(b.matmul(b.layernorm(mixed, 1 + b.weight(16), b.weight(16)), b.weight(16, 32)), b.weight(32))
    )
    return b.node("Add", mixed, b.matmul(hidden, b.weight(32, 16)))


def perceptron(b):
    hidden = b.relu(b.bias(b.matmul("x", b.weight(16, 32)), b.weight(32)))
    hidden = b.relu(b.bias(b.matmul(hidden, b.weight(32, 16)), b.weight(16)))
    return b.softmax(b.bias(b.matmul(hidden, b.weight(16, 5)), b.weight(5)))


def clamped(b):
    return b.clip(b.bias(b.matmul("x", b.weight(16, 16)), b.weight(16)), -0.7, 0.9)


def rounded(b):
    return b.node("Add", b.round("x"), b.sigmoid(b.matmul("x", b.weight(16, 16))))


def convolved(b):
    image = b.node("Unsqueeze", "x", _axes(b, 1))
    both = b.node("Concat", image, b.node("Neg", image), axis=1)
    image = b.relu(b.conv(both, b.weight(4, 2, 3, 3)))
    image = b.sigmoid(b.conv(image, b.weight(6, 4, 3, 3)))
    return b.matmul(image, b.weight(16, 3))


def log_odds(b):
    share = b.clip(b.sigmoid(b.matmul("x", b.weight(16, 16))), 1e-4, 0.9999)
    return b.node("Log", b.node("Div", share, b.node("Sub", b.constant(np.float32(1)), share)))


MODELS: dict[str, Callable] = {
    each.__name__: each
    for each in (
        spectrum,
        unit_length,
        rms_norm,
        standardized,
        root,
        attention,
        perceptron,
        clamped,
        rounded,
        convolved,
        log_odds,
    )
}


def model(name: str, place: int = -1, spelled: Callable | None = None) -> tuple[onnx.ModelProto, list[str]]:
    """The model of that name, at one place spelled otherwise, and the methods that its places call."""
    builder = Builder((place, spelled))
    output = MODELS[name](builder)
    builder.nodes.append(helper.make_node("Identity", [output], ["y"]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8, 16])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(builder.nodes, name, inputs, outputs, builder.initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made), builder.places


def variants(kinds: dict[str, dict[str, Callable]]) -> Iterator[tuple[str, str, int, Callable]]:
    """Model, what is otherwise, the place and its spelling."""
    for name in MODELS:
        for place, method in enumerate(model(name)[1]):
            for kind, spelled in kinds.get(method, {}).items():
                yield name, f"{place} {method}: {kind}", place, spelled

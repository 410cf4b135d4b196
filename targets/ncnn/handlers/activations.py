"""ONNX activations: layers that take one blob of any sizes."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.ncnn.builder import Builder, raw
from convertkit.targets.ncnn.layers import Parameter
from convertkit.targets.ncnn.tensor import Tensor

activations = Registry()

_UNARY = {
    "Abs": 0, "Neg": 1, "Floor": 2, "Ceil": 3, "Sqrt": 5, "Exp": 7, "Log": 8, "Sin": 9, "Cos": 10, "Tan": 11,
    "Asin": 12, "Acos": 13, "Atan": 14, "Reciprocal": 15, "Round": 18,
}  # fmt: skip
"""Operators of the layer UnaryOp."""
_VERSIONS = {
    **dict.fromkeys(("Abs", "Neg", "Floor", "Ceil", "Sqrt", "Exp", "Log", "Reciprocal"), (13,)),
    **dict.fromkeys(("Sin", "Cos", "Tan", "Asin", "Acos", "Atan"), (7, 22)),
    "Round": (11, 22),
}


def same(b: Builder, kind: str, x: Tensor, parameters: dict[int, Parameter] | None = None) -> Tensor:
    """A layer whose result has the sizes of its input."""
    return b.layer(kind, [x], x.shape, x.sizes, parameters or {})


def unary(b: Builder, kind: str, x: Tensor) -> Tensor:
    """One of the operators of the layer UnaryOp."""
    return same(b, "UnaryOp", x, {0: _UNARY[kind]})


def _plain(kind: str, number: int | None = None) -> Handler:
    def handler(b: Builder, x: Tensor) -> Tensor:
        return same(b, kind, x, {} if number is None else {0: number})

    return handler


for _op, _number in _UNARY.items():
    activations.lowers(_op, since=_VERSIONS[_op])(_plain("UnaryOp", _number))
for _op, _kind, _since in (
    ("Sigmoid", "Sigmoid", (13,)),
    ("Tanh", "TanH", (13,)),
    ("Mish", "Mish", (18, 22)),
    ("Erf", "Erf", (13,)),
    ("Relu", "ReLU", (13, 14)),
):
    activations.lowers(_op, since=_since)(_plain(_kind))


@activations.lowers("LeakyRelu", since=(6, 16))
def leaky_relu(b: Builder, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return same(b, "ReLU", x, {0: alpha})


@activations.lowers("Elu", since=(6, 22))
def elu(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return same(b, "ELU", x, {0: alpha})


@activations.lowers("Selu", since=(6, 22))
def selu(
    b: Builder, x: Tensor, *, alpha: float = 1.6732632423543772848170429916717, gamma: float = 1.0507009873554804934193
) -> Tensor:
    return same(b, "SELU", x, {0: alpha, 1: gamma})


@activations.lowers("HardSigmoid", since=(6, 22))
def hard_sigmoid(b: Builder, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return same(b, "HardSigmoid", x, {0: alpha, 1: beta})


@activations.lowers("HardSwish", since=(14, 22))
def hard_swish(b: Builder, x: Tensor) -> Tensor:
    return same(b, "HardSwish", x, {0: 1 / 6, 1: 0.5})


@activations.lowers("Gelu", since=20)
def gelu(b: Builder, x: Tensor, *, approximate: str = "none") -> Tensor:
    return same(b, "GELU", x, {0: int(approximate == "tanh")})


@activations.lowers("PRelu", since=(9, 16))
def p_relu(b: Builder, x: Tensor, slope: Tensor) -> Tensor:
    """One slope, or one for each channel of a single sample: the layer has none for a batch."""
    numbers = np.asarray(slope.known, np.float32)
    channels = x.shape[1] if x.rank > 1 else 0
    per_channel = numbers.ndim == x.rank - 1 and numbers.shape == (channels, *[1] * (x.rank - 2))
    if numbers.size > 1 and not per_channel and numbers.shape != (1, channels, *[1] * (x.rank - 2)):
        raise Unsupported(f"slopes of sizes {list(numbers.shape)}: ncnn's PReLU has one, or one for each channel")
    if numbers.size > 1 and x.shape[0] != 1:
        raise Unsupported(f"a batch of {x.shape[0]}: ncnn computes one sample at a time; fix the batch to 1")
    plain = b.plain(x)
    return b.layer("PReLU", [plain], x.shape, plain.sizes, {0: numbers.size}, [raw(numbers)])


@activations.lowers("Clip", since=(11, 12, 13))
def clip(b: Builder, x: Tensor, low: Tensor | None, high: Tensor | None) -> Tensor:
    ends = [None if each is None else float(each.known.reshape(-1)[0]) for each in (low, high)]
    least, most = -np.inf if ends[0] is None else ends[0], np.inf if ends[1] is None else ends[1]
    if least > most:
        raise Unsupported(f"a least value of {least:g} above the greatest, {most:g}")
    return same(b, "Clip", x, {0: least, 1: most})


@activations.lowers("Softmax", since=13)
def softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    found, (place,) = b.along(x, [axis])
    return b.layer("Softmax", [found], x.shape, found.sizes, {0: place, 1: 1})

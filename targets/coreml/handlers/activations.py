"""ONNX activations as MIL."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import only_float
from convertkit.targets.coreml.tensor import Tensor

activations = Registry()


def _unary(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor) -> Tensor:
        only_float(x, kind)
        return b.op(kind, x=x)

    return handler


for _op, _kind, _since in (
    ("Sigmoid", "sigmoid", (13,)),
    ("Tanh", "tanh", (13,)),
    ("Softplus", "softplus", (1, 22)),
    ("Softsign", "softsign", (1, 22)),
):
    activations.lowers(_op, since=_since)(_unary(_kind))


@activations.lowers("Relu", since=14)
def relu(b: Builder, x: Tensor) -> Tensor:
    return b.op("relu", x=x) if x.is_float else b.op("maximum", x=x, y=b.full(0, x))


@activations.lowers("LeakyRelu", since=16)
def leaky_relu(b: Builder, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return b.op("leaky_relu", x=x, alpha=b.real(alpha, x))


@activations.lowers("PRelu", since=16)
def p_relu(b: Builder, x: Tensor, slope: Tensor) -> Tensor:
    """``prelu`` takes one slope for each channel; any other shape is a maximum and a scaled minimum."""
    zero = b.full(0, x)
    below = b.op("mul", x=b.op("minimum", x=x, y=zero), y=slope)
    return b.op("add", x=b.op("maximum", x=x, y=zero), y=below)


@activations.lowers("Elu", since=(6, 22))
def elu(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return b.op("elu", x=x, alpha=b.real(alpha, x))


@activations.lowers("Selu", since=(6, 22))
def selu(
    b: Builder, x: Tensor, *, alpha: float = 1.6732632423543772848170429916717, gamma: float = 1.0507009873554804934193
) -> Tensor:
    return b.op("mul", x=b.op("elu", x=x, alpha=b.real(alpha, x)), y=b.full(gamma, x))


@activations.lowers("Celu", since=(12, 28))
def celu(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))``."""
    unit = b.op("elu", x=b.op("mul", x=x, y=b.full(1 / alpha, x)), alpha=b.real(1, x))
    return b.op("mul", x=unit, y=b.full(alpha, x))


@activations.lowers("Gelu", since=20)
def gelu(b: Builder, x: Tensor, *, approximate: str = "none") -> Tensor:
    return b.op("gelu", x=x, mode="TANH_APPROXIMATION" if approximate == "tanh" else "EXACT")


@activations.lowers("HardSigmoid", since=(6, 22))
def hard_sigmoid(b: Builder, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return b.op("sigmoid_hard", x=x, alpha=b.real(alpha, x), beta=b.real(beta, x))


@activations.lowers("HardSwish", since=(14, 22))
def hard_swish(b: Builder, x: Tensor) -> Tensor:
    return b.op("mul", x=x, y=b.op("sigmoid_hard", x=x, alpha=b.real(1 / 6, x), beta=b.real(0.5, x)))


@activations.lowers("Swish", since=24)
def swish(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    if alpha == 1:
        return b.op("silu", x=x)
    return b.op("mul", x=x, y=b.op("sigmoid", x=b.op("mul", x=x, y=b.full(alpha, x))))


@activations.lowers("Mish", since=(18, 22))
def mish(b: Builder, x: Tensor) -> Tensor:
    return b.op("mul", x=x, y=b.op("tanh", x=b.op("softplus", x=x)))


@activations.lowers("ThresholdedRelu", since=(10, 22))
def thresholded_relu(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """A selection: MIL's own keeps what equals ``alpha``, ONNX's does not."""
    return b.select(b.op("greater", x=x, y=b.full(alpha, x)), x, b.full(0, x))


@activations.lowers("Shrink", since=9)
def shrink(b: Builder, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    only_float(x, "Shrink")
    zero = b.full(0, x)
    above = b.select(b.op("greater", x=x, y=b.full(lambd, x)), b.op("sub", x=x, y=b.full(bias, x)), zero)
    is_below = b.op("less", x=x, y=b.full(-lambd, x))
    return b.select(is_below, b.op("add", x=x, y=b.full(bias, x)), above)


@activations.lowers("Softmax", since=13)
def softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    return b.op("softmax", x=x, axis=np.int32(axis))


@activations.lowers("LogSoftmax", since=13)
def log_softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """``x - max - log(sum(exp(x - max)))``, which no small probability makes infinite."""
    axes = (axis % max(x.rank, 1),)
    centred = b.op("sub", x=x, y=b.op("reduce_max", x=x, axes=axes, keep_dims=True))
    return b.op("sub", x=centred, y=b.op("reduce_log_sum_exp", x=centred, axes=axes, keep_dims=True))


@activations.lowers("Hardmax", since=13)
def hardmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    places = b.op("reduce_argmax", x=x, axis=np.int32(axis), keep_dims=False)
    size = np.int32(x.size(axis))
    at = np.int32(axis % x.rank)
    on, off = b.real(1, x), b.real(0, x)
    return b.op("one_hot", indices=places, one_hot_vector_size=size, axis=at, on_value=on, off_value=off)


@activations.lowers("Dropout", since=(13, 22))
def dropout(
    b: Builder, x: Tensor, ratio: Tensor | None, training_mode: Tensor | None, *, seed: int | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """What it does when a model is used: nothing, with a mask of ones."""
    if training_mode is not None and (training_mode.array is None or bool(training_mode.array)):
        raise Unsupported("training_mode, where values are dropped at random")
    mask = b.op("equal", x=x, y=x) if None in x.shape else b.op("fill", shape=x.sizes, value=np.bool_(True))
    return x, mask

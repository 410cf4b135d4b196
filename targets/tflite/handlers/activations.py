"""Activations, from the builtins where they are exact."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import float_only, like, log1p, moved_last
from convertkit.targets.tflite.handlers.elementwise import computed
from convertkit.targets.tflite.tensor import Tensor

activations = Registry()

_SELU_ALPHA, _SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875


def _float_or_quantized(x: Tensor, what: str) -> None:
    """Kernels of activations do not look at plain integers' and doubles' types before they run."""
    if not x.is_quantized:
        float_only(x, what)


@activations.lowers("Relu", since=14)
def relu(b: Builder, x: Tensor) -> Tensor:
    """RELU, or the maximum with zero for integers."""
    if x.dtype == "float32" or x.is_quantized:
        return b.relu(x)
    return computed(b, "MAXIMUM", b.maximum, x, like(b, x, 0))


@activations.lowers("Sigmoid", since=13)
def sigmoid(b: Builder, x: Tensor) -> Tensor:
    _float_or_quantized(x, "Sigmoid")
    return b.logistic(x)


@activations.lowers("Tanh", since=13)
def tanh(b: Builder, x: Tensor) -> Tensor:
    _float_or_quantized(x, "Tanh")
    return b.tanh(x)


@activations.lowers("LeakyRelu", since=16)
def leaky_relu(b: Builder, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    _float_or_quantized(x, "LeakyRelu")
    return b.leaky_relu(x, alpha=alpha)


@activations.lowers("PRelu", since=16)
def prelu(b: Builder, x: Tensor, slope: Tensor) -> Tensor:
    """LEAKY_RELU for one slope, PRELU for one slope per last axis, else chosen element by element."""
    if x.dtype.startswith("u") and not x.is_quantized:
        return x  # nothing is negative
    if x.dtype == "float32" and slope.constant is not None and slope.size == 1:
        return b.leaky_relu(x, alpha=float(slope.constant.reshape(())))
    per_channel = slope.constant is not None and slope.rank and slope.size == slope.shape[-1] == x.shape[-1]
    if x.is_quantized or (per_channel and x.dtype == "float32"):
        return b.prelu(x, slope)
    negative = computed(b, "MUL", b.mul, x, slope)
    if x.is_float:
        return b.select(b.less(x, like(b, x, 0)), negative, x)
    wide = b.cast(x, "int32") if x.dtype != "int64" else x
    return b.select(b.less(wide, like(b, wide, 0)), negative, x)


@activations.lowers("Elu", since=(6, 22))
def elu(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """ELU; its negative side is scaled where alpha is not 1."""
    _float_or_quantized(x, "Elu")
    if alpha == 1.0:
        return b.elu(x)
    return b.add(b.relu(x), b.mul(_negative_elu(b, x), like(b, x, alpha)))


@activations.lowers("Selu", since=(6, 22))
def selu(b: Builder, x: Tensor, *, alpha: float = _SELU_ALPHA, gamma: float = _SELU_GAMMA) -> Tensor:
    float_only(x, "Selu")
    positive = b.mul(b.relu(x), like(b, x, gamma))
    return b.add(positive, b.mul(_negative_elu(b, x), like(b, x, alpha * gamma)))


def _negative_elu(b: Builder, x: Tensor) -> Tensor:
    return b.elu(b.minimum(x, like(b, x, 0)))


@activations.lowers("Celu", since=(12, 28))
def celu(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""
    float_only(x, "Celu")
    if alpha == 1.0:
        return b.elu(x)
    return b.add(b.relu(x), b.mul(_negative_elu(b, b.div(x, like(b, x, alpha))), like(b, x, alpha)))


@activations.lowers("Gelu", since=20)
def gelu(b: Builder, x: Tensor, *, approximate: str = "none") -> Tensor:
    _float_or_quantized(x, "Gelu")
    return b.gelu(x, approximate=approximate == "tanh")


@activations.lowers("HardSwish", since=(14, 22))
def hard_swish(b: Builder, x: Tensor) -> Tensor:
    _float_or_quantized(x, "HardSwish")
    return b.hard_swish(x)


@activations.lowers("HardSigmoid", since=(6, 22))
def hard_sigmoid(b: Builder, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    float_only(x, "HardSigmoid")
    line = b.add(b.mul(x, like(b, x, alpha)), like(b, x, beta))
    return b.minimum(b.maximum(line, like(b, x, 0)), like(b, x, 1))


@activations.lowers("Swish", since=24)
def swish(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    float_only(x, "Swish")
    return b.mul(x, b.logistic(x if alpha == 1.0 else b.mul(x, like(b, x, alpha))))


@activations.lowers("Softplus", since=(1, 22))
def softplus_(b: Builder, x: Tensor) -> Tensor:
    float_only(x, "Softplus")
    return softplus(b, x)


def softplus(b: Builder, x: Tensor) -> Tensor:
    """``max(x, 0) + log1p(exp(-|x|))``, which overflows nowhere."""
    return b.add(b.relu(x), log1p(b, b.exp(b.neg(b.abs(x)))))


@activations.lowers("Mish", since=(18, 22))
def mish(b: Builder, x: Tensor) -> Tensor:
    """``x * tanh(log(1 + w))`` with ``w = exp(x)`` is ``x * n / (n + 2)`` with ``n = w (w + 2)``."""
    float_only(x, "Mish")
    w = b.exp(b.minimum(x, like(b, x, 20.0)))
    n = b.mul(w, b.add(w, like(b, x, 2)))
    return b.mul(x, b.div(n, b.add(n, like(b, x, 2))))


@activations.lowers("Softsign", since=(1, 22))
def softsign(b: Builder, x: Tensor) -> Tensor:
    float_only(x, "Softsign")
    return b.div(x, b.add(b.abs(x), like(b, x, 1)))


@activations.lowers("ThresholdedRelu", since=(10, 22))
def thresholded_relu(b: Builder, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    float_only(x, "ThresholdedRelu")
    return b.select(b.greater(x, like(b, x, alpha)), x, like(b, x, 0))


@activations.lowers("Shrink", since=9)
def shrink(b: Builder, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    float_only(x, "Shrink")
    high = b.select(b.greater(x, like(b, x, lambd)), b.sub(x, like(b, x, bias)), like(b, x, 0))
    return b.select(b.less(x, like(b, x, -lambd)), b.add(x, like(b, x, bias)), high)


@activations.lowers("Softmax", since=13)
def softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """TFLite reduces the last axis only, so another axis is moved there and back."""
    _float_or_quantized(x, "Softmax")
    if 0 in x.shape:  # the delegate takes no axis without elements
        return x
    moved, order = moved_last(b, x, axis % x.rank)
    return b.transpose(b.softmax(moved), order)


@activations.lowers("LogSoftmax", since=13)
def log_softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    _float_or_quantized(x, "LogSoftmax")
    if 0 in x.shape:
        return x
    moved, order = moved_last(b, x, axis % x.rank)
    return b.transpose(b.log_softmax(moved), order)


@activations.lowers("Dropout", since=(13, 22))
def dropout(
    b: Builder, x: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None, *, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    """The identity: nothing is dropped in inference, and the mask is all true."""
    if training_mode is not None and (training_mode.constant is None or bool(training_mode.constant.item())):
        raise Unsupported("training mode")
    return x, b.constant(np.broadcast_to(np.array(True), x.shape))

"""Arithmetic and activations, element by element."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import Tensor

elementwise = Registry()


@elementwise.lowers("Add", since=14)
def add(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.add(x, y)


@elementwise.lowers("Sub", since=14)
def sub(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.sub(x, y)


@elementwise.lowers("Mul", since=14)
def mul(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    return b.mul(x, y)


@elementwise.lowers("Relu", since=14)
def relu(b: Builder, x: Tensor) -> Tensor:
    return b.relu(x)


@elementwise.lowers("Sigmoid", since=13)
def sigmoid(b: Builder, x: Tensor) -> Tensor:
    return b.logistic(x)


@elementwise.lowers("Tanh", since=13)
def tanh(b: Builder, x: Tensor) -> Tensor:
    return b.tanh(x)


@elementwise.lowers("LeakyRelu", since=16)
def leaky_relu(b: Builder, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return b.leaky_relu(x, alpha=alpha)


@elementwise.lowers("Clip", since=13)
def clip(b: Builder, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """``RELU6`` for [0, 6] and its like, else ``MAXIMUM`` then ``MINIMUM``, the order the ONNX text gives."""
    if x.dtype not in b.dtypes("MAXIMUM"):
        raise Unsupported(f"{x.dtype} input: TFLite MAXIMUM takes {', '.join(b.dtypes('MAXIMUM'))}")
    if x.dtype == "float32" and bounds(low, high) == (0.0, 6.0):
        return b.relu6(x)
    if x.dtype == "float32" and bounds(low, high) == (-1.0, 1.0):
        return b.relu_n1_to_1(x)
    if x.dtype == "float32" and bounds(low, high) == (0.0, None):
        return b.relu(x)
    x = x if low is None else b.maximum(x, low)
    return x if high is None else b.minimum(x, high)


@elementwise.lowers("Softmax", since=13)
def softmax(b: Builder, x: Tensor, *, axis: int = -1) -> Tensor:
    """TFLite reduces the last axis only, so another axis is moved there and back."""
    axis %= x.rank
    if axis == x.rank - 1:
        return b.softmax(x)
    swap = list(range(x.rank))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    return b.transpose(b.softmax(b.transpose(x, swap)), swap)


def bounds(low: Tensor | None, high: Tensor | None) -> tuple[float | None, float | None]:
    """Constant bounds of a Clip; a computed bound counts as nan, which equals nothing."""
    return _value(low), _value(high)


def _value(bound: Tensor | None) -> float | None:
    if bound is None:
        return None
    return float("nan") if bound.constant is None else float(bound.constant.item())

"""TFLite activations and normalisations as ONNX.

Source: TFLite reference kernels, ``tensorflow/lite/kernels/activations.cc``.
"""

from __future__ import annotations

from convertkit.converters.tflite import schema
from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import Unsupported

activations = Registry()


def fused(b: Builder, x: Tensor, code: int) -> Tensor:
    """The activation that another operator carries, by its number."""
    match code:
        case schema.NONE:
            return x
        case schema.RELU:
            return relu(b, x)
        case schema.RELU_N1_TO_1:
            return clip(b, x, -1, 1)
        case schema.RELU6:
            return clip(b, x, 0, 6)
        case schema.TANH:
            return tanh(b, x)
    raise Unsupported(f"fused activation {code}")


def clip(b: Builder, x: Tensor, low: float, high: float) -> Tensor:
    """``x`` within [low, high]."""
    return b.map("Clip", [x, b.scalar(low, x), b.scalar(high, x)])


@activations.reads("RELU")
def relu(b: Builder, x: Tensor) -> Tensor:
    return b.map("Relu", [x])


@activations.reads("RELU6")
def relu6(b: Builder, x: Tensor) -> Tensor:
    return clip(b, x, 0, 6)


@activations.reads("RELU_N1_TO_1")
def relu_n1_to_1(b: Builder, x: Tensor) -> Tensor:
    return clip(b, x, -1, 1)


@activations.reads("RELU_0_TO_1")
def relu_0_to_1(b: Builder, x: Tensor) -> Tensor:
    return clip(b, x, 0, 1)


@activations.reads("LEAKY_RELU", "LeakyReluOptions")
def leaky_relu(b: Builder, x: Tensor, *, alpha: float) -> Tensor:
    return b.map("LeakyRelu", [x], {"alpha": alpha})


@activations.reads("PRELU")
def prelu(b: Builder, x: Tensor, alpha: Tensor) -> Tensor:
    return b.map("PRelu", [x, alpha])


@activations.reads("ELU")
def elu(b: Builder, x: Tensor) -> Tensor:
    return b.map("Elu", [x])


@activations.reads("GELU", "GeluOptions")
def gelu(b: Builder, x: Tensor, *, approximate: bool) -> Tensor:
    return b.map("Gelu", [x], {"approximate": "tanh" if approximate else "none"})


@activations.reads("HARD_SWISH")
def hard_swish(b: Builder, x: Tensor) -> Tensor:
    return b.map("HardSwish", [x])


@activations.reads("TANH")
def tanh(b: Builder, x: Tensor) -> Tensor:
    return b.map("Tanh", [x])


@activations.reads("LOGISTIC")
def logistic(b: Builder, x: Tensor) -> Tensor:
    return b.map("Sigmoid", [x])


@activations.reads("SOFTMAX", "SoftmaxOptions")
def softmax(b: Builder, x: Tensor, *, beta: float) -> Tensor:
    """Over the last axis, of ``beta * x``."""
    scaled = x if beta == 1 else b.map("Mul", [x, b.scalar(beta, x)])
    return b.op("Softmax", [scaled], {"axis": -1})


@activations.reads("LOG_SOFTMAX")
def log_softmax(b: Builder, x: Tensor) -> Tensor:
    return b.op("LogSoftmax", [x], {"axis": -1})


@activations.reads("L2_NORMALIZATION", "L2NormOptions")
def l2_normalization(b: Builder, x: Tensor, *, fused_activation_function: int) -> Tensor:
    """Over the last axis; the norm is at least 1e-6 (``reference/l2normalization.h``)."""
    norm = b.op("ReduceL2", [x, b.constant([-1])])
    return fused(b, b.op("Div", [x, b.op("Max", [norm, b.scalar(1e-6, x)])]), fused_activation_function)


@activations.reads("LOCAL_RESPONSE_NORMALIZATION", "LocalResponseNormalizationOptions")
def local_response_normalization(
    b: Builder, x: Tensor, *, radius: int, bias: float, alpha: float, beta: float
) -> Tensor:
    """Across channels; ONNX divides alpha by the window's size, TFLite does not."""
    if bias <= 0:
        raise Unsupported(f"bias={bias}; expected a positive one")
    size = 2 * radius + 1
    attributes = {"size": size, "alpha": alpha * size, "beta": beta, "bias": bias}
    return b.transpose(b.op("LRN", [b.transpose(x, (0, 3, 1, 2))], attributes), (0, 2, 3, 1))

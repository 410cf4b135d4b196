"""Pooling over height and width.  Source: ``tensorflow/lite/kernels/pooling.cc``."""

from __future__ import annotations

from convertkit.converters.tflite.activations import fused
from convertkit.converters.tflite.builder import Builder, Tensor
from convertkit.converters.tflite.convolutions import TO_NCHW, TO_NHWC, window
from convertkit.converters.tflite.registry import Registry

pooling = Registry()


def _pool(b: Builder, name: str, x: Tensor, padding: int, kernel: tuple[int, int], strides: tuple[int, int]) -> Tensor:
    attributes = window(x, padding, kernel, strides)
    return b.transpose(b.op(name, [b.transpose(x, TO_NCHW)], attributes), TO_NHWC)


@pooling.reads("AVERAGE_POOL_2D", "Pool2DOptions", moves=True)
def average_pool_2d(
    b: Builder,
    x: Tensor,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    filter_width: int,
    filter_height: int,
    fused_activation_function: int,
) -> Tensor:
    """Padding does not count, as is ONNX's default."""
    y = _pool(b, "AveragePool", x, padding, (filter_height, filter_width), (stride_h, stride_w))
    return fused(b, y, fused_activation_function)


@pooling.reads("MAX_POOL_2D", "Pool2DOptions", moves=True)
def max_pool_2d(
    b: Builder,
    x: Tensor,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    filter_width: int,
    filter_height: int,
    fused_activation_function: int,
) -> Tensor:
    y = _pool(b, "MaxPool", x, padding, (filter_height, filter_width), (stride_h, stride_w))
    return fused(b, y, fused_activation_function)


@pooling.reads("L2_POOL_2D", "Pool2DOptions")
def l2_pool_2d(
    b: Builder,
    x: Tensor,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    filter_width: int,
    filter_height: int,
    fused_activation_function: int,
) -> Tensor:
    """The root of the mean square, not of the sum."""
    squares = b.map("Mul", [x, x])
    y = _pool(b, "AveragePool", squares, padding, (filter_height, filter_width), (stride_h, stride_w))
    return fused(b, b.map("Sqrt", [y]), fused_activation_function)

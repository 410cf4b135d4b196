"""Convolutions: TFLite is channels-last, ONNX channels-first, so each stands between two transposes.

The builder cancels those between neighbours.  Weights are OHWI, depthwise 1HWC.
Source: ``tensorflow/lite/kernels/{conv,depthwise_conv,transpose_conv}.cc``, ``padding.h``.
"""

from __future__ import annotations

from convertkit.converters.tflite import schema
from convertkit.converters.tflite.activations import fused
from convertkit.converters.tflite.bias import bias_of
from convertkit.converters.tflite.builder import FREE, Attributes, Builder, Tensor
from convertkit.converters.tflite.registry import Registry
from convertkit.errors import SourceError, Unsupported

convolutions = Registry()

TO_NCHW = (0, 3, 1, 2)
TO_NHWC = (0, 2, 3, 1)


def same_padding(size: int, kernel: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """Padding before and after one axis for TFLite's ``SAME``; the odd element goes after."""
    reach = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


def window(
    x: Tensor, padding: int, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...] = ()
) -> dict[str, tuple[int, ...] | str]:
    """ONNX attributes of a window over the inner axes of a channels-last ``x``."""
    dilations = dilations or (1,) * len(kernel)
    if min((*kernel, *strides, *dilations)) < 1:
        raise SourceError(f"window {kernel}, strides {strides}, dilations {dilations}; all must be positive")
    attributes: dict[str, tuple[int, ...] | str] = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    if padding == schema.VALID:
        return attributes
    sizes = x.dims[1:-1]
    if FREE in sizes:
        return {**attributes, "auto_pad": "SAME_UPPER"}
    pads = [same_padding(*axis) for axis in zip(sizes, kernel, strides, dilations, strict=True)]
    return {**attributes, "pads": (*(before for before, _ in pads), *(after for _, after in pads))}


def _convolve(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, attributes: Attributes) -> Tensor:
    inputs = [b.transpose(x, TO_NCHW), w, bias] if bias is not None else [b.transpose(x, TO_NCHW), w]
    return b.transpose(b.op("Conv", inputs, attributes), TO_NHWC)


@convolutions.reads("CONV_2D", "Conv2DOptions")
def conv_2d(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    fused_activation_function: int,
    dilation_w_factor: int,
    dilation_h_factor: int,
) -> Tensor:
    """Fewer channels in the weights than in the input mean groups."""
    channels, held = x.dims[-1], w.dims[-1]
    if held < 1 or channels % held:
        raise SourceError(f"weights for {held} input channels, the input has {channels}")
    strides, dilations = (stride_h, stride_w), (dilation_h_factor, dilation_w_factor)
    attributes = window(x, padding, w.dims[1:3], strides, dilations)
    y = _convolve(b, x, b.transpose(w, TO_NCHW), bias_of(b, bias, x, w), {**attributes, "group": channels // held})
    return fused(b, y, fused_activation_function)


@convolutions.reads("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions")
def depthwise_conv_2d(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    depth_multiplier: int,
    fused_activation_function: int,
    dilation_w_factor: int,
    dilation_h_factor: int,
) -> Tensor:
    """The multiplier follows from the shapes; kernels do not read the option either."""
    channels = x.dims[-1]
    if channels < 1 or w.dims[-1] % channels:
        raise SourceError(f"weights for {w.dims[-1]} channels, the input has {channels}")
    strides, dilations = (stride_h, stride_w), (dilation_h_factor, dilation_w_factor)
    attributes = window(x, padding, w.dims[1:3], strides, dilations)
    y = _convolve(b, x, b.transpose(w, (3, 0, 1, 2)), bias_of(b, bias, x, w), {**attributes, "group": channels})
    return fused(b, y, fused_activation_function)


@convolutions.reads("TRANSPOSE_CONV", "TransposeConvOptions")
def transpose_conv(
    b: Builder,
    output_shape: Tensor,
    w: Tensor,
    x: Tensor,
    bias: Tensor | None = None,
    *,
    padding: int,
    stride_w: int,
    stride_h: int,
    fused_activation_function: int,
) -> Tensor:
    """The padding is the one under which the forward convolution maps the output's size to the input's."""
    shape = output_shape.integers if output_shape.const is not None else b.results[0].shape or ()
    sizes, kernel, strides = x.dims[1:3], w.dims[1:3], (stride_h, stride_w)
    if len(shape) != 4 or FREE in (*shape[1:3], *sizes):
        raise Unsupported("the output's height and width are computed at run time")
    attributes = _transposed_window(sizes, shape[1:3], kernel, strides, padding)
    values = [b.transpose(x, TO_NCHW), b.transpose(w, (3, 0, 1, 2))]
    values += [each for each in [bias_of(b, bias, x, w)] if each is not None]
    y = b.transpose(b.op("ConvTranspose", values, attributes), TO_NHWC)
    return fused(b, y, fused_activation_function)


def _transposed_window(
    sizes: tuple[int, ...], shape: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], padding: int
) -> Attributes:
    """ONNX attributes under which the forward convolution maps ``shape`` to ``sizes``."""
    before, after, extra = [], [], []
    for out, size, reach, stride in zip(shape, sizes, kernel, strides, strict=True):
        front = same_padding(out, reach, stride)[0] if padding == schema.SAME else 0
        behind = (size - 1) * stride + reach - front - out
        before.append(front)
        after.append(max(behind, 0))
        extra.append(max(-behind, 0))
    return {"kernel_shape": kernel, "strides": strides, "pads": (*before, *after), "output_padding": tuple(extra)}


@convolutions.reads("CONV_3D", "Conv3DOptions")
def conv_3d(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    padding: int,
    stride_d: int,
    stride_w: int,
    stride_h: int,
    fused_activation_function: int,
    dilation_d_factor: int,
    dilation_w_factor: int,
    dilation_h_factor: int,
) -> Tensor:
    """Weights are DHWIO."""
    strides = (stride_d, stride_h, stride_w)
    attributes = window(x, padding, w.dims[:3], strides, (dilation_d_factor, dilation_h_factor, dilation_w_factor))
    group = x.dims[-1] // w.dims[3]
    values = [b.transpose(x, (0, 4, 1, 2, 3)), b.transpose(w, (4, 3, 0, 1, 2))]
    values += [] if bias is None else [bias]
    y = b.transpose(b.op("Conv", values, {**attributes, "group": group}), (0, 2, 3, 4, 1))
    return fused(b, y, fused_activation_function)


@convolutions.reads("CONV_3D_TRANSPOSE", "Conv3DOptions")
def conv_3d_transpose(
    b: Builder,
    output_shape: Tensor,
    w: Tensor,
    x: Tensor,
    bias: Tensor | None = None,
    *,
    padding: int,
    stride_d: int,
    stride_w: int,
    stride_h: int,
    fused_activation_function: int,
    dilation_d_factor: int,
    dilation_w_factor: int,
    dilation_h_factor: int,
) -> Tensor:
    """Weights are DHWOI."""
    if (dilation_d_factor, dilation_h_factor, dilation_w_factor) != (1, 1, 1):
        raise Unsupported("dilation of a transposed convolution")
    shape = output_shape.integers if output_shape.const is not None else b.results[0].shape or ()
    if len(shape) != 5 or FREE in (*shape[1:4], *x.dims[1:4]):
        raise Unsupported("the output's sizes are computed at run time")
    attributes = _transposed_window(x.dims[1:4], shape[1:4], w.dims[:3], (stride_d, stride_h, stride_w), padding)
    values = [b.transpose(x, (0, 4, 1, 2, 3)), b.transpose(w, (4, 3, 0, 1, 2))]
    values += [] if bias is None else [bias]
    y = b.transpose(b.op("ConvTranspose", values, attributes), (0, 2, 3, 4, 1))
    return fused(b, y, fused_activation_function)

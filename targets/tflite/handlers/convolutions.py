"""Convolutions over channels-last images (domain ``convertkit.nhwc``).

The layout pass has moved images to channels-last; weights still come as ONNX has them (output
channels, channels per group, then the window).  A signal is an image of height 1.
"""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.windows import Window
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.builder.core import static
from convertkit.targets.tflite.handlers.apart import apart
from convertkit.targets.tflite.handlers.depthwise import is_wide, wide_depthwise
from convertkit.targets.tflite.handlers.rows import conv_rows, outputs_together
from convertkit.targets.tflite.handlers.window import own_padding, pads_at_run_time, window
from convertkit.targets.tflite.tensor import QuantParams, Tensor

convolutions = Registry()


@convolutions.lowers_custom("Conv", domain=NHWC)
def conv(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """CONV_2D, DEPTHWISE_CONV_2D where each group has one channel, CONV_3D for volumes."""
    static(w.shape, "a kernel")
    if x.rank not in (3, 4, 5):
        raise Unsupported(f"a convolution over {x.rank - 2} spatial axes: TFLite has 1 to 3")
    if x.rank == 3:
        return _as_image(b, x, w, bias, auto_pad, dilations, group, pads, strides)
    is_same = pads_at_run_time(x.shape[1:-1], strides, auto_pad)
    win = window(x.shape[1:-1], w.shape[2:], strides, dilations, pads, "VALID" if is_same else auto_pad)
    bias = kernel_bias(b, x, w, bias)
    if x.rank == 5:
        return _volume(b, x, w, bias, win, group, is_same)
    outputs = outputs_together(b, x, w, bias, win) if group == 1 else 0
    if outputs and bias is not None:
        return conv_rows(b, x, w, bias, win, outputs)
    padding = "SAME" if is_same else own_padding(win, x.shape[1:-1])
    if padding is None:
        x = b.pad(x, ((0, 0), *win.pads, (0, 0)))
        padding = "VALID"
    strides_2, dilations_2 = pair(win.strides), pair(win.dilations)
    if group == x.shape[-1] and w.shape[1] == 1 and group > 1:
        if padding == "SAME" and w.shape[0] == group and is_wide(b, x, w, strides_2, dilations_2):
            return wide_depthwise(b, x, w, bias)
        kernel = b.transpose(w, (1, 2, 3, 0))
        return b.depthwise_conv_2d(x, kernel, bias, padding=padding, strides=strides_2, dilations=dilations_2)
    kernel = b.transpose(w, (0, 2, 3, 1))
    return b.conv_2d(x, kernel, bias, padding=padding, strides=strides_2, dilations=dilations_2)


def _as_image(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    auto_pad: str,
    dilations: tuple[int, ...] | None,
    group: int,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Tensor:
    """A signal as an image of height 1."""
    image = conv(
        b,
        b.expand_dims(x, 1),
        b.reshape_weight(w, (*w.shape[:2], 1, w.shape[2])),
        bias,
        auto_pad=auto_pad,
        dilations=None if dilations is None else (1, *dilations),
        group=group,
        pads=None if pads is None else (0, pads[0], 0, pads[1]),
        strides=None if strides is None else (1, *strides),
    )
    return b.squeeze(image, (1,))


def _volume(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, win: Window, group: int, is_same: bool) -> Tensor:
    """CONV_3D, once for each group: the kernel knows none."""
    padding = "SAME" if is_same else own_padding(win, x.shape[1:-1])
    if padding is None:
        x = b.pad(x, ((0, 0), *win.pads, (0, 0)))
        padding = "VALID"
    strides, dilations = triple(win.strides), triple(win.dilations)
    parts = b.split(x, 4, [x.shape[4] // group] * group)
    kernels = b.split_constant(w, 0, group)
    biases = [None] * group if bias is None else b.split_constant(bias, 0, group)
    results = [
        b.conv_3d(
            part, b.transpose(kernel, (2, 3, 4, 1, 0)), offset, padding=padding, strides=strides, dilations=dilations
        )
        for part, kernel, offset in zip(parts, kernels, biases, strict=True)
    ]
    return b.concatenation(results, 4)


def kernel_bias(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """The bias that the kernel wants: zeros where there is none, integers of scale input × weight."""
    count = w.shape[0]
    if not x.is_quantized:
        return bias if bias is not None else b.constant(np.zeros(count, np.float32))
    return integer_bias(b, x, w, bias, count)


def integer_bias(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, count: int) -> Tensor:
    """int32 (int64 for int16 activations) with scale input × weight, zero point 0.

    An int32 bias of that scale already is taken as it is; another one, or a float one, is rounded to it.
    Source: TFLite quantization specification, "bias".
    """
    assert x.quantization is not None
    assert w.quantization is not None
    scale = np.float32(x.quantization.scale[0]) * np.array(w.quantization.scale, np.float32)
    kind = np.int64 if x.dtype == "int16" else np.int32
    if bias is None:
        steps = np.zeros(count, kind)
    elif bias.constant is None:
        raise Unsupported("a bias that is computed, behind quantized weights")
    else:
        steps = _in_steps(bias, scale, kind)
    axis = 0 if len(scale) > 1 else None
    params = QuantParams(tuple(float(s) for s in scale), (0,) * len(scale), axis)
    return b.constant(steps, params)


def _in_steps(bias: Tensor, scale: np.ndarray, kind: type[np.int32] | type[np.int64]) -> np.ndarray:
    assert bias.constant is not None
    real = bias.constant.astype(np.float64)
    if bias.quantization is not None:
        own = np.array(bias.quantization.scale, np.float32)
        if np.allclose(own, scale, rtol=1e-6, atol=0.0):
            return bias.constant.astype(kind)
        real = (real - np.array(bias.quantization.zero_point)) * own.astype(np.float64)
    steps = np.rint(real / scale.astype(np.float64))
    limits = np.iinfo(kind)
    if steps.size and (steps.max() > limits.max or steps.min() < limits.min):
        raise Unsupported(f"a bias of {abs(real).max():.3g} overflows {kind.__name__} at scale input × weight")
    return steps.astype(kind)


def dilated(b: Builder, w: Tensor, dilations: tuple[int, ...] | None) -> Tensor:
    """TRANSPOSE_CONV has no dilation: zeros go between the window's elements."""
    if dilations is None or all(step == 1 for step in dilations):
        return w
    if w.constant is None:
        return apart(b, w, (1, 1, *dilations))
    size = tuple((kernel - 1) * step + 1 for kernel, step in zip(w.shape[2:], dilations, strict=True))
    spread = np.zeros((*w.shape[:2], *size), w.constant.dtype)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in dilations))] = w.constant
    return b.constant(spread, w.quantization)


def pair(values: tuple[int, ...]) -> tuple[int, int]:
    first, second = values
    return first, second


def triple(values: tuple[int, ...]) -> tuple[int, int, int]:
    first, second, third = values
    return first, second, third

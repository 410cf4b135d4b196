"""Convolutions over channels-last images (domain ``convertkit.nhwc``).

The layout pass has moved images to channels-last; weights still come as ONNX has them (output
channels, channels per group, then the window).  A signal is an image of height 1.
"""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.builder.core import static
from convertkit.targets.tflite.handlers.depthwise import is_wide, wide_depthwise
from convertkit.targets.tflite.handlers.volumes import Spread, spread_volume
from convertkit.targets.tflite.handlers.window import Pads, Window, window
from convertkit.targets.tflite.marks import NHWC
from convertkit.targets.tflite.tensor import DYNAMIC, QuantParams, Tensor

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
    win = window(x.shape[1:-1], w.shape[2:], strides, dilations, pads, auto_pad)
    bias = _bias(b, x, w, bias)
    if x.rank == 5:
        return _volume(b, x, w, bias, win, group)
    padding = win.padding(x.shape[1:-1])
    if padding is None:
        x = b.pad(x, ((0, 0), *win.pads, (0, 0)))
        padding = "VALID"
    strides_2, dilations_2 = _pair(win.strides), _pair(win.dilations)
    if group == x.shape[-1] and w.shape[1] == 1 and group > 1:
        if padding == "SAME" and w.shape[0] == group and is_wide(x, w, strides_2, dilations_2):
            return wide_depthwise(b, x, w, bias)
        kernel = b.transpose(w, (1, 2, 3, 0))
        return b.depthwise_conv_2d(x, kernel, bias, padding=padding, strides=strides_2, dilations=dilations_2)
    kernel = b.transpose(w, (0, 2, 3, 1))
    return b.conv_2d(x, kernel, bias, padding=padding, strides=strides_2, dilations=dilations_2)


@convolutions.lowers_custom("ConvTranspose", domain=NHWC)
def conv_transpose(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: tuple[int, ...] | None = None,
    group: int = 1,
    kernel_shape: tuple[int, ...] | None = None,
    output_padding: tuple[int, ...] | None = None,
    output_shape: tuple[int, ...] | None = None,
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """TRANSPOSE_CONV without padding, cut to the size that ONNX's pads leave."""
    static(w.shape, "a kernel")
    if x.rank == 3:
        lift = (1,)
        image = conv_transpose(
            b, b.expand_dims(x, 1), b.reshape_weight(w, (*w.shape[:2], 1, w.shape[2])), bias,
            auto_pad=auto_pad, dilations=None if dilations is None else lift + dilations, group=group,
            output_padding=None if output_padding is None else (0, *output_padding),
            output_shape=None if output_shape is None else lift + output_shape[-1:],
            pads=None if pads is None else (0, pads[0], 0, pads[1]),
            strides=None if strides is None else lift + strides,
        )  # fmt: skip
        return b.squeeze(image, (1,))
    if x.rank == 5:
        asked = (output_padding, output_shape, pads, auto_pad)
        return _volume_transpose(b, x, w, bias, strides or (1, 1, 1), dilations or (1, 1, 1), group, asked)
    if x.rank != 4:
        raise Unsupported(f"a transposed convolution over {x.rank - 2} spatial axes")
    if group != 1:
        return _grouped_transpose(
            b, x, w, bias, group, auto_pad, dilations, output_padding, output_shape, pads, strides
        )
    steps = strides or (1,) * (x.rank - 2)
    w = _dilated(b, w, dilations)
    full = tuple(
        DYNAMIC if size == DYNAMIC else (size - 1) * step + kernel
        for size, step, kernel in zip(x.shape[1:-1], steps, w.shape[2:], strict=True)
    )
    cut, extra = _transpose_pads(full, x.shape[1:-1], steps, output_padding, output_shape, pads, auto_pad)
    bias = _bias(b, x, b.transpose(w, (1, 0, 2, 3)), bias)
    shape = (x.shape[0], *full, w.shape[1])
    kernel = b.transpose(w, (1, 2, 3, 0))
    if any(extra):
        raise_on = [amount for amount in extra if amount]
        return _with_extra(b, x, kernel, bias, shape, cut, extra, _pair(steps), raise_on)
    if _cut_is_same(cut, w.shape[2:], steps):
        out = tuple(
            DYNAMIC if size == DYNAMIC else size * step for size, step in zip(x.shape[1:-1], steps, strict=True)
        )
        sizes = _output_sizes(b, x, (x.shape[0], *out, w.shape[1]), w.shape[2:], steps, same=True)
        return b.transpose_conv(
            x, kernel, bias, sizes=sizes, shape=(x.shape[0], *out, w.shape[1]), padding="SAME", strides=_pair(steps)
        )
    sizes = _output_sizes(b, x, shape, w.shape[2:], steps, same=False)
    y = b.transpose_conv(x, kernel, bias, sizes=sizes, shape=shape, padding="VALID", strides=_pair(steps))
    return _cropped(b, y, cut)


def _volume_transpose(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    group: int,
    asked: tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[int, ...] | None, str],
) -> Tensor:
    """``asked`` are output_padding, output_shape, pads and auto_pad."""
    sizes = static(x.shape[1:-1], "a transposed convolution of volumes")
    reach = tuple((kernel - 1) * hole + 1 for kernel, hole in zip(w.shape[2:], dilations, strict=True))
    full = tuple((size - 1) * step + far for size, step, far in zip(sizes, strides, reach, strict=True))
    cut, extra = _transpose_pads(full, sizes, strides, *asked)
    return spread_volume(b, x, w, bias, Spread(_triple(strides), _triple(dilations), cut, extra, group))


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


def _volume(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, win: Window, group: int) -> Tensor:
    """CONV_3D, once for each group: the kernel knows none."""
    padding = win.padding(x.shape[1:-1])
    if padding is None:
        x = b.pad(x, ((0, 0), *win.pads, (0, 0)))
        padding = "VALID"
    strides, dilations = _triple(win.strides), _triple(win.dilations)
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


def _bias(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
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


def _dilated(b: Builder, w: Tensor, dilations: tuple[int, ...] | None) -> Tensor:
    """TRANSPOSE_CONV has no dilation: zeros go between the window's elements."""
    if dilations is None or all(step == 1 for step in dilations):
        return w
    if w.constant is None:
        raise Unsupported("a dilated transposed convolution whose weights are computed")
    size = tuple((kernel - 1) * step + 1 for kernel, step in zip(w.shape[2:], dilations, strict=True))
    spread = np.zeros((*w.shape[:2], *size), w.constant.dtype)
    spread[(slice(None), slice(None), *(slice(None, None, step) for step in dilations))] = w.constant
    return b.constant(spread, w.quantization)


def _transpose_pads(
    full: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    output_padding: tuple[int, ...] | None,
    output_shape: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
) -> tuple[Pads, tuple[int, ...]]:
    """What to cut before and after each axis of the full result, and the elements missing at its end.

    Source: ONNX operators, ConvTranspose-11, "output_shape" and "total_padding".
    """
    rank = len(full)
    extra = output_padding or (0,) * rank
    wanted = output_shape[-rank:] if output_shape else None
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * stride for size, stride in zip(sizes, strides, strict=True))
    if wanted is None:
        pads = pads if pads is not None and auto_pad == "NOTSET" else (0,) * (2 * rank)
        cut = tuple((pads[axis], pads[axis + rank] - extra[axis]) for axis in range(rank))
    else:
        if DYNAMIC in full:
            raise Unsupported("an output shape that depends on sizes known at run time only")
        cut = tuple(
            _shared(size + more - want, auto_pad, more) for size, more, want in zip(full, extra, wanted, strict=True)
        )
    return tuple((before, max(after, 0)) for before, after in cut), tuple(max(-after, 0) for _, after in cut)


def _shared(total: int, auto_pad: str, extra: int) -> tuple[int, int]:
    half = total // 2
    before = half if auto_pad == "SAME_UPPER" else total - half
    return before, total - before - extra


def _cut_is_same(cut: Pads, kernel: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the kernel's own SAME scheme cuts exactly this."""
    for (before, after), size, stride in zip(cut, kernel, strides, strict=True):
        total = size - stride
        if total < 0 or (before, after) != (total // 2, total - total // 2):
            return False
    return True


def _with_extra(
    b: Builder,
    x: Tensor,
    kernel: Tensor,
    bias: Tensor,
    shape: tuple[int, ...],
    cut: Pads,
    extra: tuple[int, ...],
    strides: tuple[int, int],
    missing: list[int],
) -> Tensor:
    """``output_padding`` beyond the window: a kernel with zeros at its end makes the full result longer."""
    if kernel.constant is None or DYNAMIC in shape:
        raise Unsupported(f"output_padding of {missing} beyond the window, for weights or sizes that are computed")
    wide = np.pad(kernel.constant, ((0, 0), (0, extra[0]), (0, extra[1]), (0, 0)))
    grown = (shape[0], shape[1] + extra[0], shape[2] + extra[1], shape[3])
    kernel = b.constant(wide, kernel.quantization)
    y = b.transpose_conv(x, kernel, bias, sizes=b.ints(grown), shape=grown, padding="VALID", strides=strides)
    return _cropped(b, y, cut)


def _output_sizes(
    b: Builder, x: Tensor, shape: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], *, same: bool
) -> Tensor:
    """The output's shape as int32, computed where it is not known."""
    if DYNAMIC not in shape:
        return b.ints(shape)
    parts: list[int | Tensor] = []
    for axis, size in enumerate(shape):
        if size != DYNAMIC:
            parts.append(size)
        elif axis == 0:
            parts.append(b.size_of(x, 0))
        else:
            grown = b.mul(b.size_of(x, axis), b.ints([strides[axis - 1]]))
            more = 0 if same else kernel[axis - 1] - strides[axis - 1]
            parts.append(b.add(grown, b.ints([more])) if more else grown)
    return b.sizes(parts)


def _cropped(b: Builder, y: Tensor, cut: Pads) -> Tensor:
    """``y`` without ``cut`` at each spatial side."""
    if not any(before or after for before, after in cut):
        return y
    begin = (0, *(before for before, _ in cut), 0)
    if DYNAMIC not in y.shape[1:3]:
        sizes = tuple(size - before - after for size, (before, after) in zip(y.shape[1:3], cut, strict=True))
        return b.slice(y, begin, (-1 if y.shape[0] == DYNAMIC else y.shape[0], *sizes, y.shape[3]))
    ends = (0, *(-after for _, after in cut), 0)
    open_ends = sum(1 << axis for axis, end in enumerate(ends) if end == 0)
    shape = tuple(
        DYNAMIC if size == DYNAMIC else size - before - after
        for size, (before, after) in zip(y.shape, ((0, 0), *cut, (0, 0)), strict=True)
    )
    return b.strided_slice(y, begin, ends, (1, 1, 1, 1), shape, end_mask=open_ends)


def _grouped_transpose(
    b: Builder,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    group: int,
    auto_pad: str,
    dilations: tuple[int, ...] | None,
    output_padding: tuple[int, ...] | None,
    output_shape: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
) -> Tensor:
    """One transposed convolution for each group, joined along the channels."""
    parts = b.split(x, 3, [x.shape[3] // group] * group)
    kernels = b.split_constant(w, 0, group)
    biases = [None] * group if bias is None else b.split_constant(bias, 0, group)
    results = [
        conv_transpose(
            b,
            part,
            kernel,
            offset,
            auto_pad=auto_pad,
            dilations=dilations,
            output_padding=output_padding,
            output_shape=output_shape,
            pads=pads,
            strides=strides,
        )
        for part, kernel, offset in zip(parts, kernels, biases, strict=True)
    ]
    return b.concatenation(results, 3)


def _pair(values: tuple[int, ...]) -> tuple[int, int]:
    first, second = values
    return first, second


def _triple(values: tuple[int, ...]) -> tuple[int, int, int]:
    first, second, third = values
    return first, second, third

"""Transposed convolutions over channels-last images: the whole result, then cut to what ONNX's pads leave."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.windows import Pads
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.builder.core import static
from convertkit.targets.tflite.handlers.convolutions import dilated, kernel_bias, pair, triple
from convertkit.targets.tflite.handlers.volumes import Spread, spread_volume
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

transposed = Registry()


@dataclass(frozen=True, slots=True)
class Asked:
    """How the window moves, and what ONNX lets a model say about the size of the result."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int
    output_padding: tuple[int, ...] | None
    output_shape: tuple[int, ...] | None
    pads: tuple[int, ...] | None
    auto_pad: str

    def of_image(self) -> Asked:
        """The same for a signal as an image of height 1."""
        return replace(
            self,
            strides=(1, *self.strides),
            dilations=(1, *self.dilations),
            output_padding=None if self.output_padding is None else (0, *self.output_padding),
            output_shape=None if self.output_shape is None else (1, *self.output_shape[-1:]),
            pads=None if self.pads is None else (0, self.pads[0], 0, self.pads[1]),
        )


@transposed.lowers_custom("ConvTranspose", domain=NHWC)
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
    static(w.shape, "a kernel")
    ones = (1,) * (x.rank - 2)
    asked = Asked(strides or ones, dilations or ones, group, output_padding, output_shape, pads, auto_pad)
    if x.rank == 3:
        tall = b.reshape_weight(w, (*w.shape[:2], 1, w.shape[2]))
        return b.squeeze(_images(b, b.expand_dims(x, 1), tall, bias, asked.of_image()), (1,))
    if x.rank == 4:
        return _images(b, x, w, bias, asked)
    if x.rank == 5:
        return _volumes(b, x, w, bias, asked)
    raise Unsupported(f"a transposed convolution over {x.rank - 2} spatial axes")


def _images(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, asked: Asked) -> Tensor:
    """One transposed convolution for each group, joined along the channels."""
    if asked.group == 1:
        return _image(b, x, w, bias, asked)
    parts = b.split(x, 3, [x.shape[3] // asked.group] * asked.group)
    kernels = b.split_constant(w, 0, asked.group)
    biases = [None] * asked.group if bias is None else b.split_constant(bias, 0, asked.group)
    operands = zip(parts, kernels, biases, strict=True)
    return b.concatenation([_image(b, part, kernel, offset, asked) for part, kernel, offset in operands], 3)


def _image(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, asked: Asked) -> Tensor:
    """TRANSPOSE_CONV without padding, cut; with the kernel's own padding where that cuts the same."""
    steps = asked.strides
    w = dilated(b, w, asked.dilations)
    window = w.shape[2:]
    sizes = x.shape[1:-1]
    full = tuple(
        DYNAMIC if size == DYNAMIC else (size - 1) * step + kernel
        for size, step, kernel in zip(sizes, steps, window, strict=True)
    )
    cut, extra = _pads(full, sizes, asked)
    bias = kernel_bias(b, x, b.transpose(w, (1, 0, 2, 3)), bias)
    kernel = b.transpose(w, (1, 2, 3, 0))
    if any(extra):
        kernel = _widened(b, kernel, extra)
        window = tuple(size + more for size, more in zip(window, extra, strict=True))
        full = tuple(size if size == DYNAMIC else size + more for size, more in zip(full, extra, strict=True))
    shape = (x.shape[0], *full, w.shape[1])
    same = not any(extra) and _cut_is_same(cut, window, steps)
    if same:
        out = (DYNAMIC if size == DYNAMIC else size * step for size, step in zip(sizes, steps, strict=True))
        shape = (x.shape[0], *out, w.shape[1])
    wanted = _output_sizes(b, x, shape, window, steps, same=same)
    y = b.transpose_conv(
        x, kernel, bias, sizes=wanted, shape=shape, padding="SAME" if same else "VALID", strides=pair(steps)
    )
    return y if same else _cropped(b, y, cut)


def _volumes(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, asked: Asked) -> Tensor:
    sizes = static(x.shape[1:-1], "a transposed convolution of volumes")
    reach = tuple((kernel - 1) * hole + 1 for kernel, hole in zip(w.shape[2:], asked.dilations, strict=True))
    full = tuple((size - 1) * step + far for size, step, far in zip(sizes, asked.strides, reach, strict=True))
    cut, extra = _pads(full, sizes, asked)
    return spread_volume(b, x, w, bias, Spread(triple(asked.strides), triple(asked.dilations), cut, extra, asked.group))


def _pads(full: tuple[int, ...], sizes: tuple[int, ...], asked: Asked) -> tuple[Pads, tuple[int, ...]]:
    """What to cut before and after each axis of the full result, and the elements missing at its end.

    Source: ONNX operators, ConvTranspose-11, "output_shape" and "total_padding".
    """
    rank = len(full)
    extra = asked.output_padding or (0,) * rank
    wanted = asked.output_shape[-rank:] if asked.output_shape else None
    if wanted is None and asked.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        # A stride beyond the kernel cuts nothing: so say ONNX's inference of sizes and ONNX Runtime.
        pairs = zip(sizes, asked.strides, full, extra, strict=True)
        wanted = tuple(min(size * stride, whole + more) for size, stride, whole, more in pairs)
    if wanted is None:
        pads = asked.pads if asked.pads is not None and asked.auto_pad == "NOTSET" else (0,) * (2 * rank)
        cut = tuple((pads[axis], pads[axis + rank] - extra[axis]) for axis in range(rank))
    else:
        if DYNAMIC in full:
            raise UnknownSize("an output shape that depends on sizes known at run time only")
        cut = tuple(
            _shared(size + more - want, asked.auto_pad, more)
            for size, more, want in zip(full, extra, wanted, strict=True)
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


def _widened(b: Builder, kernel: Tensor, extra: tuple[int, ...]) -> Tensor:
    """``output_padding`` beyond the window: zeros at the end of a kernel make the full result that much longer."""
    if kernel.constant is None:
        raise Unsupported(f"output_padding of {max(extra)} beyond the window, for weights that are computed")
    wide = np.pad(kernel.constant, ((0, 0), (0, extra[0]), (0, extra[1]), (0, 0)))
    return b.constant(wide, kernel.quantization)


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

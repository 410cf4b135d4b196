"""Sliding windows, with the defaults that ONNX states in prose only.

A node states attributes (:class:`Stated`, :class:`Transposed`, :class:`Pool`); over the sizes of an image they are a
:class:`Window`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convertkit.errors import UnknownSize

Pads = tuple[tuple[int, int], ...]
"""Elements before and after each spatial axis."""
Sizes = Sequence[int | None]
"""Of the spatial axes, None where one is dynamic."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window over spatial axes, the outermost first, with every default filled in."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads

    @property
    def reaches(self) -> tuple[int, ...]:
        """From the first element of a window to its last, dilations included."""
        return tuple((width - 1) * gap + 1 for width, gap in zip(self.kernel, self.dilations, strict=True))

    def grown(self, sizes: Sizes) -> Window:
        """With the padding at the end that ``ceil_mode`` implies, a last window inside of the padding left out.

        Source: ONNX operators, MaxPool-22, shape inference.
        """
        found = []
        for axis, ((before, after), reach, stride) in enumerate(
            zip(self.pads, self.reaches, self.strides, strict=True)
        ):
            size = _known(sizes, axis)
            count = -(-(size + before + after - reach) // stride) + 1
            if (count - 1) * stride >= size + before:
                count -= 1
            found.append((before, max((count - 1) * stride + reach - size - before, 0)))
        return replace(self, pads=tuple(found))

    def covered(self, sizes: Sizes) -> Window:
        """With padding at the end over which windows fit as often as ``ceil_mode`` says, for maxima of any size.

        On a dynamic axis it is one element less than the stride: a window fits once more where there is a rest.  No
        window lies in the padding alone where its reach is not below the padding and the stride.
        """
        found = []
        for axis, ((before, after), reach, stride) in enumerate(
            zip(self.pads, self.reaches, self.strides, strict=True)
        ):
            if sizes[axis] is None and reach >= after + stride:
                found.append((before, after + stride - 1))
            else:
                one = Window((self.kernel[axis],), (stride,), (self.dilations[axis],), ((before, after),))
                _known(sizes, axis)
                found += one.grown((sizes[axis],)).pads
        return replace(self, pads=tuple(found))

    def counts(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many windows there are along each axis."""
        axes = zip(sizes, self.pads, self.reaches, self.strides, strict=True)
        return tuple((size + sum(pad) - reach) // step + 1 for size, pad, reach, step in axes)

    def transposed_sizes(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Of a transposed convolution's result, from which ``pads`` are cut off."""
        axes = zip(sizes, self.pads, self.reaches, self.strides, strict=True)
        return tuple((size - 1) * step + reach - sum(pad) for size, pad, reach, step in axes)


@dataclass(frozen=True, slots=True)
class Stated:
    """A window's attributes as a node states them, but the kernel's sizes."""

    strides: tuple[int, ...] | None = None
    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    auto_pad: str = "NOTSET"

    def over(self, sizes: Sizes, kernel: tuple[int, ...]) -> Window:
        """The window over an image; ``Unsupported`` where its padding depends on a dynamic dimension.

        Source: ONNX operators, Conv-11 and MaxPool-12, ``auto_pad``.
        """
        rank = len(kernel)
        strides, dilations = self.strides or (1,) * rank, self.dilations or (1,) * rank
        if self.auto_pad in _SAME:
            axes = zip(sizes, kernel, strides, dilations, strict=True)
            border = tuple(_same(*axis, lower=self.auto_pad == "SAME_LOWER") for axis in axes)
        elif self.auto_pad == "VALID" or self.pads is None:
            border = ((0, 0),) * rank
        else:
            border = tuple(zip(self.pads[:rank], self.pads[rank:], strict=True))
        return Window(kernel, strides, dilations, border)


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool's attributes as a node states them."""

    kernel: tuple[int, ...]
    stated: Stated
    ceil_mode: bool
    count_include_pad: bool = False

    def stated_window(self, sizes: Sizes) -> Window:
        """Without what ``ceil_mode`` adds."""
        return self.stated.over(sizes, self.kernel)

    def window(self, sizes: Sizes) -> Window:
        """With what ``ceil_mode`` adds."""
        found = self.stated_window(sizes)
        return found.grown(sizes) if self.ceil_mode else found


@dataclass(frozen=True, slots=True)
class Transposed:
    """A transposed convolution's attributes as a node states them, but the kernel's sizes."""

    stated: Stated
    output_padding: tuple[int, ...] | None
    output_shape: tuple[int, ...] | None

    def over(self, sizes: Sizes, kernel: tuple[int, ...]) -> Window:
        """Its pads are what the result loses at both ends of each axis; negative where something is added.

        Source: ONNX operators, ConvTranspose-11.
        """
        rank, stated, wanted = len(kernel), self.stated, self.output_shape
        extra, pads = self.output_padding or (0,) * rank, stated.pads or (0,) * (2 * rank)
        whole = replace(stated, pads=None, auto_pad="NOTSET").over(sizes, kernel)
        if wanted is None and stated.auto_pad not in _SAME:
            found = [(pads[axis], pads[axis + rank] - extra[axis]) for axis in range(rank)]
            return replace(whole, pads=tuple(found))
        found = []
        for axis, (more, step, reach) in enumerate(zip(extra, whole.strides, whole.reaches, strict=True)):
            size = _known(sizes, axis)
            whole_size = step * (size - 1) + more + reach
            # A stride beyond the kernel cuts nothing: so say ONNX's inference of sizes and ONNX Runtime.
            total = whole_size - (min(size * step, whole_size) if wanted is None else wanted[-rank:][axis])
            half = total // 2
            before, after = (half, total - half) if stated.auto_pad == "SAME_UPPER" else (total - half, half)
            if total < 0:
                before, after = 0, total
            found.append((before, after - more))
        return replace(whole, pads=tuple(found))


_SAME = ("SAME_UPPER", "SAME_LOWER")


def _same(size: int | None, kernel: int, stride: int, dilation: int, *, lower: bool) -> tuple[int, int]:
    reach = (kernel - 1) * dilation + 1
    if size is None and stride != 1:
        raise UnknownSize("auto_pad with a stride over a dynamic dimension")
    total = reach - 1 if size is None else max((-(-size // stride) - 1) * stride + reach - size, 0)
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def _known(sizes: Sizes, axis: int) -> int:
    size = sizes[axis]
    if size is None:
        raise UnknownSize(f"the size of axis {axis + 2} is dynamic, and this needs it")
    return size

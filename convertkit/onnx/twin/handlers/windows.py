"""Windows over spatial axes: padding, sizes, and views, for convolutions and pools of any rank.

Source: ONNX operators, ``auto_pad``, ``pads``, ``ceil_mode`` of Conv and the pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.twin.call import Call


@dataclass(frozen=True, slots=True)
class Axis:
    """A window along one spatial axis, all in elements: ``size`` of the input, ``count`` of windows.

    ``before`` and ``after`` are the declared padding, which the last window may leave where sizes are rounded up.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    count: int

    @property
    def extent(self) -> int:
        """From the first to the last element of a window."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def beyond(self) -> int:
        """Elements behind the declared padding that the last window reaches."""
        return max(0, (self.count - 1) * self.stride + self.extent - self.size - self.before - self.after)


def axes_of(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> list[Axis]:
    """The node's window along each spatial axis of an input of ``sizes``."""
    rank = len(sizes)
    strides, dilations = call.wholes("strides") or (1,) * rank, call.wholes("dilations") or (1,) * rank
    pads = call.wholes("pads") or (0,) * (2 * rank)
    mode, rounds_up = call.text("auto_pad", "NOTSET"), bool(call.whole("ceil_mode"))
    return [
        _axis(mode, rounds_up, size, each)
        for size, each in zip(sizes, zip(kernel, strides, dilations, pads[:rank], pads[rank:]), strict=True)
    ]


def _axis(mode: str, rounds_up: bool, size: int, window: tuple[int, int, int, int, int]) -> Axis:
    kernel, stride, dilation, before, after = window
    extent = (kernel - 1) * dilation + 1
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        count = -(-size // stride)
        total = max((count - 1) * stride + extent - size, 0)
        before = total // 2 if mode == "SAME_UPPER" else total - total // 2
        return Axis(size, kernel, stride, dilation, before, total - before, count)
    if mode == "VALID":
        before = after = 0
    room = size + before + after - extent
    if room < 0 and not rounds_up:
        raise Unsupported(f"a window of {extent} over {room + extent} elements has no result")
    count = (-(-room // stride) if rounds_up else room // stride) + 1
    if rounds_up and (count - 1) * stride >= size + before:
        count -= 1
    return Axis(size, kernel, stride, dilation, before, after, count)


def padded(x: Array, axes: Sequence[Axis], filler: float) -> Array:
    """``x`` (N, C, spatial …) with everything that windows reach."""
    pads = [(0, 0), (0, 0), *((axis.before, axis.after + axis.beyond) for axis in axes)]
    return x if not any(map(any, pads)) else np.pad(x, pads, constant_values=filler)


def views(x: Array, axes: Sequence[Axis]) -> Array:
    """Windows of a padded ``x`` as a view: (N, C, windows …, kernel …)."""
    space = range(2, 2 + len(axes))
    view = np.lib.stride_tricks.sliding_window_view(x, [axis.extent for axis in axes], tuple(space))
    steps = [slice(None, (axis.count - 1) * axis.stride + 1, axis.stride) for axis in axes]
    inside = [slice(None, None, axis.dilation) for axis in axes]
    return np.asarray(view[(slice(None), slice(None), *steps, *inside)])


def taken(x: Array, axes: Sequence[Axis], offset: Sequence[int]) -> Array:
    """The elements of a padded ``x`` that lie at ``offset`` of each window: (N, C, windows …), a view."""
    starts = [place * axis.dilation for place, axis in zip(offset, axes, strict=True)]
    steps = [
        slice(start, start + (axis.count - 1) * axis.stride + 1, axis.stride)
        for start, axis in zip(starts, axes, strict=True)
    ]
    return x[(slice(None), slice(None), *steps)]

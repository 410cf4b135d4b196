"""Padding of sliding windows: the defaults that ONNX states in prose only."""

from __future__ import annotations

from convertkit.errors import Unsupported
from convertkit.targets.coreml.tensor import Tensor

Pads = tuple[tuple[int, int], ...]
"""Elements before and after each spatial axis."""


def pads_of(
    x: Tensor,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...] | None,
    auto_pad: str,
) -> Pads:
    """The padding of each spatial axis.  Source: ONNX operators, Conv-11 and MaxPool-12, ``auto_pad``."""
    rank = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(x.shape[2:], kernel, strides, dilations, strict=True)
        return tuple(_same(*axis, lower=auto_pad == "SAME_LOWER") for axis in axes)
    if auto_pad == "VALID" or pads is None:
        return ((0, 0),) * rank
    return tuple(zip(pads[:rank], pads[rank:], strict=True))


def _same(size: int | None, kernel: int, stride: int, dilation: int, *, lower: bool) -> tuple[int, int]:
    reach = (kernel - 1) * dilation + 1
    if size is None and stride != 1:
        raise Unsupported("auto_pad with a stride over a dynamic dimension")
    total = reach - 1 if size is None else max((-(-size // stride) - 1) * stride + reach - size, 0)
    small, large = total // 2, total - total // 2
    return (large, small) if lower else (small, large)


def grown(x: Tensor, kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], pads: Pads) -> Pads:
    """The padding at the end that ``ceil_mode`` implies, a last window inside of the padding left out.

    Source: ONNX operators, MaxPool-22, shape inference.
    """
    found = []
    for axis, (before, after) in enumerate(pads):
        size, reach, stride = x.size(2 + axis), (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
        count = -(-(size + before + after - reach) // stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1
        found.append((before, max((count - 1) * stride + reach - size - before, 0)))
    return tuple(found)


def flat(pads: Pads) -> tuple[int, ...]:
    """As MIL has them: before and after of one axis, then of the next one."""
    return tuple(each for pad in pads for each in pad)


def ones(given: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Strides or dilations, 1 where they are not given."""
    return given or (1,) * rank

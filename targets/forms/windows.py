"""Padding of sliding windows: the defaults that ONNX states in prose only."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.errors import Unsupported

Pads = tuple[tuple[int, int], ...]
"""Elements before and after each spatial axis."""


def pads_of(
    sizes: Sequence[int | None],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...] | None,
    auto_pad: str,
) -> Pads:
    """The padding of each spatial axis, whose ``sizes`` are given.

    Source: ONNX operators, Conv-11 and MaxPool-12, ``auto_pad``.
    """
    rank = len(kernel)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        axes = zip(sizes, kernel, strides, dilations, strict=True)
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


def ones(given: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Strides or dilations, 1 where they are not given."""
    return given or (1,) * rank

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


def grown(
    sizes: Sequence[int | None],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: Pads,
) -> Pads:
    """The padding at the end that ``ceil_mode`` implies, a last window inside of the padding left out.

    Source: ONNX operators, MaxPool-22, shape inference.
    """
    found = []
    for axis, (before, after) in enumerate(pads):
        size, reach, stride = _known(sizes, axis), (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
        count = -(-(size + before + after - reach) // stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1
        found.append((before, max((count - 1) * stride + reach - size - before, 0)))
    return tuple(found)


def cuts_of(
    sizes: Sequence[int | None],
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    gaps: tuple[int, ...],
    extra: tuple[int, ...],
    pads: tuple[int, ...] | None,
    output_shape: tuple[int, ...] | None,
    auto_pad: str,
) -> list[tuple[int, int]]:
    """What a transposed convolution's result loses before and after each axis; negative where something is added.

    Source: ONNX operators, ConvTranspose-11.
    """
    cuts = []
    for axis in range(len(kernel)):
        more = extra[axis]
        if output_shape is None and auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
            before, after = (0, 0) if pads is None else (pads[axis], pads[axis + len(kernel)])
            cuts.append((before, after - more))
            continue
        size = _known(sizes, axis)
        wanted = size * steps[axis] if output_shape is None else output_shape[-len(kernel) :][axis]
        total = steps[axis] * (size - 1) + more + (kernel[axis] - 1) * gaps[axis] + 1 - wanted
        half = total // 2
        before, after = (half, total - half) if auto_pad == "SAME_UPPER" else (total - half, half)
        if total < 0:
            before, after = 0, total
        cuts.append((before, after - more))
    return cuts


def _known(sizes: Sequence[int | None], axis: int) -> int:
    size = sizes[axis]
    if size is None:
        raise Unsupported(f"the size of axis {axis + 2} is dynamic, and this needs it")
    return size

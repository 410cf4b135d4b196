"""Transposed convolutions of volumes: zeros between the elements, then CONV_3D with the window turned around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.apart import apart
from convertkit.targets.tflite.tensor import Tensor

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Spread:
    """How far elements lie apart, and what of the full result is cut off, or missing at its end, on each axis."""

    strides: Triple
    dilations: Triple
    cut: tuple[tuple[int, int], ...]
    extra: tuple[int, ...]
    group: int


def spread_volume(b: Builder, x: Tensor, w: Tensor, bias: Tensor | None, spread: Spread) -> Tensor:
    """``x`` NDHWC with ``w`` (input channels, output channels per group, window) and a bias per output channel."""
    if x.dtype != "float32" or w.dtype != "float32":
        raise Unsupported("a transposed convolution of volumes that is not float32")
    spaced = apart(b, x, (1, *spread.strides, 1))
    margins, cuts = [], []
    for axis, kernel in enumerate(w.shape[2:]):
        reach = (kernel - 1) * spread.dilations[axis]
        sides = (reach - spread.cut[axis][0], reach - spread.cut[axis][1] + spread.extra[axis])
        margins.append((max(sides[0], 0), max(sides[1], 0)))
        cuts.append((max(-sides[0], 0), max(-sides[1], 0)))
    padded = b.pad(_without(b, spaced, cuts), ((0, 0), *margins, (0, 0)))
    count = x.shape[4] // spread.group
    parts = b.split(padded, 4, [count] * spread.group)
    kernels = _turned(b, w, spread.group)
    offsets = [None] * spread.group if bias is None else b.split_constant(bias, 0, spread.group)
    results = [
        b.conv_3d(
            part,
            kernel,
            offset if offset is not None else b.constant(np.zeros(w.shape[1], np.float32)),
            padding="VALID",
            dilations=spread.dilations,
        )
        for part, kernel, offset in zip(parts, kernels, offsets, strict=True)
    ]
    return b.concatenation(results, 4)


def _turned(b: Builder, w: Tensor, group: int) -> list[Tensor]:
    """The windows of each group, back to front, as (window, input channels, output channels)."""
    if w.constant is None:
        parts = b.split(b.reverse(w, (2, 3, 4)), 0, [w.shape[0] // group] * group)
        return [b.transpose(part, (2, 3, 4, 0, 1)) for part in parts]
    turned = np.flip(w.constant, (2, 3, 4)).transpose(2, 3, 4, 0, 1)
    return [b.constant(part) for part in np.split(turned, group, 3)]


def _without(b: Builder, x: Tensor, cuts: list[tuple[int, int]]) -> Tensor:
    """``x`` without so many elements at both ends of its spatial axes."""
    if not any(before or after for before, after in cuts):
        return x
    begin = (0, *(before for before, _ in cuts), 0)
    sizes = [size - before - after for size, (before, after) in zip(x.shape[1:4], cuts, strict=True)]
    return b.slice(x, begin, (x.shape[0], *sizes, x.shape[4]))

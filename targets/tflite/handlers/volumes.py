"""Transposed convolutions of volumes: zeros between the elements, then CONV_3D with the window turned around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

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
    if x.dtype != "float32" or w.constant is None:
        raise Unsupported("a transposed convolution of volumes whose weights are computed, or that is not float32")
    apart = _with_zeros(b, x, spread.strides)
    margins, cuts = [], []
    for axis, kernel in enumerate(w.shape[2:]):
        reach = (kernel - 1) * spread.dilations[axis]
        sides = (reach - spread.cut[axis][0], reach - spread.cut[axis][1] + spread.extra[axis])
        margins.append((max(sides[0], 0), max(sides[1], 0)))
        cuts.append((max(-sides[0], 0), max(-sides[1], 0)))
    padded = b.pad(_without(b, apart, cuts), ((0, 0), *margins, (0, 0)))
    turned = np.flip(w.constant, (2, 3, 4))
    count = x.shape[4] // spread.group
    parts = b.split(padded, 4, [count] * spread.group)
    offsets = [None] * spread.group if bias is None else b.split_constant(bias, 0, spread.group)
    results = [
        b.conv_3d(
            part,
            b.constant(turned[place * count : (place + 1) * count].transpose(2, 3, 4, 0, 1)),
            offset if offset is not None else b.constant(np.zeros(w.shape[1], np.float32)),
            padding="VALID",
            dilations=spread.dilations,
        )
        for place, (part, offset) in enumerate(zip(parts, offsets, strict=True))
    ]
    return b.concatenation(results, 4)


def _with_zeros(b: Builder, x: Tensor, strides: Triple) -> Tensor:
    """``strides[i] - 1`` zeros between the elements of each spatial axis, which is the middle one of three here."""
    shape = list(x.shape)
    for axis, step in enumerate(strides, 1):
        if step == 1:
            continue
        before = DYNAMIC if shape[0] == DYNAMIC else int(np.prod(shape[: axis + 1]))
        rows = b.reshape(x, (before, 1, int(np.prod(shape[axis + 1 :]))))
        spaced = b.pad(rows, ((0, 0), (0, step - 1), (0, 0)))
        shape[axis] *= step
        last = [(0, 0)] * 3
        last[axis - 1] = (0, step - 1)
        x = _without(b, b.reshape(spaced, tuple(shape)), last)
        shape[axis] -= step - 1
    return x


def _without(b: Builder, x: Tensor, cuts: list[tuple[int, int]]) -> Tensor:
    """``x`` without so many elements at both ends of its spatial axes."""
    if not any(before or after for before, after in cuts):
        return x
    begin = (0, *(before for before, _ in cuts), 0)
    sizes = [size - before - after for size, (before, after) in zip(x.shape[1:4], cuts, strict=True)]
    return b.slice(x, begin, (x.shape[0], *sizes, x.shape[4]))

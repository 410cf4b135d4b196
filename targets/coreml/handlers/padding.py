"""ONNX Pad as MIL."""

from __future__ import annotations

import functools

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import MOVES, flat_axes, in_float, integers, known
from convertkit.targets.coreml.tensor import Tensor, constant

padding = Registry()


@padding.lowers("Pad", since=(18, *MOVES[3:]))
def pad(
    b: Builder, x: Tensor, pads: Tensor, value: Tensor | None, axes: Tensor | None, *, mode: str = "constant"
) -> Tensor:
    """Negative pads cut; the rest by ``pad``, or by gathering along each axis where the border mirrors."""
    amounts = integers(pads, "pads")
    named = range(x.rank) if axes is None else flat_axes(integers(axes, "axes"), x.rank)
    half = len(amounts) // 2
    border = [(0, 0)] * x.rank
    for place, axis in enumerate(named):
        border[axis] = (amounts[place], amounts[half + place])
    if mode == "constant":
        return _constant(b, _cut(b, x, border), border, value)
    for axis, ends in enumerate(border):
        if ends != (0, 0):
            x = b.op("gather", x=x, indices=constant(_mirrored(x.size(axis), ends, mode)), axis=np.int32(axis))
    return x


def _cut(b: Builder, x: Tensor, border: list[tuple[int, int]]) -> Tensor:
    if all(each >= 0 for ends in border for each in ends):
        return x
    return b.op(
        "slice_by_index",
        x=x,
        begin=tuple(max(0, -before) for before, _ in border),
        end=tuple(min(0, after) for _, after in border),
        end_mask=tuple(after >= 0 for _, after in border),
    )


def _constant(b: Builder, x: Tensor, border: list[tuple[int, int]], value: Tensor | None) -> Tensor:
    """Through float32 for booleans, and integers by hand: ``pad`` has floats only."""
    added = tuple(max(0, each) for ends in border for each in ends)
    if not any(added):
        return x
    filling = np.zeros(()) if value is None else known(value, "constant_value").reshape(())
    if x.dtype == "int32":
        return _joined(b, x, border, int(filling))
    wide, number = in_float(b, x), float(filling)
    return b.cast(b.op("pad", x=wide, pad=added, mode="constant", constant_val=b.real(number, wide)), x.dtype)


def _joined(b: Builder, x: Tensor, border: list[tuple[int, int]], number: int) -> Tensor:
    """Integers between constants, axis by axis."""

    def along(value: Tensor, axis: int) -> Tensor:
        sizes = list(value.sizes)
        parts = []
        for count in border[axis]:
            filled = np.full([*sizes[:axis], max(0, count), *sizes[axis + 1 :]], number, np.int64)
            parts.append([constant(filled)] if count > 0 else [])
        return b.concat([*parts[0], value, *parts[1]], axis)

    return functools.reduce(along, [axis for axis, ends in enumerate(border) if max(ends) > 0], x)


def _mirrored(size: int, ends: tuple[int, int], mode: str) -> np.ndarray:
    """The places that a mode reads, for any border."""
    places = np.arange(-ends[0], size + ends[1])
    if mode == "edge":
        return np.clip(places, 0, size - 1).astype(np.int32)
    if mode == "wrap":
        return (places % size).astype(np.int32)
    if mode != "reflect":
        raise Unsupported(f"mode {mode}")
    period = max(2 * (size - 1), 1)
    folded = np.abs(places) % period
    return np.where(folded >= size, period - folded, folded).astype(np.int32)

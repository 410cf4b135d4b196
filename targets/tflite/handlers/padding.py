"""Pad in all its modes; negative amounts cut."""

from __future__ import annotations

import numpy as np

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted, constant_ints
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

padding = Registry()

_SOURCES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
"""ONNX's modes as NumPy's."""
_MOST_AXES = 5
"""PAD and PADV2 take up to five."""


@padding.lowers("Pad", since=(18, 19, 21, 23, 24, 25))
def pad(
    b: Builder,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    if pads.constant is None and mode == "constant":
        return _computed(b, x, pads, value, axes)
    amounts = constant_ints(pads, "the padding")
    places = tuple(range(x.rank)) if axes is None else constant_ints(axes, "the axes")
    sides = [(0, 0)] * x.rank
    for number, axis in enumerate(places):
        sides[axis % x.rank] = (amounts[number], amounts[number + len(places)])
    kept = cut(b, x, [slice(max(-before, 0), -max(-after, 0) or None) for before, after in sides])
    sides = [(max(before, 0), max(after, 0)) for before, after in sides]
    if not any(before or after for before, after in sides):
        return kept
    if mode == "constant":
        return _constant(b, kept, sides, value)
    if mode == "reflect" and not kept.is_static:
        return b.mirror_pad(kept, sides, symmetric=False)
    for axis, (before, after) in enumerate(sides):
        if before or after:
            kept = _repeated(b, kept, axis, before, after, mode)
    return kept


def _computed(b: Builder, x: Tensor, pads: Tensor, value: Tensor | None, axes: Tensor | None) -> Tensor:
    """Amounts that only the runtime knows: it cuts by the negative ones, then pads by the others."""
    places = tuple(range(x.rank)) if axes is None else tuple(axis % x.rank for axis in constant_ints(axes, "the axes"))
    if x.rank > _MOST_AXES:
        raise Unsupported(f"{x.rank} axes padded by computed amounts: TFLite PADV2 takes {_MOST_AXES}")
    whole = b.cast(pads, "int32")
    sides: list[list[int | Tensor]] = [[0] * x.rank, [0] * x.rank]
    for number, axis in enumerate(places):
        for side in (0, 1):
            sides[side][axis] = b.slice(whole, (number + side * len(places),), (1,))
    before, after = (b.sizes(side) for side in sides)
    none = b.constant(np.zeros((), np.int32))
    cut_before, cut_after = (b.minimum(side, none) for side in (before, after))
    size = b.add(b.add(b.shape_of(x), cut_before), cut_after)
    kept = b.slice_at(x, b.neg(cut_before), size, (DYNAMIC,) * x.rank)
    amounts = b.transpose(b.pack([b.maximum(side, none) for side in (before, after)], 0), (1, 0))
    if x.quantization is not None:
        return b.pad_by(kept, amounts, _quantized_filling(b, x, value))
    (wide,) = as_accepted(b, "PADV2", kept)
    filling = b.constant(np.zeros((), wide.dtype)) if value is None else b.cast(b.reshape(value, ()), wide.dtype)
    return b.cast(b.pad_by(wide, amounts, filling), x.dtype)


def _quantized_filling(b: Builder, x: Tensor, value: Tensor | None) -> Tensor | None:
    """What surrounds integers of a scale, at that scale; None for real zero, which PAD takes from the zero point."""
    if value is None:
        return None
    assert x.quantization is not None
    scalar = b.reshape(value, ())
    return scalar if scalar.quantization is not None else b.relabelled(scalar, x.quantization)


def _constant(b: Builder, x: Tensor, sides: list[tuple[int, int]], value: Tensor | None) -> Tensor:
    if x.quantization is not None:
        return b.pad(x, sides, _quantized_filling(b, x, value))
    zero = value is None or (value.constant is not None and not value.constant.any())
    code = "PAD" if zero else "PADV2"
    (wide,) = as_accepted(b, code, x)
    filling = None if zero or value is None else b.cast(b.reshape(value, ()), wide.dtype)
    if x.rank > _MOST_AXES:
        return _one_by_one(b, x, sides, value)
    return b.cast(b.pad(wide, sides, filling), x.dtype) if wide is not x else b.pad(x, sides, filling)


def _one_by_one(b: Builder, x: Tensor, sides: list[tuple[int, int]], value: Tensor | None) -> Tensor:
    """One axis after the other, as the middle one of three."""
    if not x.is_static:
        raise Unsupported(f"{x.rank} axes of which some are dynamic: TFLite PAD takes {_MOST_AXES}")
    for axis, side in enumerate(sides):
        if any(side):
            shape = x.shape
            around = (int(np.prod(shape[:axis])), shape[axis], int(np.prod(shape[axis + 1 :])))
            grown = _constant(b, b.reshape(x, around), [(0, 0), side, (0, 0)], value)
            x = b.reshape(grown, (*shape[:axis], grown.shape[1], *shape[axis + 1 :]))
    return x


def _repeated(b: Builder, x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """The axis gathered at constant places that NumPy's padding of 0, 1, 2, … gives."""
    size = x.shape[axis]
    if size == DYNAMIC and mode == "edge":
        return _edges_repeated(b, x, axis, before, after)
    if size == DYNAMIC:
        raise UnknownSize(f"{mode} padding of an axis whose size is only known at run time")
    if mode not in _SOURCES:
        raise Unsupported(f"padding mode {mode}")
    places = np.pad(np.arange(size, dtype=np.int32), (before, after), mode=_SOURCES[mode])  # type: ignore[call-overload]
    (wide,) = as_accepted(b, "GATHER", x)
    return (
        b.cast(b.gather(wide, b.constant(places), axis), x.dtype)
        if wide is not x
        else b.gather(x, b.constant(places), axis)
    )


def _edges_repeated(b: Builder, x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """The first and the last element of an axis of any size, as often as asked."""
    parts = []
    (wide,) = as_accepted(b, "TILE", x)
    for count, end in ((before, slice(0, 1)), (after, slice(-1, None))):
        edge = cut(b, wide, [end if place == axis else slice(None) for place in range(x.rank)])
        parts.append(b.tile(edge, [count if place == axis else 1 for place in range(x.rank)]))
    kept = [parts[0]] * bool(before) + [wide] + [parts[1]] * bool(after)
    return b.cast(b.concatenation(kept, axis), x.dtype)

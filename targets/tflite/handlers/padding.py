"""Pad in all its modes; negative amounts cut."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import as_accepted, constant_ints
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

padding = Registry()

_SOURCES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
"""ONNX's modes as NumPy's."""


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


def _constant(b: Builder, x: Tensor, sides: list[tuple[int, int]], value: Tensor | None) -> Tensor:
    if x.quantization is not None:
        plain = value is not None and value.quantization is None
        return b.pad(x, sides, b.relabelled(value, x.quantization) if value is not None and plain else value)
    zero = value is None or (value.constant is not None and not value.constant.any())
    code = "PAD" if zero else "PADV2"
    (wide,) = as_accepted(b, code, x)
    filling = None if zero or value is None else b.cast(b.reshape(value, ()), wide.dtype)
    touched = [axis for axis, side in enumerate(sides) if any(side)]
    if x.rank > 5:
        raise Unsupported(f"{x.rank} axes, {len(touched)} of them padded: TFLite {code} takes 5")
    return b.cast(b.pad(wide, sides, filling), x.dtype) if wide is not x else b.pad(x, sides, filling)


def _repeated(b: Builder, x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """The axis gathered at constant places that NumPy's padding of 0, 1, 2, … gives."""
    size = x.shape[axis]
    if size == DYNAMIC:
        raise Unsupported(f"{mode} padding of an axis whose size is only known at run time")
    if mode not in _SOURCES:
        raise Unsupported(f"padding mode {mode}")
    places = np.pad(np.arange(size, dtype=np.int32), (before, after), mode=_SOURCES[mode])  # type: ignore[call-overload]
    (wide,) = as_accepted(b, "GATHER", x)
    return (
        b.cast(b.gather(wide, b.constant(places), axis), x.dtype)
        if wide is not x
        else b.gather(x, b.constant(places), axis)
    )

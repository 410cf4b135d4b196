"""Resizing in the forms that torch's ONNX exporter has, and has right.

With aligned corners a factor says the size alone; the exporter hands the factor on, with which ONNX's Resize spreads
the corners over an unrounded length.  Traced programs take the nearest centre of a pixel in a form of their own.
The nearest element is that at floor(k · step) in torch and at floor(k / factor) in ONNX Runtime, where float32 rounds
otherwise: where 80 elements become 24, the tenth of them is element 30 in torch and element 29 in ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_ATEN = torch.ops.aten
_SIZE, _ALIGNS, _FACTORS = 1, 2, 3
"""Operands of ``aten::upsample_*.vec`` behind the image."""


def has_factors(node: Any) -> bool:
    """Whether a node aligns corners and is given factors for sizes that are known."""
    given = (*node.args, None, None, None)
    whole = all(isinstance(size, int) for size in node.args[0].meta["val"].shape[2:])
    return given[_SIZE] is None and bool(given[_ALIGNS]) and given[_FACTORS] is not None and whole


def _by_size(resize: Any) -> Callable[..., Any]:
    def function(x: Tensor, size: Any, align_corners: bool, factors: Sequence[float] | None) -> Any:
        if size is not None or not align_corners or factors is None:
            return NotImplemented
        pairs = zip(x.shape[2:], factors, strict=True)
        return resize(x, [math.floor(float(length) * factor) for length, factor in pairs], True, None)

    return function


BY_FACTOR: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        each: _by_size(each)
        for each in (
            _ATEN.upsample_linear1d.vec,
            _ATEN.upsample_bilinear2d.vec,
            _ATEN.upsample_trilinear3d.vec,
            _ATEN.upsample_bicubic2d.vec,
        )
    }
)


def rounds_otherwise(node: Any) -> bool:
    """Whether ONNX Runtime's Resize takes other elements than torch's nearest, of sizes that are known."""
    x, size, factors = (*node.args, None, None)[:3]
    lengths, sizes = x.meta["val"].shape[2:], node.meta["val"].shape[2:]
    if not all(isinstance(each, int) for each in (*lengths, *sizes)):
        return False
    given = [None] * len(sizes) if size is not None or factors is None else factors
    return _take_others(lengths, sizes, given)


def nearest(x: Tensor, size: Sequence[int] | None, factors: Sequence[float] | None) -> Any:
    """``aten::upsample_nearest*.vec`` of known sizes, the elements of each axis looked up."""
    lengths = list(x.shape[2:])
    given = [None] * len(lengths) if size is not None or factors is None else list(factors)
    if not all(isinstance(each, int) for each in (*lengths, *(size or ()))):
        return NotImplemented
    counts = [
        math.floor(length * factor) if factor is not None else (size or lengths)[axis]
        for axis, (length, factor) in enumerate(zip(lengths, given, strict=True))
    ]
    if not _take_others(lengths, counts, given):
        return NotImplemented
    for axis, (length, count, factor) in enumerate(zip(lengths, counts, given, strict=True)):
        if count == length:
            continue
        places = (torch.arange(count, dtype=torch.float32) * _step(length, count, factor)).floor().to(torch.int64)
        x = x.index_select(axis + 2, places.clamp(max=length - 1))
    return x


def _take_others(lengths: Sequence[int], counts: Sequence[int], factors: Sequence[float | None]) -> bool:
    return any(_are_others(*each) for each in zip(lengths, counts, factors, strict=True))


def _step(length: int, count: int, factor: float | None) -> float:
    """Elements from one taken to the next: ``nearest_idx`` and ``compute_scales_value`` of UpSample.h, in float32."""
    if count in (length, 2 * length):
        return length / count
    return float(np.float32(1.0 / factor) if factor is not None else np.float32(length) / np.float32(count))


def _are_others(length: int, count: int, factor: float | None) -> bool:
    """Upsample's ``nearest_idx`` against the asymmetric, floored coordinate of ONNX Runtime's upsamplebase.h."""
    scale = np.float32(factor) if factor is not None else np.float32(count) / np.float32(length)
    at = np.arange(count, dtype=np.float32)
    ours, theirs = np.floor(at * np.float32(_step(length, count, factor))), np.floor(at / scale)
    return not np.array_equal(np.minimum(ours, length - 1), np.minimum(theirs, length - 1))


NEAREST: tuple[Any, ...] = (_ATEN.upsample_nearest1d.vec, _ATEN.upsample_nearest2d.vec, _ATEN.upsample_nearest3d.vec)


_CENTRES: Mapping[Any, Any] = MappingProxyType(
    {
        each.default: each.vec
        for each in (_ATEN._upsample_nearest_exact1d, _ATEN._upsample_nearest_exact2d, _ATEN._upsample_nearest_exact3d)
    }
)
"""The nearest of pixels' centres as traced programs have it, which torch takes apart in no table."""


def take_centres(program: Any) -> None:
    """Make it the form of other programs, in place: by factors, where there are any, or by size."""
    for node in program.graph.nodes:
        if node.target in _CENTRES:
            x, size, *factors = node.args
            known = [each for each in factors if each is not None]
            node.target = _CENTRES[node.target]
            node.args = (x, None, known) if len(known) == len(size) else (x, size, None)
    program.graph_module.recompile()

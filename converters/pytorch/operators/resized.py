"""Resizing in the forms that torch's ONNX exporter has, and has right.

With aligned corners a factor says the size alone; the exporter hands the factor on, with which ONNX's Resize spreads
the corners over an unrounded length.  Traced programs take the nearest centre of a pixel in a form of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

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

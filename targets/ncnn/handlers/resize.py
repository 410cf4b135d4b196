"""Resize of pictures, where the layer Interp has ONNX's way of counting places."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.resizing import Resizing, resize_node
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.handlers.convolutions import one_image
from convertkit.targets.ncnn.tensor import Tensor

resizing = Registry()

_TYPES = {"nearest": 1, "linear": 2, "cubic": 3}
_CUBIC = -0.75


@resizing.lowers("Resize", since=(18, 19))
@resize_node
def resize(b: Builder, x: Tensor, node: Resizing[Tensor]) -> Tensor:
    """Height and width of one picture, to sizes that are known."""
    one_image(x, x.rank - 2)
    method = node.method
    if method.antialias or method.exclude_outside or node.policy != "stretch" or method.cubic_a != _CUBIC:
        raise Unsupported("antialias, exclude_outside, keep_aspect_ratio_policy or another cubic_coeff_a")
    shape, stated = _shape(x, node.scales, node.sizes, node.axes)
    if shape[:2] != x.shape[:2] or x.rank > 4:
        raise Unsupported("other axes than height and width, which are all that ncnn's Interp resizes")
    _check_places(x.shape, shape, stated, method.coordinates, method.mode, method.nearest)
    picture = (x.shape[1], *([1] if x.rank == 3 else []), *x.shape[2:])
    made = (picture[0], *([1] if x.rank == 3 else []), *shape[2:])
    corners = int(method.coordinates == "align_corners")
    parameters = {0: _TYPES[method.mode], 3: made[1], 4: made[2], 6: corners}
    return b.layer("Interp", [b.view(x, picture)], shape, made, parameters)


def _shape(
    x: Tensor, scales: Tensor | None, sizes: Tensor | None, axes: tuple[int, ...] | None
) -> tuple[tuple[int, ...], dict[int, float]]:
    """The sizes of the result, and the factors by axis that are not simply theirs."""
    places = [axis % x.rank for axis in axes or range(x.rank)]
    shape, stated = list(x.shape), {}
    if sizes is not None and sizes.known.size:
        for axis, size in zip(places, sizes.known.reshape(-1), strict=True):
            shape[axis] = int(size)
    elif scales is not None:
        for axis, factor in zip(places, np.asarray(scales.known, np.float32).reshape(-1), strict=True):
            shape[axis] = int(np.floor(np.float32(x.shape[axis]) * factor))
            if shape[axis] != x.shape[axis] * float(factor):
                stated[axis] = float(factor)
    return tuple(shape), stated


def _check_places(
    before: tuple[int, ...], after: tuple[int, ...], stated: dict[int, float], places: str, mode: str, nearest: str
) -> None:
    """Interp counts corners as they are, half pixels where it interpolates, and cuts off where it does not."""
    if stated and places != "align_corners":
        raise Unsupported("scales that do not give whole sizes: ncnn's Interp takes the quotient of the sizes")
    if mode == "nearest":
        whole = all(new % old == 0 for old, new in zip(before[2:], after[2:], strict=True))
        cut = places == "asymmetric" and nearest == "floor"
        near = places in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric") and nearest.startswith("round")
        if not cut and not (whole and near):
            raise Unsupported(f"nearest with {places} and {nearest}: ncnn's Interp cuts places off")
        return
    single = any(new == 1 and old > 1 for old, new in zip(before[2:], after[2:], strict=True))
    known = places in ("half_pixel", "align_corners") or (places == "pytorch_half_pixel" and not single)
    if not known:
        raise Unsupported(f"{mode} with {places}: ncnn's Interp has half_pixel and align_corners")

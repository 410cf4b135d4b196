"""ONNX Resize as MIL: its own operations where they compute exactly ONNX's formula, else gathers and products."""

from __future__ import annotations

import math

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.interpolation import Axis, Method, matrix, nearest, outside
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import flat_axes, known, only_float
from convertkit.targets.coreml.tensor import Tensor, constant
from convertkit.targets.forms.resizing import Resizing, resize_node

resize = Registry()


@resize.lowers("Resize", since=(18, 19))
@resize_node
def resize_any(b: Builder, x: Tensor, node: Resizing[Tensor]) -> Tensor:
    method = node.method
    named = tuple(range(x.rank)) if node.axes is None else flat_axes(node.axes, x.rank)
    wanted = _wanted(x, named, node.scales, node.sizes, node.policy)
    boxes = [(0.0, 1.0)] * len(named)
    if method.coordinates == "tf_crop_and_resize":
        box = known(node.roi, "the roi").astype(np.float64)
        boxes = [(float(box[place]), float(box[place + len(named)])) for place in range(len(named))]
    found = {
        axis: Axis(x.size(axis), size, scale, *box)
        for axis, (size, scale), box in zip(named, wanted, boxes, strict=True)
        if size is not None and (scale != 1 or size != x.shape[axis] or box != (0.0, 1.0))
    }
    if not found:
        return b.op("identity", x=x)
    native = _native(b, x, found, method)
    return native or _general(b, x, found, method, node.extrapolation)


def _wanted(
    x: Tensor, named: tuple[int, ...], scales: Tensor | None, sizes: Tensor | None, policy: str
) -> list[tuple[int | None, float]]:
    """Size and scale of each named axis; the size is None where it is dynamic and stays."""
    if sizes is None:
        factors = [float(each) for each in known(scales, "the scales")]
        return [
            (None if x.shape[axis] is None and factor == 1 else _scaled(x.size(axis), factor), factor)
            for axis, factor in zip(named, factors, strict=True)
        ]
    after = [int(each) for each in known(sizes, "the sizes")]
    ratios = [size / x.size(axis) for axis, size in zip(named, after, strict=True)]
    if policy == "stretch":
        return list(zip(after, ratios, strict=True))
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    return [(math.floor(ratio * x.size(axis) + 0.5), ratio) for axis in named]


def _scaled(size: int, scale: float) -> int:
    """``floor(size * scale)``, where ONNX's shape inference and ONNX Runtime's float32 agree on it."""
    exact, rounded = math.floor(size * scale), math.floor(np.float32(size) * np.float32(scale))
    if exact != rounded:
        raise Unsupported(
            f"{size} elements scaled by {scale:.9g} are {exact} or {rounded}, by rounding; sizes say which"
        )
    return exact


def _native(b: Builder, x: Tensor, axes: dict[int, Axis], method: Method) -> Tensor | None:
    """``upsample_*`` of the last two axes by whole factors: larger images of a decoder."""
    last = {x.rank - 2, x.rank - 1}
    if not set(axes) <= last or x.rank < 3 or x.rank > 4 or not x.is_float:
        return None
    factors = [axes[axis].wanted / axes[axis].size if axis in axes else 1.0 for axis in sorted(last)]
    whole = all(factor == int(factor) and factor >= 1 for factor in factors)
    exact = all(axis.scale == axis.wanted / axis.size for axis in axes.values())
    if not whole or not exact:
        return None
    high, wide = (np.int32(factor) for factor in factors)
    if method.mode == "nearest" and _repeats(method):
        return b.op("upsample_nearest_neighbor", x=x, scale_factor_height=high, scale_factor_width=wide)
    if method.mode == "linear" and not method.antialias and method.coordinates in ("half_pixel", "asymmetric"):
        return b.op(
            "upsample_bilinear",
            x=x,
            scale_factor_height=high,
            scale_factor_width=wide,
            align_corners=False,
            half_pixel_centers=method.coordinates == "half_pixel",
        )
    return None


def _repeats(method: Method) -> bool:
    """Whether each pixel is repeated: for whole factors all these take ``floor(out / factor)``."""
    if method.coordinates == "asymmetric":
        return method.nearest == "floor"
    return method.coordinates == "half_pixel" and method.nearest in ("round_prefer_floor", "round_prefer_ceil")


def _general(b: Builder, x: Tensor, axes: dict[int, Axis], method: Method, value: float) -> Tensor:
    if method.mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"mode {method.mode}")
    result = x
    for place, axis in axes.items():
        if method.mode == "nearest":
            result = b.op("gather", x=result, indices=constant(nearest(axis, method)), axis=np.int32(place))
        else:
            only_float(x, f"Resize with mode {method.mode}")
            result = along(b, result, place, matrix(axis, method))
    for place, axis in axes.items():
        mask = outside(axis, method.coordinates)
        if mask.any():
            view = [1] * x.rank
            view[place] = axis.wanted
            result = b.select(constant(mask.reshape(view)), b.full(value, result), result)
    return result


def along(b: Builder, x: Tensor, axis: int, weights: np.ndarray) -> Tensor:
    """``weights`` (out, size) times one axis of ``x``."""
    factor = constant(weights.astype(x.dtype))
    if axis == x.rank - 1:
        return b.op("matmul", x=x, y=factor, transpose_y=True)
    if axis == x.rank - 2:
        return b.op("matmul", x=factor, y=x)
    perm = [each for each in range(x.rank) if each != axis] + [axis]
    turned = b.op("matmul", x=b.transpose(x, perm), y=factor, transpose_y=True)
    return b.transpose(turned, [int(each) for each in np.argsort(perm)])


@resize.lowers("GridSample", since=16)
def grid_sample_16(
    b: Builder,
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Tensor:
    return grid_sample(b, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@resize.lowers("GridSample", since=(20, 22))
def grid_sample(
    b: Builder,
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """Bilinear alone: how Core ML rounds a place between two pixels is not documented.

    A reflection is at the centres of the outermost pixels with ``align_corners``, else at their edges.
    """
    only_float(x, "GridSample")
    if mode not in ("linear", "bilinear"):
        raise Unsupported(f"GridSample of mode {mode}: of Core ML's only the bilinear one is documented")
    if x.rank != 4:
        raise Unsupported("GridSample of volumes: Core ML samples images alone")
    reflection = "reflection" if align_corners else "symmetric"
    return b.op(
        "resample",
        x=x,
        coordinates=grid,
        sampling_mode="bilinear",
        padding_mode={"zeros": "constant", "border": "border", "reflection": reflection}[padding_mode],
        padding_value=b.real(0, x),
        coordinates_mode="normalized_minus_one_to_one",
        align_corners=bool(align_corners),
    )

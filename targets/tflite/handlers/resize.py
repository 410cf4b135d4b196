"""Resize: the builtin kernels where they compute exactly ONNX's formula, else gathers and constant matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.interpolation import Axis, Method, matrix, nearest, outside
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.resizing import Resizing, resize_node
from convertkit.targets.tflite.annotations import NHWC
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import constant_of, float_only, like
from convertkit.targets.tflite.handlers.indexing import gathered
from convertkit.targets.tflite.handlers.resize_free import free_axes, resized_at_run_time
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

resize = Registry()


@resize.lowers("Resize", since=(18, 19))
@resize_node
def resize_any(b: Builder, x: Tensor, node: Resizing[Tensor]) -> Tensor:
    """Axes in the source's order: what is not an image."""
    return resized(b, x, tuple(range(x.rank)), node)


@resize.lowers_custom("Resize", domain=NHWC)
@resize_node
def resize_image(b: Builder, x: Tensor, node: Resizing[Tensor]) -> Tensor:
    """Channels-last images; scales, sizes and axes speak of the source's order."""
    return resized(b, x, (0, x.rank - 1, *range(1, x.rank - 1)), node)


def resized(b: Builder, x: Tensor, places: Sequence[int], target: Resizing[Tensor]) -> Tensor:
    """``places[i]`` is the axis of ``x`` that ONNX calls axis i."""
    method = target.method
    if _is_free(x, places, target):
        named = tuple(places[axis] for axis in _named(x, target))
        return resized_at_run_time(b, x, free_axes(b, x, named, target.scales, target.sizes), method)
    axes = {places[axis]: spec for axis, spec in wanted_axes(x, places, target).items()}
    if (builtin := _builtin(b, x, axes, method)) is not None:
        return builtin
    if method.mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"mode {method.mode}")
    if any(DYNAMIC in (axis.size, axis.wanted) for axis in axes.values()):
        raise UnknownSize("a resized axis whose size is only known at run time")
    result = x
    for place, axis in axes.items():
        if method.mode == "nearest":
            result = gathered(b, result, b.constant(nearest(axis, method)), place)
        else:
            float_only(x, f"Resize with mode {method.mode}")
            result = along(b, result, place, matrix(axis, method))
    return _extrapolated(b, result, axes, method.coordinates, target.extrapolation)


def _named(x: Tensor, target: Resizing[Tensor]) -> tuple[int, ...]:
    return tuple(range(x.rank)) if target.axes is None else tuple(axis % x.rank for axis in target.axes)


def _is_free(x: Tensor, places: Sequence[int], target: Resizing[Tensor]) -> bool:
    """Whether a wanted size is only known at run time, as a tensor or as so many times a dynamic size."""
    named = _named(x, target)
    if target.sizes is not None:
        return target.sizes.constant is None and target.axes is not None and target.policy == "stretch"
    if target.scales is None or target.scales.constant is None:
        return False
    scales = np.asarray(target.scales.constant)
    free = [scale != 1 for axis, scale in zip(named, scales, strict=True) if x.shape[places[axis]] == DYNAMIC]
    return any(free)


def wanted_axes(x: Tensor, places: Sequence[int], target: Resizing[Tensor]) -> dict[int, Axis]:
    """Each ONNX axis that changes, with its size and scale."""
    named = _named(x, target)
    before = [x.shape[places[axis]] for axis in named]
    if target.sizes is not None:
        after = [int(size) for size in constant_of(target.sizes, "the sizes")]
        scales = _kept_ratio(before, after, target.policy)
        if target.policy != "stretch":
            after = [math.floor(scale * size + 0.5) for scale, size in zip(scales, before, strict=True)]
    else:
        scales = [float(scale) for scale in constant_of(target.scales, "the scales")]
        after = [DYNAMIC if size == DYNAMIC else _scaled(size, scale) for size, scale in zip(before, scales)]
    boxes = (
        _boxes(target.roi, len(named))
        if target.method.coordinates == "tf_crop_and_resize"
        else [(0.0, 1.0)] * len(named)
    )
    return {
        axis: Axis(size, wanted, scale, *box)
        for axis, size, wanted, scale, box in zip(named, before, after, scales, boxes, strict=True)
        if wanted != size or scale != 1 or box != (0.0, 1.0)
    }


def _scaled(size: int, scale: float) -> int:
    """``floor(size * scale)``, where ONNX's shape inference and ONNX Runtime's float32 agree on it."""
    exact, rounded = math.floor(size * scale), math.floor(np.float32(size) * np.float32(scale))
    if exact != rounded:
        raise Unsupported(
            f"{size} elements scaled by {scale:.9g} are {exact} to ONNX and {rounded} to ONNX Runtime; sizes say which"
        )
    return exact


def _kept_ratio(before: list[int], after: list[int], policy: str) -> list[float]:
    """The scales of wanted sizes; nan where only the kernel will know it."""
    if DYNAMIC in before:
        if policy != "stretch":
            raise UnknownSize(f"keep_aspect_ratio_policy {policy} of sizes that are only known at run time")
        return [math.nan if size == DYNAMIC else want / size for size, want in zip(before, after, strict=True)]
    ratios = [wanted / size for size, wanted in zip(before, after, strict=True)]
    if policy == "stretch":
        return ratios
    return [min(ratios) if policy == "not_larger" else max(ratios)] * len(ratios)


def _boxes(roi: Tensor | None, count: int) -> list[tuple[float, float]]:
    values = constant_of(roi, "the roi").astype(np.float64)
    return [(float(values[axis]), float(values[axis + count])) for axis in range(count)]


def _builtin(b: Builder, x: Tensor, axes: dict[int, Axis], method: Method) -> Tensor | None:
    """RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR over the two middle axes of four, where they do the same."""
    if x.rank != 4 or not set(axes) <= {1, 2} or not axes or not (x.dtype == "float32" or x.is_quantized):
        return None
    height, width = (axes.get(place, Axis(x.shape[place], x.shape[place], 1.0)) for place in (1, 2))
    if any(not _is_ratio(axis, within=1.0 if method.mode == "linear" else 0.0) for axis in (height, width)):
        return None
    out, size = (height.wanted, width.wanted), b.ints((height.wanted, width.wanted))
    corners = method.coordinates == "align_corners"
    # PyTorch's own half_pixel differs for a result of one element only.
    longer = method.coordinates == "pytorch_half_pixel" and min(height.wanted, width.wanted) > 1
    half = method.coordinates == "half_pixel" or longer
    if method.mode == "linear" and not (method.antialias and not min(height.scale, width.scale) >= 1):
        if corners or half or method.coordinates == "asymmetric":
            return b.resize_bilinear(x, size, out, align_corners=corners, half_pixel_centers=half)
        return None
    if DYNAMIC in (height.size, width.size):
        return None
    whole = all(axis.wanted % axis.size == 0 for axis in (height, width))
    if method.mode == "nearest" and whole and _is_floor(method):
        return b.resize_nearest_neighbor(x, size, out, align_corners=False, half_pixel_centers=False)
    return None


def _is_ratio(axis: Axis, within: float) -> bool:
    """Whether the scale is that of the sizes, which is all that kernels know; it is where only the target is known.

    ``within`` so many steps of float32, in which models hold scales: a place moves by its rounding alone, which
    interpolation follows and a choice of the nearest need not.
    """
    if axis.size == DYNAMIC:
        return math.isnan(axis.scale) and axis.wanted != DYNAMIC
    ratio = axis.wanted / axis.size
    return abs(axis.scale - ratio) <= within * float(np.spacing(np.float32(ratio)))


def _is_floor(method: Method) -> bool:
    """Whether each pixel is repeated: for whole scales all these take ``floor(out / scale)``."""
    if method.coordinates == "asymmetric":
        return method.nearest == "floor"
    return method.coordinates in ("half_pixel", "half_pixel_symmetric") and method.nearest in (
        "round_prefer_floor",
        "round_prefer_ceil",
    )


def along(b: Builder, x: Tensor, place: int, weights: Array) -> Tensor:
    """``weights`` (out, size) times one axis of ``x``."""
    rest = x.shape[place + 1 :]
    shape = (*x.shape[:place], weights.shape[0], *rest)
    if place == x.rank - 1:
        return b.fully_connected(x, b.constant(weights), None)
    after = math.prod(rest)
    flat = b.reshape(x, (-1 if DYNAMIC in x.shape[:place] else math.prod(x.shape[:place]), x.shape[place], after))
    if after == 1:
        product = b.fully_connected(b.reshape(flat, (flat.shape[0], flat.shape[1])), b.constant(weights), None)
    else:
        turned = b.fully_connected(b.transpose(flat, (0, 2, 1)), b.constant(weights), None)
        product = b.transpose(turned, (0, 2, 1))
    return b.reshape(product, shape)


def _extrapolated(b: Builder, x: Tensor, axes: dict[int, Axis], coordinates: str, value: float) -> Tensor:
    masks = []
    for place, axis in axes.items():
        view = [1] * x.rank
        view[place] = axis.wanted
        masks.append(outside(axis, coordinates).reshape(view))
    if not any(mask.any() for mask in masks):
        return x
    mask = np.logical_or.reduce(np.broadcast_arrays(*masks))
    return b.select(b.constant(mask), like(b, x, value), x)

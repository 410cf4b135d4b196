"""Resizes that a runtime has no exact operator for: gathers, and products with constant matrices."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, is_same_size
from convertkit.onnx.interpolation import Axis, Method, matrix, nearest, outside
from convertkit.targets.forms.writing import Place, Size, dims

IsNative = Callable[[ir.Node, Method], bool]
"""Whether the runtime computes a Resize by this method exactly."""
_ROI, _SCALES, _SIZES = 1, 2, 3


def write_resize(node: ir.Node, is_native: IsNative) -> None:
    """Leave what the runtime computes exactly, write the rest along one axis after the other.

    before:  y = Resize (x), keep_aspect_ratio_policy, antialias, exclude_outside, a crop …
    after:   y = MatMul (x, weights of an axis), or Gather (x, indices of an axis)
    """
    method, policy = _method(node), node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" and is_native(node, method):
        return
    if policy == "stretch" and method.coordinates != "tf_crop_and_resize":
        _state_sizes(node)
    place, x = Place(node), node.inputs[0]
    sizes = dims(x)
    if x is None or sizes is None:
        raise place.refused("its rank is unknown")
    value = x
    axes = _axes(place, sizes, policy, method.coordinates)
    for number, axis in axes.items():
        after = (*sizes[:number], axis.wanted, *sizes[number + 1 :])
        value = _along(place, value, number, axis, method, after)
        sizes = after
    for number, axis in axes.items():
        mask = outside(axis, method.coordinates)
        if mask.any():
            view = mask.reshape([-1 if each == number else 1 for each in range(len(sizes))])
            filled = place.constant(np.float32(node.attributes.get_float("extrapolation_value", 0.0)))
            value = place.op("Where", place.constant(view), filled, value, like=value)
    place.becomes(place.op("Identity", value) if value is x else value)


def _state_sizes(node: ir.Node) -> None:
    """Sizes that are computed as numbers, of the axes that change, where the result's shape tells them.

    before:  y = Resize (x[N,3,8,8], sizes = Concat (Shape (x)[:2], [4, 4]))
    after:   y = Resize <axes = [2, 3]> (x, sizes = [4, 4])
    """
    before, after = dims(node.inputs[0]), dims(node.outputs[0])
    wanted = node.inputs[_SIZES] if len(node.inputs) > _SIZES else None
    if wanted is None or array_of(wanted) is not None or before is None or after is None:
        return
    named = [axis % len(before) for axis in node.attributes.get_ints("axes", tuple(range(len(before))))]
    changed = {axis: after[axis] for axis in named if not is_same_size(before[axis], after[axis])}
    numbers = [size for size in changed.values() if isinstance(size, int)]
    if changed and len(numbers) == len(changed):
        node.attributes["axes"] = ir.AttrInt64s("axes", list(changed))
        node.replace_input_with(_SIZES, Place(node).constant(np.array(numbers, np.int64)))


def _method(node: ir.Node) -> Method:
    given = node.attributes
    return Method(
        coordinates=given.get_string("coordinate_transformation_mode", "half_pixel"),
        mode=given.get_string("mode", "nearest"),
        nearest=given.get_string("nearest_mode", "round_prefer_floor"),
        cubic_a=given.get_float("cubic_coeff_a", -0.75),
        antialias=bool(given.get_int("antialias", 0)),
        exclude_outside=bool(given.get_int("exclude_outside", 0)),
    )


def _axes(place: Place, before: tuple[Size, ...], policy: str, coordinates: str) -> dict[int, Axis]:
    """Each axis that changes."""
    named = [axis % len(before) for axis in place.node.attributes.get_ints("axes", tuple(range(len(before))))]
    scales, sizes = (_known(place, number, name) for number, name in ((_SCALES, "scales"), (_SIZES, "sizes")))
    wanted = scales if sizes is None else sizes
    if wanted is None:
        raise place.refused("neither its scales nor its sizes are given")
    known = [_size(place, before[axis], float(each)) for axis, each in zip(named, wanted, strict=True)]
    if sizes is None:
        ratios = [float(each) for each in wanted]
        after = [math.floor(np.float32(size) * np.float32(ratio)) for size, ratio in zip(known, ratios, strict=True)]
    else:
        ratios = [float(each) / size for each, size in zip(sizes, known, strict=True)]
        after = [int(each) for each in sizes]
        if policy != "stretch":
            ratios = [(min if policy == "not_larger" else max)(ratios)] * len(ratios)
            after = [math.floor(ratio * size + 0.5) for ratio, size in zip(ratios, known, strict=True)]
    boxes = _boxes(place, len(named)) if coordinates == "tf_crop_and_resize" else [(0.0, 1.0)] * len(named)
    found = zip(named, known, after, ratios, boxes, strict=True)
    return {
        number: Axis(size, result, ratio, *box)
        for number, size, result, ratio, box in found
        if result != size or ratio != 1 or box != (0.0, 1.0)
    }


def _size(place: Place, size: Size, wanted: float) -> int:
    """A size that is known; one that is not may stay as it is, by a scale of 1."""
    if isinstance(size, int):
        return size
    if array_of(place.node.inputs[_SCALES]) is not None and wanted == 1:
        return 1
    raise place.refused("these attributes have no exact form where a resized axis is dynamic; --static gives it a size")


def _known(place: Place, number: int, name: str) -> Array | None:
    value = place.node.inputs[number] if len(place.node.inputs) > number else None
    if value is None or (value.shape is not None and tuple(value.shape) == (0,)):
        return None
    found = array_of(value)
    if found is None:
        raise place.refused(f"these attributes have no exact form where the {name} are computed")
    return found if found.size else None


def _boxes(place: Place, count: int) -> list[tuple[float, float]]:
    box = _known(place, _ROI, "roi")
    if box is None:
        raise place.refused("its roi is not given")
    return [(float(box[axis]), float(box[axis + count])) for axis in range(count)]


def _along(place: Place, value: ir.Value, number: int, axis: Axis, method: Method, after: tuple[Size, ...]) -> ir.Value:
    if method.mode == "nearest":
        indices = place.constant(nearest(axis, method).astype(np.int64))
        return place.op("Gather", value, indices, shape=after, axis=number)
    if value.dtype != ir.DataType.FLOAT:
        raise place.refused("it interpolates another type than float32")
    weights = place.constant(np.ascontiguousarray(matrix(axis, method).T))
    last = len(after) - 1
    if number == last:
        return place.op("MatMul", value, weights, shape=after)
    perm = [*(each for each in range(last + 1) if each != number), number]
    turned = place.op("Transpose", value, shape=[after[each] for each in perm], perm=perm)
    product = place.op("MatMul", turned, weights, shape=[after[each] for each in perm])
    return place.op("Transpose", product, shape=after, perm=[perm.index(each) for each in range(last + 1)])

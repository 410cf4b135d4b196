"""Interpolation along one axis as ONNX's Resize defines it, as indices or as a matrix.

Coordinates are computed from the scale that the model gives, in float64 where values are interpolated and in float32,
as kernels do it, where the nearest is taken: 3 / 0.6 is 5 there, and 4.9999998 with the float32 next to 0.6.  Source:
ONNX operators, Resize-19, and its reference implementation where the text leaves a choice (align_corners with a scale
that does not give whole sizes uses the unrounded length).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Axis:
    """One resized axis: sizes before and after, the scale that ONNX computes with, and the crop box (roi)."""

    size: int
    wanted: int
    scale: float
    begin: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Method:
    """The attributes of Resize that say how values are found."""

    coordinates: str
    mode: str
    nearest: str
    cubic_a: float
    antialias: bool
    exclude_outside: bool


def copies_elements(node: ir.Node) -> bool:
    """Whether every result of a node is an element of its input: a nearest Resize, but one that writes its own number
    outside of the input.
    """
    if node.op_type != "Resize" or node.domain or node.attributes.get_string("mode", "nearest") != "nearest":
        return False
    return node.attributes.get_string("coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize"


def places(axis: Axis, coordinates: str, kind: type[np.float32 | np.float64] = np.float64) -> Array:
    """Where each output element lies on the input axis, in elements, each step in ``kind``."""
    out: npt.NDArray[np.floating] = np.arange(axis.wanted, dtype=kind)
    length = float(np.float32(axis.scale) * np.float32(axis.size))  # whole where it is meant to be: 5 × 2.4
    if coordinates == "align_corners":
        return out * 0 if length == 1 else out * (axis.size - 1) / (length - 1)
    if coordinates == "asymmetric":
        return out / axis.scale
    if coordinates == "tf_half_pixel_for_nn":
        return (out + 0.5) / axis.scale
    if coordinates == "tf_crop_and_resize":
        span, last = axis.end - axis.begin, axis.size - 1
        inner = out * 0 + span * last / 2 if length == 1 else out * span * last / (length - 1)
        return inner + axis.begin * last
    half = (out + 0.5) / axis.scale - 0.5
    if coordinates == "half_pixel":
        return half
    if coordinates == "pytorch_half_pixel":
        return out * 0 if axis.wanted == 1 else half
    if coordinates == "half_pixel_symmetric":
        return half + kind(axis.size / 2) * (1 - kind(axis.wanted) / kind(length))
    raise Unsupported(f"coordinate_transformation_mode {coordinates}")


def nearest(axis: Axis, method: Method) -> Array:
    """The index that each output element takes, int32."""
    where = places(axis, method.coordinates, np.float32)
    rounded = {
        "round_prefer_floor": lambda: np.ceil(where - 0.5),
        "round_prefer_ceil": lambda: np.floor(where + 0.5),
        "floor": lambda: np.floor(where),
        "ceil": lambda: np.ceil(where),
    }
    if method.nearest not in rounded:
        raise Unsupported(f"nearest_mode {method.nearest}")
    return np.clip(rounded[method.nearest](), 0, axis.size - 1).astype(np.int32)


def matrix(axis: Axis, method: Method) -> Array:
    """Weights (wanted, size), float32: output = matrix @ input."""
    where = places(axis, method.coordinates)
    result = np.zeros((axis.wanted, axis.size))
    stretch = min(axis.scale, 1.0) if method.antialias else 1.0
    kernel, reach = (_cubic, 2) if method.mode == "cubic" else (_linear, 1)
    for row, center in enumerate(where):
        first = int(np.floor(center)) - int(np.ceil(reach / stretch)) - 1
        taps = np.arange(first, first + 2 * int(np.ceil(reach / stretch)) + 4)
        weights = kernel((taps - center) * stretch, method.cubic_a)
        if method.exclude_outside:
            weights = np.where((taps >= 0) & (taps < axis.size), weights, 0)
        if method.exclude_outside or method.antialias:
            weights = weights / weights.sum()
        np.add.at(result[row], np.clip(taps, 0, axis.size - 1), weights)
    return result.astype(np.float32)


def outside(axis: Axis, coordinates: str) -> Array:
    """Which output elements lie outside of the input, where that gives the extrapolation value."""
    where = places(axis, coordinates)
    if coordinates != "tf_crop_and_resize":
        return np.zeros(axis.wanted, bool)
    return np.asarray((where < 0) | (where > axis.size - 1))


def _linear(distance: Array, _: float) -> Array:
    weights: Array = np.clip(1 - np.abs(distance), 0, 1)
    return weights


def _cubic(distance: Array, a: float) -> Array:
    d = np.abs(distance)
    inner = (a + 2) * d**3 - (a + 3) * d**2 + 1
    outer = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    weights: Array = np.where(d <= 1, inner, np.where(d < 2, outer, 0))
    return weights

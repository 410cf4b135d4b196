"""Handlers of Resize, which take what a node states as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from convertkit.onnx.interpolation import Method

B = TypeVar("B")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resizing(Generic[T]):
    """How large the result is, and how its values are found; ``extrapolation`` is the value outside of the image.

    Source: ONNX operators, Resize-19.
    """

    roi: T | None
    scales: T | None
    sizes: T | None
    axes: tuple[int, ...] | None
    policy: str
    method: Method
    extrapolation: float


def resize_node(handler: Callable[[B, T, Resizing[T]], T]) -> Callable[..., T]:
    """The operator's signature around a handler."""

    def resize(
        b: B,
        x: T,
        roi: T | None,
        scales: T | None,
        sizes: T | None,
        *,
        antialias: int = 0,
        axes: tuple[int, ...] | None = None,
        coordinate_transformation_mode: str = "half_pixel",
        cubic_coeff_a: float = -0.75,
        exclude_outside: int = 0,
        extrapolation_value: float = 0.0,
        keep_aspect_ratio_policy: str = "stretch",
        mode: str = "nearest",
        nearest_mode: str = "round_prefer_floor",
    ) -> T:
        method = Method(
            coordinate_transformation_mode, mode, nearest_mode, cubic_coeff_a, bool(antialias), bool(exclude_outside)
        )
        return handler(b, x, Resizing(roi, scales, sizes, axes, keep_aspect_ratio_policy, method, extrapolation_value))

    return resize

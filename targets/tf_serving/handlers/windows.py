"""Pooling, resizing and normalisation over windows of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.targets.tf_serving.call import Call, Handler


def _pooled(name: str) -> Handler:
    """Averages leave padding out on both sides."""

    def handler(call: Call) -> Any:
        window = (call.options["filterHeight"], call.options["filterWidth"])
        return call.activated(getattr(call.tf.nn, name)(call[0], window, call.strides, call.padding))

    return handler


def _resized(name: str) -> Handler:
    def handler(call: Call) -> Any:
        return getattr(call.tf.raw_ops, name)(
            images=call[0],
            size=call[1],
            align_corners=bool(call.options["alignCorners"]),
            half_pixel_centers=bool(call.options["halfPixelCenters"]),
        )

    return handler


WINDOWS: Mapping[str, Handler] = {
    "AVERAGE_POOL_2D": _pooled("avg_pool2d"), "MAX_POOL_2D": _pooled("max_pool2d"),
    "RESIZE_BILINEAR": _resized("ResizeBilinear"), "RESIZE_NEAREST_NEIGHBOR": _resized("ResizeNearestNeighbor"),
}  # fmt: skip

"""How far right runtimes may be apart on pixels that lie between pixels: further, the larger the image."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from convertkit.stage import FLOAT32, Tolerance

_ROUNDINGS = 6
"""Of one coordinate: scale, product and difference, in each of two runtimes."""
_HALF_PLACE = 2.0**-24
"""What rounding to float32 changes at most, relative to a coordinate."""


def float32_tolerance(model: ir.Model) -> Tolerance:
    """``FLOAT32``, and more where the model resizes by a factor that coordinates in float32 cannot hold.

    An output pixel lies at (i + ½) · scale − ½ of the input, which every runtime computes in float32 and in its own
    order: near pixel 256 it is off by some 1e-4 pixels, and so is the value by that part of what neighbours differ by.
    Measured between PyTorch and ONNX Runtime on white noise, of the largest value: 3.5e-6 at 24 pixels, 2.3e-5 at 100,
    4.5e-5 at 256; PyTorch's own float32 is that far from its float64.  Powers of two are exact.
    """
    pixels = max((_pixels(node) for node in model.graph.all_nodes() if node.op_type == "Resize"), default=0)
    if not pixels:
        return FLOAT32
    relative = (FLOAT32.relative or 0.0) + pixels * _ROUNDINGS * _HALF_PLACE
    return replace(FLOAT32, reason=f"{FLOAT32.reason}, of coordinates up to {pixels}, too", relative=relative)


def _pixels(node: ir.Node) -> int:
    """The largest size that ``node`` interpolates by a factor that is not a power of two, 0 where there is none."""
    x, y = node.inputs[0], node.outputs[0]
    if node.attributes.get_string("mode", "nearest") == "nearest" or x is None or x.shape is None or y.shape is None:
        return 0
    if len(x.shape) != len(y.shape):  # declared so; it is not what the operator makes
        return 0
    corners = node.attributes.get_string("coordinate_transformation_mode", "half_pixel") == "align_corners"
    pairs = zip(tuple(x.shape), tuple(y.shape), strict=True)
    known = ((before, after) for before, after in pairs if isinstance(before, int) and isinstance(after, int))
    return max((before for before, after in known if _is_inexact(before - corners, after - corners)), default=0)


def _is_inexact(before: int, after: int) -> bool:
    large, small = max(before, after), max(1, min(before, after))
    return large % small != 0 or (large // small) & (large // small - 1) != 0

"""Resize in forms that ExecuTorch has kernels for: the bilinear one, else rows that are picked, and products."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, replaced, sizes
from convertkit.onnx.interpolation import Method
from convertkit.targets.forms.gathered_resizes import write_resize
from convertkit.targets.forms.writing import write_each

BILINEAR = "Bilinear"
"""Of this target's table alone: images (batch, channels, height, width), ``size``, ``align_corners``."""
_SCALES, _SIZES = 2, 3


def write_resizes(model: ir.Model) -> None:
    """Every Resize, in place."""
    write_each(model, {"Resize": _write})


def _write(node: ir.Node) -> None:
    write_resize(node, _is_bilinear)
    if node.graph is None:  # written in other operators
        return
    corners = node.attributes.get_string("coordinate_transformation_mode", "half_pixel") == "align_corners"
    x, after = node.inputs[0], sizes(node.outputs[0])
    assert x is not None
    assert after is not None
    size = [each for each in after[2:] if each is not None]
    replaced(node, BILINEAR, [x], {"size": size, "align_corners": int(corners)})


def _is_bilinear(node: ir.Node, method: Method) -> bool:
    """Whether torch's bilinear interpolation to the same size is the same."""
    before, after = sizes(node.inputs[0]), sizes(node.outputs[0])
    if before is None or after is None or len(before) != 4 or before[:2] != after[:2]:
        return False
    if method.mode != "linear" or method.antialias or method.exclude_outside or not _by_size(node, before, after):
        return False
    is_pixel = method.coordinates == "pytorch_half_pixel" and 1 not in after[2:]
    return is_pixel or method.coordinates in ("half_pixel", "align_corners")


def _by_size(node: ir.Node, before: tuple[int | None, ...], after: tuple[int | None, ...]) -> bool:
    """Whether the factors are those between the sizes, which are known."""
    if "axes" in node.attributes or None in (*before[2:], *after[2:]):
        return False
    if len(node.inputs) > _SIZES and node.inputs[_SIZES] is not None:
        return True
    factors = array_of(node.inputs[_SCALES])
    ratios = [np.float32(now or 1) / np.float32(was or 1) for was, now in zip(before, after, strict=True)]
    return factors is not None and factors.tolist() == [float(each) for each in ratios]

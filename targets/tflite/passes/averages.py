"""Which average pools TFLite's integer kernel computes as ONNX does."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.tflite.handlers.window import own_padding, window

_IMAGE_RANK = 4


def counts_as_onnx(node: ir.Node, x: ir.Value | None) -> bool:
    """Averages over images, of ``x`` (N, H, W, C): without padding, or with padding SAME that does not count.

    Source: TFLite's ``reference_integer_ops::AveragePool``, which divides by the elements that lie in the image.
    """
    attributes = node.attributes
    if x is None or len(x.shape or ()) > _IMAGE_RANK or attributes.get_int("ceil_mode", 0) != 0:
        return False
    pads, auto = attributes.get_ints("pads", ()), attributes.get_string("auto_pad", "NOTSET")
    if set(attributes.get_ints("dilations", (1,))) != {1}:
        return False
    if not any(pads) and "SAME" not in auto:
        return True
    sizes = [size for size in list(x.shape or ())[1:-1] if isinstance(size, int)]
    if attributes.get_int("count_include_pad", 0) or len(sizes) != _IMAGE_RANK - 2:
        return False
    kernel, strides = tuple(attributes.get_ints("kernel_shape", ())), tuple(attributes.get_ints("strides", ())) or None
    win = window(tuple(sizes), kernel, strides, None, tuple(pads) or None, auto)
    return own_padding(win, tuple(sizes)) == "SAME"

"""Which average pools TFLite's integer kernel computes as ONNX does."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.targets.tflite.handlers.window import grown, is_padded, own_padding, window

_IMAGE_RANK = 4


def counts_as_onnx(node: ir.Node, x: ir.Value | None) -> bool:
    """Averages over images or rows, of ``x`` (N, H, W, C): without padding, or with padding SAME that does not count.

    Padding that counts is zeros, written in front.  What ``ceil_mode`` adds never counts.
    Source: TFLite's ``reference_integer_ops::AveragePool``, which divides by the elements that lie in the image.
    """
    attributes = node.attributes
    if x is None or len(x.shape or ()) > _IMAGE_RANK or set(attributes.get_ints("dilations", (1,))) != {1}:
        return False
    pads, auto = attributes.get_ints("pads", ()), attributes.get_string("auto_pad", "NOTSET")
    rounds_up = attributes.get_int("ceil_mode", 0) != 0
    counted = attributes.get_int("count_include_pad", 0) != 0
    if not rounds_up and "SAME" not in auto and (counted or not any(pads)):
        return True
    sizes = tuple(size for size in list(x.shape or ())[1:-1] if isinstance(size, int))
    if len(sizes) != len(list(x.shape or ())) - 2:
        return False
    kernel, strides = tuple(attributes.get_ints("kernel_shape", ())), tuple(attributes.get_ints("strides", ())) or None
    stated = window(sizes, kernel, strides, None, tuple(pads) or None, auto)
    whole = grown(stated, sizes) if rounds_up else stated
    if counted and is_padded(stated):
        return whole == stated
    return own_padding(whole, sizes) is not None

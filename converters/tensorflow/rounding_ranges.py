"""TensorFlow's simulated quantization, whose range is moved so that 0 is one of its steps, registered with tf2onnx.

tf2onnx rounds the zero point in double and halves to even, TensorFlow's kernel in float32 and halves up: on a range of
-2 to 2 they are one step apart.  It has no form of ranges by channel, narrow ones, or other bits than 8.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.tensorflow.compat import tf_op
from convertkit.converters.tensorflow.forms import Form

_BITS = 8


def _moved(low: Array, high: Array, first: int, last: int) -> tuple[Array, Array]:
    """The size of a step, and the step from ``first`` to ``last`` that is 0 exactly; a range of nothing has steps of 0.

    Source of the rule: tf.quantization.fake_quant_with_min_max_args, "min and max are adjusted".
    """
    scale = (high - low) / np.float32(last - first)
    zero = np.floor(np.float32(first) - low / np.where(scale > 0, scale, np.float32(1)) + np.float32(0.5))
    return scale, np.clip(zero, first, last)


@tf_op(["FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxVarsPerChannel"])
class FakeQuant:
    """QuantizeLinear and DequantizeLinear of 8 bits, by channels of the last axis as int8; other bits as computed."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        by_attribute = node.type == "FakeQuantWithMinMaxArgs"
        ends = (f.flag("min", -6.0), f.flag("max", 6.0)) if by_attribute else (f.known(1), f.known(2))
        bits, first = int(f.flag("num_bits", _BITS)), int(bool(f.flag("narrow_range")))
        start, end = (np.asarray(each, np.float32) for each in ends)
        scale, zero = _moved(start, end, first, 2**bits - 1)
        step = np.where(scale > 0, scale, np.float32(1))
        low, high = (first - zero) * scale, (2**bits - 1 - zero) * scale
        x = node.input[0]
        if first or bits != _BITS or (scale <= 0).any():
            x = f.op("Min", f.op("Max", x, f.like(low)), f.like(high))
        if bits != _BITS:
            place = f.op("Div", f.op("Sub", x, f.like(low)), f.like(step))
            place = f.op("Floor", f.op("Add", place, f.like(0.5)))
            f.end(f.op("Add", f.op("Mul", place, f.like(step)), f.like(low)))
            return
        by_channel = step.ndim > 0
        zeros = f.constant(zero - 128, np.int8) if by_channel else f.constant(zero, np.uint8)
        how = {"axis": len(f.shape()) - 1} if by_channel else {}
        steps = f.op("QuantizeLinear", x, f.like(step), zeros, **how)
        f.end(f.op("DequantizeLinear", steps, f.like(step), zeros, **how))

"""TensorFlow's simulated quantization, whose range is moved so that 0 is one of its steps, registered with tf2onnx.

tf2onnx rounds the zero point in double and halves to even, TensorFlow's kernel in float32 and halves up: on a range of
-2 to 2 they are one step apart.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from convertkit.converters.tensorflow.compat import FakeQuantWithMinMaxArgs, tf_op

_LAST = np.float32(255)


def _moved(low: float, high: float) -> tuple[float, float]:
    """The range of 256 steps that holds 0 exactly.

    Source of the rule: tf.quantization.fake_quant_with_min_max_args, "min and max are adjusted".
    """
    scale = (np.float32(high) - np.float32(low)) / _LAST
    zero = np.clip(np.floor(np.float32(0) - np.float32(low) / scale + np.float32(0.5)), 0, _LAST)
    return float(-zero * scale), float((_LAST - zero) * scale)


@tf_op(["FakeQuantWithMinMaxArgs", "FakeQuantWithMinMaxVars"])
class FakeQuant(FakeQuantWithMinMaxArgs):  # type: ignore[misc]  # tf2onnx has no types
    """tf2onnx's pair of QuantizeLinear and DequantizeLinear on the range that TensorFlow takes."""

    @classmethod
    def version_11(cls, ctx: Any, node: Any, **how: Any) -> None:
        if node.type == "FakeQuantWithMinMaxArgs":
            low, high = _moved(node.get_attr_value("min", -6.0), node.get_attr_value("max", 6.0))
            node.set_attr("min", low)
            node.set_attr("max", high)
        elif node.inputs[1].is_const() and node.inputs[2].is_const():
            ends = _moved(*(float(each.get_tensor_value(as_list=False)) for each in node.inputs[1:3]))
            for index, (end, name) in enumerate(zip(ends, ("low", "high"), strict=True), 1):
                made = ctx.make_const(f"{node.name}_{name}", np.array(end, np.float32))
                ctx.replace_input(node, node.input[index], made.output[0], index)
        cls.version_10(ctx, node, **how)

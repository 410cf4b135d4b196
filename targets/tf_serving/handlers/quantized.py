"""Integers that stand for reals, where a model takes or gives them.

Source: ONNX, QuantizeLinear and DequantizeLinear: halves are rounded to even.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convertkit.targets.tf_serving.call import Call, Handler
from convertkit.targets.tf_serving.file import Steps, Tensor

_WIDE = "int32"


def quantize(call: Call) -> Any:
    """Reals become integers; integers become those of the same scale with another point or another type."""
    tf, wanted, given = call.tf, call.outputs[0], call.told[0] if call.told else None
    scales, points = _along(wanted)
    if given is None or given.dtype.startswith("float"):
        integers = tf.round(call[0] / scales) + points.astype(np.float32)
    else:
        integers = tf.cast(call[0], _WIDE) + (points - _along(given)[1])
    return tf.cast(_clipped(tf, integers, wanted), wanted.dtype)


def dequantize(call: Call) -> Any:
    """The reals that integers stand for; float16 as it is."""
    tf, given = call.tf, call.told[0] if call.told else None
    if given is None or given.steps is None:
        return tf.cast(call[0], call.outputs[0].dtype)
    scales, points = _along(given)
    return tf.cast(tf.cast(call[0], _WIDE) - points, "float32") * scales


def _clipped(tf: Any, x: Any, to: Tensor) -> Any:
    """Within the bounds of the integer type of ``to``."""
    bounds = tf.as_dtype(to.dtype)
    return tf.clip_by_value(x, tf.cast(bounds.min, x.dtype), tf.cast(bounds.max, x.dtype))


def _along(tensor: Tensor) -> tuple[Any, Any]:
    """Scales and points as arrays that broadcast against the tensor."""
    steps = tensor.steps or Steps((1.0,), (0,), 0)
    view = () if len(steps.scales) == 1 else tuple(-1 if at == steps.axis else 1 for at in range(len(tensor.shape)))
    return np.array(steps.scales, np.float32).reshape(view), np.array(steps.points, np.int32).reshape(view)


QUANTIZED: Mapping[str, Handler] = {"QUANTIZE": quantize, "DEQUANTIZE": dequantize}

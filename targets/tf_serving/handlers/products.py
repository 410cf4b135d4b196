"""Matrix products and convolutions.  Images are (batch, height, width, channels) on both sides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.tf_serving.call import Call, Handler


def _weights(call: Call, place: int, order: tuple[int, ...]) -> Any:
    """The input at ``place`` with its axes in TensorFlow's order, turned now where it is a constant."""
    value: Array | None = call.constants[place]
    if value is None:
        return call.tf.transpose(call[place], order)
    return call.tf.constant(np.ascontiguousarray(value.transpose(order)))


def _with_bias(call: Call, x: Any, place: int) -> Any:
    return call.activated(x if call[place] is None else call.tf.nn.bias_add(x, call[place]))


def fully_connected(call: Call) -> Any:
    """Weights are (outputs, inputs); without ``keepNumDims`` all axes but the last become one."""
    tf, x, weights = call.tf, call[0], _weights(call, 1, (1, 0))
    inputs = weights.shape[0]
    product = tf.matmul(tf.reshape(x, [-1, inputs]), weights)
    if call.options["keepNumDims"] and len(x.shape) != 2:
        product = tf.reshape(product, tf.concat([tf.shape(x)[:-1], [weights.shape[1]]], 0))
    return _with_bias(call, product, 2)


def batch_matmul(call: Call) -> Any:
    options = call.options
    return call.tf.matmul(call[0], call[1], transpose_a=bool(options["adjX"]), transpose_b=bool(options["adjY"]))


def conv_2d(call: Call) -> Any:
    """Weights are (outputs, height, width, inputs of a group)."""
    filters = _weights(call, 1, (1, 2, 3, 0))
    product = call.tf.nn.conv2d(call[0], filters, call.strides, call.padding, dilations=call.dilations)
    return _with_bias(call, product, 2)


def depthwise_conv_2d(call: Call) -> Any:
    """Weights are (1, height, width, inputs × multiplier)."""
    tf, multiplier = call.tf, call.options["depthMultiplier"]
    filters = _weights(call, 1, (1, 2, 3, 0))
    height, width, channels, _ = filters.shape
    filters = tf.reshape(filters, [height, width, channels // multiplier, multiplier])
    rows, columns = call.strides
    if rows != columns:
        return _with_bias(call, _grouped(call, filters), 2)
    product = tf.nn.depthwise_conv2d(call[0], filters, [1, rows, columns, 1], call.padding, dilations=call.dilations)
    return _with_bias(call, product, 2)


def _grouped(call: Call, filters: Any) -> Any:
    """For strides that differ, which TensorFlow's depthwise kernel does not take: a convolution of each channel."""
    height, width, channels, multiplier = filters.shape
    filters = call.tf.reshape(filters, [height, width, 1, channels * multiplier])
    return call.tf.nn.conv2d(call[0], filters, call.strides, call.padding, dilations=call.dilations)


def transpose_conv(call: Call) -> Any:
    """Output sizes, weights (outputs, height, width, inputs), the image, a bias."""
    filters = _weights(call, 1, (1, 2, 0, 3))
    product = call.tf.nn.conv2d_transpose(call[2], filters, call[0], call.strides, call.padding)
    return _with_bias(call, product, 3)


def _volume(call: Call, prefix: str, suffix: str) -> list[int]:
    return [1, *(call.options[f"{prefix}{axis}{suffix}"] for axis in "DHW"), 1]


def conv_3d(call: Call) -> Any:
    """Weights are (depth, height, width, inputs, outputs), as in TensorFlow."""
    product = call.tf.nn.conv3d(
        call[0], call[1], _volume(call, "stride", ""), call.padding, dilations=_volume(call, "dilation", "Factor")
    )
    return _with_bias(call, product, 2)


def conv_3d_transpose(call: Call) -> Any:
    """Output sizes, weights (depth, height, width, outputs, inputs), the volume, a bias."""
    product = call.tf.nn.conv3d_transpose(call[2], call[1], call[0], _volume(call, "stride", ""), call.padding)
    return _with_bias(call, product, 3)


PRODUCTS: Mapping[str, Handler] = {
    "FULLY_CONNECTED": fully_connected, "BATCH_MATMUL": batch_matmul, "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d, "TRANSPOSE_CONV": transpose_conv, "CONV_3D": conv_3d,
    "CONV_3D_TRANSPOSE": conv_3d_transpose,
}  # fmt: skip

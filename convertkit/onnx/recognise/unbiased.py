"""A bias in front of an instance normalisation, which takes the mean of each channel away again.

What is left of it is the rounding of a mean that is not 0.  Where a channel is constant (a convolution of zeros is its
bias), the root of an epsilon of 1e-5 makes that 300 times as large, and so does each further normalisation.  Without
the bias a constant channel is 0, and so is its mean, in any arithmetic.
"""

from __future__ import annotations

import json

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, bypass, is_same_shape, only_user, sizes

UNBIASED = "convertkit.unbiased"
"""Key in the ``metadata_props`` of a normalisation; the value lists the largest number that each channel had
added, to three digits."""
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_BIAS = 2
"""Which input of a convolution is its bias."""


def recognise_unbiased(node: ir.Node) -> None:
    """An instance normalisation of what has a number added to each channel, or several one behind the other.

    before:  InstanceNormalization(Conv(x, w, b)), InstanceNormalization(Add(x, b)), Sub alike; b finite
    after:   InstanceNormalization(Conv(x, w)), InstanceNormalization(x)
    """
    if node.op_type != "InstanceNormalization" or node.domain:
        return
    while (added := _without_bias(node)) is not None:
        known = biases_of(node)
        largest = added if known is None else np.maximum(*np.broadcast_arrays(known, added))
        node.metadata_props[UNBIASED] = json.dumps([float(f"{size:.3g}") for size in largest])  # it is a bound


def biases_of(norm: ir.Node) -> Array | None:
    """The largest numbers that were added in front of a normalisation, float64 (channels) or (1), None without any."""
    told = norm.metadata_props.get(UNBIASED)
    return None if told is None else np.array(json.loads(told), np.float64)


def _without_bias(norm: ir.Node) -> Array | None:
    """Take out what is added last, and tell its size, (channels) or (1); None where nothing is that may be."""
    x = norm.inputs[0]
    before = None if x is None else x.producer()
    rank = len(sizes(x) or ())
    if x is None or before is None or before.domain or only_user(x) is not norm or not rank:
        return None
    if before.op_type in _CONVOLUTIONS and len(before.inputs) > _BIAS:
        bias = array_of(before.inputs[_BIAS])
        size = _sizes(None if bias is None else bias.reshape(-1, *(1,) * (rank - 2)), rank)
        if size is not None:
            before.resize_inputs(_BIAS)
        return size
    if before.op_type not in ("Add", "Sub"):
        return None
    one, other = before.inputs
    for given, constant in ((one, other), (other, one)) if before.op_type == "Add" else ((one, other),):
        size = _sizes(array_of(constant), rank)
        if given is not None and size is not None and is_same_shape(given.shape, x.shape):
            bypass(before, given)
            return size
    return None


def _sizes(bias: Array | None, rank: int) -> Array | None:
    """Absolute values of each channel, float64 (channels) or (1); None of what varies within one, or is not finite."""
    if bias is None or bias.ndim > rank or not np.isfinite(bias).all():
        return None
    aligned = bias.reshape((1,) * (rank - bias.ndim) + bias.shape)
    if any(size != 1 for size in aligned.shape[2:]):
        return None
    largest: Array = np.abs(aligned.astype(np.float64)).reshape(aligned.shape[:2]).max(axis=0)
    return largest

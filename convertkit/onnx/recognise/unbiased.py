"""A bias in front of an instance normalisation, which takes the mean of each channel away again.

What is left of it is the rounding of a mean that is not 0.  Where a channel is constant (a convolution of zeros is its
bias), the root of an epsilon of 1e-5 makes that 300 times as large, and so does each further normalisation.  Without
the bias a constant channel is 0, and so is its mean, in any arithmetic.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, bypass, is_same_shape, only_user

UNBIASED = "convertkit.unbiased"
"""Key in the ``metadata_props`` of a normalisation; the value is the largest number that was added in front of it."""
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_BIAS = 2
"""Which input of a convolution is its bias."""


def recognise_unbiased(node: ir.Node) -> None:
    """An instance normalisation of what has a number added to each channel.

    before:  InstanceNormalization(Conv(x, w, b)), InstanceNormalization(Add(x, b)), Sub alike; b finite
    after:   InstanceNormalization(Conv(x, w)), InstanceNormalization(x)
    """
    x = node.inputs[0] if node.op_type == "InstanceNormalization" and not node.domain else None
    before = x.producer() if x is not None else None
    if x is None or before is None or before.domain or only_user(x) is not node:
        return
    if before.op_type in _CONVOLUTIONS and len(before.inputs) > _BIAS:
        if (size := _largest(before.inputs[_BIAS])) is not None:
            before.resize_inputs(_BIAS)
            node.metadata_props[UNBIASED] = repr(size)
    elif before.op_type in ("Add", "Sub"):
        for given, bias in _operands(before):
            size = _largest(bias) if _is_of_channels(bias, len(x.shape or ())) else None
            if given is not None and size is not None and is_same_shape(given.shape, x.shape):
                bypass(before, given)
                node.metadata_props[UNBIASED] = repr(size)
                return


def _operands(node: ir.Node) -> list[tuple[ir.Value | None, ir.Value | None]]:
    """What is added to, and what is added."""
    one, other = node.inputs
    return [(one, other), (other, one)] if node.op_type == "Add" else [(one, other)]


def _largest(bias: ir.Value | None) -> float | None:
    """The largest absolute value of a constant, None where it is computed or not finite."""
    array = array_of(bias)
    largest = float(np.abs(array.astype(np.float64)).max(initial=0.0)) if array is not None else np.inf
    return largest if np.isfinite(largest) else None


def _is_of_channels(bias: ir.Value | None, rank: int) -> bool:
    """Whether a constant is the same for all elements of a channel of a tensor of this rank."""
    array = array_of(bias)
    if array is None or array.ndim > rank:
        return False
    return all(size == 1 for size in ((1,) * (rank - array.ndim) + array.shape)[2:])

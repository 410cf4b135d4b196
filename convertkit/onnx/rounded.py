"""Functions of stored float32 values, computed in float64 and rounded once.

NumPy's own float32 ``power`` and its like are a rounding off in a fifth of all values, where runtimes and frameworks
are right in nearly all.  A difference that is nothing in the source, ``(x + d) ** r - d ** r`` in silence, has to stay
nothing when ``d ** r`` is folded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx.reference.ops

from convertkit.artifact import Array

_NAMES = """Acos Acosh Asin Asinh Atan Atanh Cos Cosh Elu Erf Exp Gelu Log LogSoftmax Mish Pow Selu Sigmoid Sin Sinh
Softmax Softplus Tan Tanh"""
FUNCTIONS = frozenset(_NAMES.split())
"""Operators whose float32 results no two libraries agree on; sums and products are rounded alike by all."""


def rounded_function(
    op_type: str, version: int, inputs: Sequence[Array | None], attributes: Mapping[str, Any]
) -> Array | None:
    """The operator's output for float32 ``inputs``; None where it is none of :data:`FUNCTIONS` of float32 alone."""
    arrays = [array for array in inputs if array is not None]
    if op_type not in FUNCTIONS or len(arrays) < len(inputs) or any(each.dtype != np.float32 for each in arrays):
        return None
    function = onnx.reference.ops.load_op("", op_type, version).eval
    with np.errstate(all="ignore"):
        return np.asarray(function(*(each.astype(np.float64) for each in arrays), **attributes)).astype(np.float32)

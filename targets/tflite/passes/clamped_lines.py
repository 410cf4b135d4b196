"""Lines between integers as MUL and ADD, which every integer kernel and NPU has, where these give their integers.

before:  x:i8 → HardSigmoid → y:i8              x:i8 → Table → y:i8
after:   x:i8 → Mul(alpha) → Add(beta) → y:i8   x:i8 → Mul(factor) → y:i8

The product of a HardSigmoid is held with y's scale and a zero point that is ``beta`` further: it saturates where y
does, and the sum adds nothing but what one zero point differs from the other.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.targets.tflite.tensor import QuantParams

_TIE = 1e-4
"""Of a step: kernels hold the ratio of scales as a float32, or in 31 bits."""
_WHOLE = 1e-6
_BYTES = range(-128, 128)


def is_product_and_sum(node: ir.Node, given: QuantParams, wanted: QuantParams, results: Array) -> bool:
    """Whether a product and a sum give ``results`` for -128 to 127 in every kernel."""
    if node.op_type != "HardSigmoid" or wanted.axis is not None:
        return False
    alpha, beta = node.attributes.get_float("alpha", 0.2), node.attributes.get_float("beta", 0.5)
    offset = beta / wanted.scale[0]
    zero = held(wanted, beta).zero_point[0]
    if not alpha or beta <= 0 or abs(offset - round(offset)) > _WHOLE * offset or zero not in _BYTES:
        return False
    steps = (np.arange(-128, 128) - given.zero_point[0]) * (float(given.scale[0]) * alpha / wanted.scale[0])
    computed = np.clip(np.rint(steps) + zero, -128, 127)
    inside = (computed > -128) & (computed < 127)
    near = np.abs(np.abs(steps - np.floor(steps)) - 0.5) < _TIE
    return bool((computed == results).all() and not (inside & near).any())


def factor_of(results: Array, given: QuantParams, wanted: QuantParams) -> float | None:
    """The constant whose product with -128 to 127 is ``results`` in every kernel; None where there is none.

    Of all constants that give these integers it is the middle one, which is the farthest from ties.
    """
    steps = np.arange(-128.0, 128) - given.zero_point[0]
    moved = results.astype(float) - wanted.zero_point[0]
    if wanted.axis is not None or given.axis is not None or moved[steps == 0].any():
        return None
    lowest, highest = moved - 0.5 + _TIE, moved + 0.5 - _TIE
    lowest[results == -128], highest[results == 127] = -np.inf, np.inf
    steps, lowest, highest = (each[steps != 0] for each in (steps, lowest, highest))
    least = np.where(steps > 0, lowest / steps, highest / steps).max()
    most = np.where(steps > 0, highest / steps, lowest / steps).min()
    least, most = (max(least, 0.0), most) if most > 0 else (least, min(most, 0.0))  # no product is made with 0
    if not least < most or not np.isfinite([least, most]).all():
        return None
    return float((least + most) / 2 * wanted.scale[0] / given.scale[0])


def held(wanted: QuantParams, beta: float) -> QuantParams:
    """How the product is held in front of the sum."""
    return QuantParams.per_tensor(wanted.scale[0], wanted.zero_point[0] + round(beta / wanted.scale[0]))

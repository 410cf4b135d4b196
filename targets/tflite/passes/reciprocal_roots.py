"""Tables that are the results of a kernel between integers, which NPUs have where they have no GATHER.

before:  x:i8 → Table → y:i8
after:   x:i8 → RSQRT → y:i8

A layer norm's factor, the reciprocal of a root of a variance, is such a table.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.tflite.tensor import QuantParams

_TIE = 0.02
"""Of a step: the kernel counts in 2^-20, which is up to a hundredth of one."""
_LEAST, _MOST = -128, 127


def is_reciprocal_root(results: Array, given: QuantParams, wanted: QuantParams) -> bool:
    """Whether ``results`` for -128 to 127 are those of RSQRT, but where the number lies on a tie.

    Source of the rules: TFLite's ``elementwise.cc``, which refuses what is below zero and has the greatest integer for
    zero; Vela's ``lut.py`` does the same.
    """
    if given.axis is not None or wanted.axis is not None or given.zero_point[0] > _LEAST:
        return False
    with np.errstate(divide="ignore"):
        numbers = 1 / np.sqrt(np.arange(_MOST - _LEAST + 1) * float(given.scale[0]))
    steps = np.clip(numbers / float(wanted.scale[0]) + wanted.zero_point[0], _LEAST, _MOST)
    return bool((np.abs(results - steps) <= 0.5 + _TIE).all())

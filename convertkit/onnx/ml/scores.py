"""What is done to scores at the end: ``post_transform``.

Source: the texts of ai.onnx.ml; the approximation of the probit and what softmax makes of zeros, ONNX Runtime.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.fusion import Fusion

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""Their names, in the order in which TreeEnsemble numbers them."""
_NEARLY_ZERO = 1e-7
_WIDTH = 0.147
"""The parameter of Winitzki's approximation of the inverse error function."""
_PI = 3.14159
"""To that many places, as ONNX Runtime has it."""


def transformed(f: Fusion, scores: ir.Value, name: str) -> ir.Value:
    """Scores (rows, several) after ``name``, one of :data:`TRANSFORMS`."""
    if name == "LOGISTIC":
        return f.op("Sigmoid", scores)
    if name == "SOFTMAX":
        return f.op("Softmax", scores, attributes=[ir.AttrInt64("axis", -1)])
    if name == "SOFTMAX_ZERO":
        return _softmax_of_others_than_zero(f, scores)
    return probit(f, scores) if name == "PROBIT" else scores


def probit(f: Fusion, scores: ir.Value) -> ir.Value:
    """``sqrt(2) * erfinv(2 x - 1)``."""
    x = f.op("Sub", f.op("Mul", scores, _real(f, 2.0)), _real(f, 1.0))
    inside = f.op("Mul", f.op("Sub", _real(f, 1.0), x), f.op("Add", _real(f, 1.0), x))
    log = f.op("Log", inside)
    half = f.op("Add", _real(f, 2 / (_PI * _WIDTH)), f.op("Mul", log, _real(f, 0.5)))
    square = f.op("Sub", f.op("Mul", half, half), f.op("Mul", log, _real(f, 1 / _WIDTH)))
    size = f.op("Mul", f.op("Sqrt", f.op("Sub", f.op("Sqrt", square), half)), _real(f, np.sqrt(2)))
    return f.op("Where", f.op("Less", x, _real(f, 0.0)), f.op("Neg", size), size)


def _softmax_of_others_than_zero(f: Fusion, scores: ir.Value) -> ir.Value:
    """Zeros take no part in the sum."""
    keep = [ir.AttrInt64("keepdims", 1)]
    largest = f.op("ReduceMax", scores, f.ints(-1), attributes=keep)
    counts = f.op("Greater", f.op("Abs", scores), _real(f, _NEARLY_ZERO))
    powers = f.op("Exp", f.op("Sub", scores, largest))
    shares = f.op("Where", counts, powers, _real(f, 0.0))
    total = f.op("ReduceSum", shares, f.ints(-1), attributes=keep)
    zeros = f.op("Mul", scores, f.op("Exp", f.op("Neg", largest)))
    return f.op("Div", f.op("Where", counts, powers, zeros), total)


def _real(f: Fusion, value: float) -> ir.Value:
    return f.tensor(np.array(value, np.float32))

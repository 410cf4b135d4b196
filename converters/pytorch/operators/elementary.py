"""Elementary functions that torch's exporter writes so that digits, signs or whole ranges are lost, in ONNX.

Its own forms are ``log(x + 1)`` for log1p, ``exp(x) - 1``, ``log(sigmoid(x))``, ``log(exp(x) + exp(y))``, ``x < 0`` for
the sign bit, and ``atan(y / x)`` moved by π, which takes -π for y = 0 and 0 for x = y = 0 whatever their signs.
What is copied keeps its type and shape there, whatever it is written over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnxscript import opset18 as op

_ATEN = torch.ops.aten
_SERIES_END = 0.3
_SERIES = tuple(2 / (2 * power + 1) for power in range(5))


def translations() -> dict[Any, Callable[..., Any]]:
    """The ONNX forms by overload, as torch's exporter for exported programs takes them."""
    return {
        _ATEN.log1p.default: _log1p,
        _ATEN.expm1.default: _expm1,
        _ATEN.special_expm1.default: _expm1,
        _ATEN.log_sigmoid.default: _log_sigmoid,
        _ATEN.logaddexp.default: _logaddexp,
        _ATEN.atan2.default: _atan2,
        _ATEN.hypot.default: _hypot,
        _ATEN.copy.default: _copy,
        _ATEN.signbit.default: _signbit,
        _ATEN.copysign.Tensor: _copysign,
        _ATEN.bitwise_right_shift.Tensor_Scalar: _right_shift,
        torch.ops.aten.__rshift__.Scalar: _right_shift,
        _ATEN.bitwise_left_shift.Tensor_Scalar: _left_shift,
        torch.ops.aten.__lshift__.Scalar: _left_shift,
    }


def _copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    """In the type and the shape of what is written over; torch's exporter leaves them as they come."""
    same = source.dtype is not None and source.dtype == x.dtype
    wide = op.Identity(source) if same else op.CastLike(source, x)
    sizes = [None if each.shape is None else [str(dim) for dim in each.shape] for each in (x, source)]
    return wide if sizes[0] is not None and sizes[0] == sizes[1] else op.Expand(wide, op.Shape(x))


def _log1p(x: Any) -> Any:
    return _log_plus_one(x, x)


def _log_plus_one(x: Any, like: Any) -> Any:
    """A series in ``s = x / (2 + x)`` up to |x| = 0.3, the logarithm of the sum beyond.

    ``log(1 + x) = 2 s (1 + s²/3 + s⁴/5 + …)``; the terms left out are below 3e-9.  Kahan's form asks for a logarithm
    that keeps all digits near 1, which XNNPACK's does not.  Doubles take that form: their runtimes have one.
    """
    one = _number(like, 1.0)
    total = op.Add(x, one)
    if like.dtype == ir.DataType.DOUBLE:
        trivial = op.Or(op.Equal(total, one), op.Equal(total, _number(like, math.inf)))
        return op.Where(trivial, x, op.Mul(x, op.Div(op.Log(total), op.Sub(total, one))))
    s = op.Div(x, op.Add(x, _number(like, 2.0)))
    square, series = op.Mul(s, s), _number(like, _SERIES[-1])
    for coefficient in _SERIES[-2::-1]:
        series = op.Add(op.Mul(series, square), _number(like, coefficient))
    near = op.Less(op.Abs(x), _number(like, _SERIES_END))
    return op.Where(near, op.Mul(s, series), op.Log(total))


def _expm1(x: Any) -> Any:
    """``tanh(x / 2) · (exp(x) + 1)``."""
    return op.Mul(op.Tanh(op.Mul(x, _number(x, 0.5))), op.Add(op.Exp(x), _number(x, 1.0)))


def _log_sigmoid(x: Any) -> Any:
    return op.Neg(op.Softplus(op.Neg(x)))


def _logaddexp(x: Any, y: Any) -> Any:
    """The greater plus ``log1p(exp(-|x - y|))``; two equal infinities have no difference."""
    gap = op.Where(op.Equal(x, y), _number(x, 0.0), op.Abs(op.Sub(x, y)))
    return op.Add(op.Max(x, y), _log_plus_one(op.Exp(op.Neg(gap)), x))


def _atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), signed zeros, infinities and NaN as in C.

    Chosen by comparison, as LiteRT's maximum and minimum drop NaN.
    """
    ay, ax = op.Abs(y), op.Abs(x)
    steep = op.Greater(ay, ax)
    big, small = op.Where(steep, ay, ax), op.Where(steep, ax, ay)
    even = op.Where(op.Equal(big, _number(y, 0.0)), _number(y, 0.0), _number(y, 1.0))
    turn = op.Atan(op.Where(op.Equal(ay, ax), even, op.Div(small, big)))
    turn = op.Where(steep, op.Sub(_number(y, math.pi / 2), turn), turn)
    turn = op.Where(_signbit(x), op.Sub(_number(y, math.pi), turn), turn)
    return op.Mul(turn, _unit(y))


def _hypot(x: Any, y: Any) -> Any:
    """Scaled by the greater, so that squares neither overflow nor vanish."""
    one, ax, ay = _number(x, 1.0), op.Abs(x), op.Abs(y)
    steep = op.Greater(ay, ax)
    big, small = op.Where(steep, ay, ax), op.Where(steep, ax, ay)
    ratio = op.Where(op.Equal(ax, ay), one, op.Div(small, big))
    return op.Mul(big, op.Sqrt(op.Add(one, op.Mul(ratio, ratio))))


def _signbit(x: Any) -> Any:
    """Whether a number is negative, minus zero included: the reciprocal of that is negative."""
    if x.dtype == ir.DataType.BOOL:
        return op.And(x, op.Not(x))
    zero = _number(x, 0)
    if not x.dtype.is_floating_point():
        return op.Less(x, zero)
    return op.Or(op.Less(x, zero), op.And(op.Equal(x, zero), op.Less(op.Reciprocal(x), zero)))


def _copysign(x: Any, y: Any) -> Any:
    return op.Mul(op.Abs(x), _unit(y))


def _right_shift(x: Any, places: int) -> Any:
    """The quotient by a power of two, rounded down: torch's exporter takes uint64 for int64, which TFLite lacks."""
    kind = x.dtype if x.dtype.bitwidth >= 32 else ir.DataType.INT32
    wide = x if x.dtype == kind else op.Cast(x, to=kind)
    left = min(places, x.dtype.bitwidth - 1)
    while left > 0:
        step = min(left, kind.bitwidth - 2)  # 2 to the power of 63 is not an int64
        power = op.Constant(value=ir.tensor(np.array(1 << step, kind.numpy())))
        wide = op.Div(op.Sub(wide, op.Mod(wide, power)), power)
        left -= step
    return wide if x.dtype == kind else op.Cast(wide, to=x.dtype)


def _left_shift(x: Any, places: int) -> Any:
    """The product with a power of two, whose upper digits fall off, in two steps where it is beyond the type."""
    kind = x.dtype if x.dtype.bitwidth >= 32 else ir.DataType.INT32
    wide = x if x.dtype == kind else op.Cast(x, to=kind)
    left = min(places, kind.bitwidth)
    while left > 0:
        step = min(left, kind.bitwidth - 2)
        wide = op.Mul(wide, op.Constant(value=ir.tensor(np.array(1 << step, kind.numpy()))))
        left -= step
    return wide if x.dtype == kind else op.Cast(wide, to=x.dtype)


def _unit(x: Any) -> Any:
    """-1 or 1 by the sign bit; a factor, because ONNX Runtime's Where makes 0.0 of -0.0."""
    return op.Where(_signbit(x), _number(x, -1.0), _number(x, 1.0))


def _number(like: Any, value: float) -> Any:
    """A scalar of the type of ``like``."""
    return op.Constant(value=ir.tensor(np.array(value, like.dtype.numpy())))

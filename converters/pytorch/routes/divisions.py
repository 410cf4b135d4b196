"""Quotients that are rounded down, shifts to the right and what is left, for torch's TorchScript-based exporter.

Its own ``aten::floor_divide`` cuts towards zero, as its shifts do, and it rounds the quotient of floats before it
rounds down; the rule is that of ``operators/rounded_down.py``, which serves torch.export.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from convertkit.converters.pytorch.compat import exporters

_OPSET = 13


def define() -> None:
    """Tell the exporter; quotients that are not rounded, and of integers by a mode, are written as before."""
    exporters.register("aten::floor_divide", _floor_divide, _OPSET)
    exporters.register("aten::remainder", _remainder, _OPSET)
    exporters.register("aten::fmod", _rest_of_integers, _OPSET)
    exporters.register("aten::div", _divide, _OPSET)
    for name in ("__rshift_", "bitwise_right_shift"):  # the exporter takes off what it thinks is "in place"
        exporters.register(f"aten::{name}", _shift_right, _OPSET)


def _floor_divide(g: Any, x: Any, y: Any) -> Any:
    if not _is_real(x, y):
        return _whole_quotient(g, x, y)
    if _is_exact(y):
        return g.op("Floor", g.op("Div", x, y))
    rest, away = _rest(g, x, y)
    whole = g.op("Div", g.op("Sub", x, rest), y)
    less = g.op("Sub", whole, g.op("CastLike", g.op("Constant", value_t=torch.tensor(1.0)), whole))
    found = g.op("Round", g.op("Where", away, less, whole))
    return g.op("Where", g.op("Equal", y, _zero(g, y)), g.op("Div", x, y), found)


def _remainder(g: Any, x: Any, y: Any) -> Any:
    if not _is_real(x, y) or _is_exact(y):
        return exporters.remainder(g, x, y)
    rest, away = _rest(g, x, y)
    return g.op("Where", away, g.op("Add", rest, y), rest)


def _whole_quotient(g: Any, x: Any, y: Any) -> Any:
    """Of integers, whose type it keeps; the exporter's is of int64."""
    cut = g.op("Div", x, y)
    away = _points_away(g, g.op("Sub", x, g.op("Mul", cut, y)), y)
    return g.op("Sub", cut, g.op("CastLike", away, cut))


def _divide(g: Any, x: Any, y: Any, *mode: Any) -> Any:
    if mode and exporters.text(mode[0]) == "floor":
        return _floor_divide(g, x, y)
    if mode and exporters.text(mode[0]) == "trunc" and _is_real(x, y):  # the exporter goes by way of int64
        found = g.op("Div", x, y)
        return g.op("Where", g.op("Less", found, _zero(g, found)), g.op("Ceil", found), g.op("Floor", found))
    return exporters.quotient(g, x, y, *mode)


def _rest_of_integers(g: Any, x: Any, y: Any) -> Any:
    """``aten::fmod``: ONNX Runtime takes int64 as doubles, which end at 53 digits."""
    if _is_real(x, y) or exporters.dtype(x) != torch.int64:
        return exporters.rest(g, x, y)
    return g.op("Sub", x, g.op("Mul", g.op("Div", x, y), y))


def _shift_right(g: Any, x: Any, places: Any) -> Any:
    """The quotient by a power of two, which the exporter cuts towards zero."""
    dtype = exporters.dtype(x)
    if dtype not in (torch.int8, torch.int16, torch.int32, torch.int64):
        return exporters.shift_right(g, x, places)
    if not exporters.is_constant(places):
        power = g.op("Pow", g.op("Constant", value_t=torch.tensor(2.0)), exporters.cast(g, places, torch.float32))
        return _whole_quotient(g, x, exporters.cast(g, power, dtype))
    count = int(exporters.constant(places))
    if not 0 <= count < dtype.itemsize * 8 - 1:  # what is left is the sign
        return g.op("Neg", g.op("CastLike", g.op("Less", x, _zero(g, x)), x))
    return _whole_quotient(g, x, g.op("Constant", value_t=torch.tensor(1 << count, dtype=dtype)))


def _rest(g: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """C's remainder, and where its sign is not the divisor's."""
    rest = g.op("Mod", x, y, fmod_i=1)
    return rest, _points_away(g, rest, y)


def _points_away(g: Any, rest: Any, y: Any) -> Any:
    zero = _zero(g, rest)
    opposite = g.op("Xor", g.op("Less", rest, zero), g.op("Less", y, _zero(g, y)))
    return g.op("And", opposite, g.op("Not", g.op("Equal", rest, zero)))


def _zero(g: Any, like: Any) -> Any:
    return g.op("CastLike", g.op("Constant", value_t=torch.tensor(0.0)), like)


def _is_real(x: Any, y: Any) -> bool:
    return exporters.is_real(x) or exporters.is_real(y)


def _is_exact(y: Any) -> bool:
    """Whether the divisor is a power of two, by which a quotient is not rounded."""
    if not exporters.is_constant(y):
        return False
    held = exporters.constant(y)
    return held.numel() == 1 and abs(math.frexp(float(held))[0]) == 0.5

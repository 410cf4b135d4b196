"""TorchScript's operators on numbers, lists and texts, done in Python where no tensor is involved.

A trace holds sizes as tensors of one number, so operators on tensors stand here, too, with their arguments: here those
tensors are numbers, of which some are symbols under torch.export (``SymInt``).  What Python computes for symbols only
by fixing them (``math.exp``) is refused by the check of the exporter's interface.  Signatures: native_functions.yaml
for operators on tensors, torch/csrc/jit/runtime/register_prim_ops.cpp for the others.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from convertkit.errors import Unsupported

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_FRACTIONS = (float, torch.SymFloat)


def _plus(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a + b if isinstance(a, list) else a + b * alpha


def _minus(a: Any, b: Any, alpha: Any = 1) -> Any:
    return a - b * alpha


def _from(a: Any, b: Any, alpha: Any = 1) -> Any:
    return b - a * alpha


def divided(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """``aten::div``: the rounding of its modes, a float without one."""
    if rounding_mode == "floor":
        return a // b
    if rounding_mode == "trunc":
        return _toward_zero(a, b)
    return torch.sym_float(a) / b


def _toward_zero(a: Any, b: Any) -> Any:
    return a // b if (a >= 0) == (b >= 0) else -(-a // b)


def _fmod(a: Any, b: Any) -> Any:
    """The remainder with the sign of ``a``: of integers an integer."""
    if isinstance(a, _FRACTIONS) or isinstance(b, _FRACTIONS):
        return math.fmod(a, b)
    return a - b * _toward_zero(a, b)


def _power(a: Any, b: Any) -> Any:
    power = a**b
    return math.nan if isinstance(power, complex) else power


def _clamped(value: Any, low: Any = None, high: Any = None) -> Any:
    """Where the bounds cross, the upper one counts, as in torch."""
    value = value if low is None else torch.sym_max(value, low)
    return value if high is None else torch.sym_min(value, high)


def least(*values: Any) -> Any:
    """``prim::min``: of several numbers, or of one list."""
    return _chosen(torch.sym_min, values)


def greatest(*values: Any) -> Any:
    """``prim::max``: of several numbers, or of one list."""
    return _chosen(torch.sym_max, values)


def _chosen(choose: Callable[[Any, Any], Any], values: tuple[Any, ...]) -> Any:
    first, *others = _items(values[0]) if len(values) == 1 else values
    for each in others:
        first = choose(first, each)
    return first


def _items(value: Any) -> Any:
    """A list, or the one number that a trace holds as a tensor."""
    return value if isinstance(value, list | tuple) else [value]


def _rounded(value: Any, digits: int | None = None, *, decimals: int | None = None) -> Any:
    return round(value) if digits is None and decimals is None else round(value, digits or decimals)


def _sign(value: Any) -> Any:
    return (value > 0) - (value < 0) if not isinstance(value, _SYMBOLS) else _clamped(value, -1, 1)


def _truncated(value: Any) -> Any:
    return math.trunc(value) if isinstance(value, _FRACTIONS) else value


def cast(value: Any, dtype: torch.dtype) -> Any:
    """A number in another type: what is cut off is cut off here, too."""
    if dtype is torch.bool:
        return value != 0
    if dtype.is_floating_point:
        return torch.sym_float(value)
    return torch.sym_int(value) if isinstance(value, (*_SYMBOLS, float)) else int(value)


def _as_other(value: Any, other: Any) -> Any:
    if isinstance(other, bool):
        return cast(value, torch.bool)
    return cast(value, torch.float32 if isinstance(other, _FRACTIONS) else torch.int64)


def _function(name: str) -> Callable[[Any], Any]:
    """A function of :mod:`math`; torch's own for symbols, where it has one."""
    of_numbers = getattr(math, name)
    of_symbols = getattr(torch, f"_sym_{name}", of_numbers)
    return lambda value: of_symbols(torch.sym_float(value)) if isinstance(value, _SYMBOLS) else of_numbers(value)


def _logarithm(value: Any, base: Any = None) -> Any:
    return math.log(value) if base is None else math.log(value, base)


def _counted(items: Any, value: Any, *within: int) -> int:
    count: int = items.count(value, *within)
    return count


def _index(items: Any, value: Any, *within: int) -> int:
    place: int = items.index(value, *within)
    return place


def _sort(items: list[Any], reverse: bool = False) -> None:
    items.sort(reverse=bool(reverse))


def _sorted(items: list[Any], *_: Any) -> list[Any]:
    return sorted(items)


def _list_slice(items: Any, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return items[start:end:step]


def broadcast(*shapes: Any) -> list[Any]:
    """``aten::broadcast_shapes``; symbols that are not known to be 1 are taken to be equal, as torch does."""
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return [next((size for size in sizes if not _is_one(size)), 1) for sizes in zip(*padded, strict=True)]


def _is_one(size: Any) -> bool:
    return not isinstance(size, torch.SymInt) and size == 1


def range_length(low: Any, high: Any, step: int) -> Any:
    """How many numbers ``range`` gives; ``Unsupported`` for a step of 0."""
    if step == 0:
        raise Unsupported("range() with a step of 0")
    length = (high - low + step - 1) // step if step > 0 else (low - high - step - 1) // -step
    return torch.sym_max(length, 0) if isinstance(length, torch.SymInt) else max(length, 0)


def _same(value: Any, *_: Any) -> Any:
    return value


_ARITHMETIC: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("add", "add_"), _plus),
    **dict.fromkeys(("sub", "sub_", "subtract", "subtract_"), _minus),
    "rsub": _from,
    **dict.fromkeys(("mul", "mul_", "multiply", "multiply_"), operator.mul),
    **dict.fromkeys(("div", "div_", "divide", "divide_", "true_divide", "true_divide_"), divided),
    **dict.fromkeys(("floordiv", "floor_divide", "floor_divide_"), operator.floordiv),
    **dict.fromkeys(("remainder", "remainder_"), operator.mod),
    **dict.fromkeys(("fmod", "fmod_"), _fmod),
    **dict.fromkeys(("pow", "pow_"), _power),
    **dict.fromkeys(("neg", "neg_", "negative"), operator.neg),
    **dict.fromkeys(("abs", "abs_", "absolute"), abs),
    **dict.fromkeys(("floor", "floor_"), math.floor),
    **dict.fromkeys(("ceil", "ceil_"), math.ceil),
    **dict.fromkeys(("trunc", "trunc_", "fix"), _truncated),
    **dict.fromkeys(("round", "round_"), _rounded),
    **dict.fromkeys(("clamp", "clamp_", "clip", "clip_"), _clamped),
    **dict.fromkeys(("clamp_min", "clamp_min_", "maximum", "max"), greatest),
    **dict.fromkeys(("clamp_max", "clamp_max_", "minimum", "min"), least),
    **dict.fromkeys(("sign", "sgn"), _sign),
    "float_power": lambda a, b: _power(torch.sym_float(a), b),
    "square": lambda value: value * value,
    "reciprocal": lambda value: 1 / value,
    "rsqrt": lambda value: 1 / torch.sym_sqrt(value),
    "sqrt": torch.sym_sqrt,
    "log": _logarithm,
    "divmod": divmod,
    "__round_to_zero_floordiv": _toward_zero,
    "mathremainder": math.remainder,
    "gcd": math.gcd,
    "factorial": math.factorial,
    "gamma": math.gamma,
    "atan2": math.atan2,
    "copysign": math.copysign,
    "ldexp": math.ldexp,
    "frexp": math.frexp,
    "modf": math.modf,
    "fabs": lambda value: abs(torch.sym_float(value)),
}
_FUNCTIONS = (
    *("exp", "expm1", "log1p", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "degrees", "radians"),
)
_LOGIC: Mapping[str, Callable[..., Any]] = {
    "eq": operator.eq,
    "equal": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    **dict.fromkeys(("__and__", "bitwise_and", "__iand__"), operator.and_),
    **dict.fromkeys(("__or__", "bitwise_or", "__ior__"), operator.or_),
    **dict.fromkeys(("__xor__", "bitwise_xor", "__ixor__"), operator.xor),
    **dict.fromkeys(("__lshift__", "bitwise_left_shift"), operator.lshift),
    **dict.fromkeys(("__rshift__", "bitwise_right_shift"), operator.rshift),
    "bitwise_not": lambda value: not value if isinstance(value, bool) else ~value,
    "logical_and": lambda a, b: (a != 0) & (b != 0),
    "logical_or": lambda a, b: (a != 0) | (b != 0),
    "logical_xor": lambda a, b: (a != 0) ^ (b != 0),
    "logical_not": lambda value: value == 0,
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
    "sum": lambda value: sum(_items(value)),
    "any": lambda value: any(_items(value)),
    "all": lambda value: all(_items(value)),
}
_OF_LISTS: Mapping[str, Callable[..., Any]] = {
    "slice": _list_slice,
    "copy": list,
    "sort": _sort,
    "sorted": _sorted,
    "index": _index,
    "count": _counted,
    "remove": lambda items, value: items.remove(value),
    "select": operator.getitem,
    "str": str,
}
_UNCHANGED = (
    *("contiguous", "clone", "alias", "cpu", "lift_fresh", "lift_fresh_copy", "lift", "squeeze", "resolve_conj"),
    *("resolve_neg", "_unwrap_optional", "requires_grad_", "view_as", "expand_as"),
)

_TABLE: dict[str, Callable[..., Any]] = {
    **_ARITHMETIC,
    **{name: _function(name) for name in _FUNCTIONS},
    **_LOGIC,
    **_OF_LISTS,
    **dict.fromkeys(_UNCHANGED, _same),
    "type_as": _as_other,
}
NUMERIC: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {**{f"aten::{name}": compute for name, compute in _TABLE.items()}, "prim::abs": abs}
)
"""Operators that are done here where no tensor is involved: on sizes, lists and texts."""
ON_LISTS = frozenset(f"aten::{name}" for name in (*_OF_LISTS, "add", "add_", "mul", "mul_")) - {"aten::str"}
"""Those that are done here for lists of tensors, too."""

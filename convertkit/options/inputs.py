"""The words of --input and --normalization."""

from __future__ import annotations

import math
import re

from convertkit.errors import UsageError
from convertkit.recipe import InputSpec, Normalization
from convertkit.references import closest

_INPUT = re.compile(
    r"(?P<name>.+?):(?P<shape>[\w,\s]*)"
    r"(?::(?P<dtype>[a-z]\w*)?(?:\[(?P<low>[^,\]]+),(?P<high>[^)\]]+)\))?)?$"
)


_DTYPES = (
    *("float32", "float16", "bfloat16", "float64", "bool", "string"),
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (64, 32, 16, 8, 4)),
    *("complex64", "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
)
"""Of inputs, as NumPy and ml_dtypes call them."""


def parse_input(text: str | InputSpec) -> InputSpec:
    """``name:1,3,224,224[:float32]``; names stand for dynamic dimensions, ``ids:1,64:int64[0,1000)`` bounds values."""
    if isinstance(text, InputSpec):
        return text
    match = _INPUT.match(text)
    if match is None:
        raise UsageError(f"--input {text}: expected NAME:SHAPE[:DTYPE], for example image:N,3,224,224:float32")
    dims = [part.strip() for part in match["shape"].split(",") if part.strip()]
    shape = tuple(int(dim) if dim.isdecimal() else dim for dim in dims)
    value_range = None
    if match["low"] is not None:
        try:
            value_range = (float(match["low"]), float(match["high"]))
        except ValueError as error:
            raise UsageError(f"--input {text}: the value range is not [LOW,HIGH)") from error
    if match["dtype"] not in (None, *_DTYPES):
        known = ", ".join(_DTYPES[:5])
        raise UsageError(
            f"--input {text}: no dtype is called {match['dtype']}{closest(match['dtype'], _DTYPES)}; usual are {known}"
        )
    return InputSpec(match["name"], shape, match["dtype"], value_range)


def parse_normalization(text: str | Normalization) -> Normalization:
    """``image:127.5/127.5``, or with a number for each channel ``image:123.7,116.3,103.5/58.4,57.1,57.4``."""
    if isinstance(text, Normalization):
        return text
    name, _, numbers = text.rpartition(":")
    try:
        mean, std = (tuple(float(part) for part in half.split(",")) for half in numbers.split("/"))
    except ValueError as error:
        raise UsageError(f"--normalization {text}: expected INPUT:MEAN/STD, for example image:127.5/127.5") from error
    if not name:
        raise UsageError(
            f"--normalization {text} names no input: write INPUT:{numbers} with the model's name for it, "
            f"for example image:{numbers}"
        )
    if len(mean) != len(std) or not all(map(math.isfinite, (*mean, *std))) or min(std) <= 0:
        raise UsageError(f"--normalization {text}: as many means as deviations, all finite, deviations positive")
    return Normalization(name, mean, std)

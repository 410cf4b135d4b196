"""Names of inputs and outputs, from what the producer left in the module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.module import functions

_LOCATION = re.compile(r'^loc\("([^"]+)"\)$')
_RESULT = re.compile(r"^result(?=\W|$)")


def argument_names(module: Any, function: Any) -> list[str]:
    """JAX keeps the parameters' names as locations of the arguments, perhaps of an inner function."""
    count = len(function.regions[0].blocks[0].arguments)
    candidates = [function, *(op for op in functions(module).values() if op != function)]
    for each in candidates:
        arguments = list(each.regions[0].blocks[0].arguments)[-count:] if count else []
        found = [_LOCATION.match(str(argument.location)) for argument in arguments]
        names = [_clean(match.group(1)) for match in found if match]
        if len(names) == count and len(set(names)) == count:
            return names
    return [f"x{index}" for index in range(count)]


def result_names(function: Any, count: int) -> list[str]:
    """``jax.result_info`` says where in the returned structure a result stands."""
    names = [f"y{index}" for index in range(count)]
    if "res_attrs" not in function.attributes:
        return names
    for index, attributes in enumerate(function.attributes["res_attrs"]):
        if "jax.result_info" in attributes:
            info = mlir.StringAttr(attributes["jax.result_info"]).value
            found = _clean(_RESULT.sub("", info))
            # A bare position says less than our own numbering.
            names[index] = found if found and not found.isdigit() else names[index]
    return names if len(set(names)) == count else [f"y{index}" for index in range(count)]


def apart_from(taken: Sequence[str], names: Sequence[str]) -> list[str]:
    """The results' names, one that an argument has too with ``_out`` behind it: a cache goes in and comes out."""
    used = {*taken, *names}
    found = []
    for name in names:
        fresh = name
        while name in taken and fresh in used:
            fresh += "_out"
        used.add(fresh)
        found.append(fresh)
    return found


def _clean(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")

"""Names of inputs and outputs, from what the producer left in the module."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.module import functions

_LOCATION = re.compile(r'^loc\("([^"]+)"\)$')
_KEY = "tf_saved_model.index_path"
_RESULT = re.compile(r"^result(?=\W|$)")


def argument_names(module: Any, function: Any) -> list[str]:
    """The keys of a SavedModel's signature; JAX keeps the parameters' names as locations of the arguments,
    perhaps of an inner function.
    """
    count = len(function.regions[0].blocks[0].arguments)
    keys = _signature_keys(function, "arg_attrs")
    if keys and len(set(keys)) == count:
        return keys
    candidates = [function, *(op for op in functions(module).values() if op != function)]
    for each in candidates:
        arguments = list(each.regions[0].blocks[0].arguments)[-count:] if count else []
        found = [_LOCATION.match(str(argument.location)) for argument in arguments]
        names = [_clean(match.group(1)) for match in found if match]
        if len(names) == count and len(set(names)) == count:
            return names
    return [f"x{index}" for index in range(count)]


def result_names(function: Any, count: int) -> list[str]:
    """The keys of a SavedModel's signature; ``jax.result_info`` says where in the structure a result stands."""
    keys = _signature_keys(function, "res_attrs")
    if keys and len(set(keys)) == count:
        return keys
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


def _signature_keys(function: Any, attributes: str) -> list[str]:
    """What TensorFlow writes beside each argument or result; empty where one has none."""
    if attributes not in function.attributes:
        return []
    keys = []
    for each in function.attributes[attributes]:
        path = list(mlir.ArrayAttr(each[_KEY])) if _KEY in each else []
        if len(path) != 1 or not isinstance(path[0], mlir.StringAttr):
            return []
        keys.append(path[0].value)
    return keys


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

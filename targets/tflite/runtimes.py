"""The oldest TensorFlow Lite release that runs a program.

``runtime_versions.json`` says which release introduced which operator version (TensorFlow's
``tools/versioning/runtime_version.cc``).  Kernels have also learnt things without a new version; those were found by
running operators in old wheels.  ``tests/targets/tflite/test_old_runtimes.py`` holds all of this against such wheels.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

import numpy as np

from convertkit.targets.tflite.graph import Operation
from convertkit.targets.tflite.tensor import Tensor
from convertkit.targets.tflite.versions import lowest_version

_OLDEST = "1.15.0"
"""What runs here at the earliest."""

_2_14, _2_20, _LATEST = "2.14.0", "2.20.0", "2.23.0"
_BROADCASTS: dict[tuple[str, bool], tuple[str, str]] = {
    ("ADD", True): (_2_14, _2_14),
    ("ADD", False): (_2_14, _2_14),
    ("SUB", True): (_OLDEST, _2_14),
    ("SUB", False): (_OLDEST, _2_20),
    ("MUL", True): (_2_14, _2_14),
    ("MUL", False): (_2_20, _2_20),
    ("DIV", True): (_OLDEST, _2_14),
    ("DIV", False): (_OLDEST, _LATEST),
    ("MAXIMUM", True): (_OLDEST, _2_14),
    ("MAXIMUM", False): (_OLDEST, _LATEST),
    ("MINIMUM", True): (_OLDEST, _2_14),
    ("MINIMUM", False): (_OLDEST, _LATEST),
    ("SELECT_V2", True): (_2_14, _LATEST),
    ("SELECT_V2", False): (_2_14, _LATEST),
}
"""By operator and whether its result is float: the releases that broadcast five dimensions, and six."""

_OTHERS = frozenset({"ATAN2", "BITWISE_XOR", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS",
    "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR", "NOT_EQUAL", "POW", "PRELU", "SQUARED_DIFFERENCE"})  # fmt: skip
"""Operators that broadcast more than four dimensions in ``_LATEST`` only."""

_LATE_TYPES = {("GREATER", "int16"): _LATEST, ("LESS_EQUAL", "int16"): _LATEST}


def min_runtime_version(operations: Sequence[Operation]) -> str:
    """The oldest release that runs all of ``operations``."""
    table = _introduced()
    needed = [table.get(f"{op.code}:{lowest_version(op)}", _OLDEST) for op in operations]
    needed += [_LATE_TYPES.get((op.code, _kind(op)), _OLDEST) for op in operations]
    needed += [_broadcast(op) for op in operations if _is_broadcast(op)]
    needed += [_2_20 for op in operations if _is_mixed_transposed(op)]
    needed += _comparisons_with_infinity(operations)
    return max(needed, key=_numbers, default=_OLDEST)


def _broadcast(operation: Operation) -> str:
    rank = max(tensor.rank for tensor in operation.inputs if tensor is not None)
    is_float = operation.outputs[0].dtype == "float32"
    five, six = _BROADCASTS.get((operation.code, is_float), (_LATEST, _LATEST))
    return five if rank == 5 else six


def _is_broadcast(operation: Operation) -> bool:
    """Whether inputs of different shapes meet in more than the four dimensions that every release knows."""
    shapes = {tensor.shape for tensor in operation.inputs if tensor is not None}
    known = operation.code in _OTHERS or any(code == operation.code for code, _ in _BROADCASTS)
    return known and len(shapes) > 1 and max(map(len, shapes)) > 4


def _is_mixed_transposed(operation: Operation) -> bool:
    """TRANSPOSE_CONV of float images with integer weights, which 2.14 refuses and LiteRT 1.2 runs."""
    kinds = {tensor.dtype for tensor in operation.inputs[1:3] if tensor is not None}
    return operation.code == "TRANSPOSE_CONV" and kinds == {"int8", "float32"}


def _comparisons_with_infinity(operations: Sequence[Operation]) -> Iterator[str]:
    """REDUCE_MAX of nothing but -inf was the lowest finite number in releases before 2.14."""
    extremes = {op.outputs[0] for op in operations if op.code in ("REDUCE_MAX", "REDUCE_MIN")}
    for op in operations:
        if op.code == "EQUAL" and extremes.intersection(filter(None, op.inputs)) and any(map(_is_infinite, op.inputs)):
            yield _2_14


def _is_infinite(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.constant is not None and bool(np.isinf(tensor.constant).any())


def _kind(operation: Operation) -> str:
    return operation.inputs[0].dtype if operation.inputs and operation.inputs[0] is not None else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@cache
def _introduced() -> dict[str, str]:
    text = resources.files("convertkit.targets.tflite").joinpath("runtime_versions.json").read_text()
    table: dict[str, str] = json.loads(text)
    return table

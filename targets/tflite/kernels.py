"""Which element types the runtime's kernels take, as measured by running one-operator models."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from convertkit.targets.tflite.tensor import DType

_ANY: tuple[DType, ...] = ("float32", "int32", "int64", "int8", "uint8", "int16", "bool")

MEASURED: tuple[DType, ...] = (*_ANY, "float16", "float64", "uint16", "uint32", "uint64")
"""The types that kernels were tried with."""


def accepted_dtypes(code: str, otherwise: tuple[DType, ...] = _ANY) -> tuple[DType, ...]:
    """Types of the deciding input that the kernel of ``code`` accepts; ``otherwise`` where it was not measured."""
    return _measured().get(code, otherwise)


@cache
def _measured() -> dict[str, tuple[DType, ...]]:
    text = resources.files("convertkit.targets.tflite").joinpath("kernels.json").read_text()
    return {code: tuple(kinds) for code, kinds in json.loads(text).items()}

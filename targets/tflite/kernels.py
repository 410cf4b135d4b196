"""Which element types the runtime's kernels take, as measured by running one-operator models."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from convertkit.targets.tflite.tensor import DType

_ANY: tuple[DType, ...] = ("float32", "int32", "int64", "int8", "uint8", "int16", "bool")


def accepted_dtypes(code: str) -> tuple[DType, ...]:
    """Types of the deciding input that the kernel of ``code`` accepts; all usual ones where not measured."""
    return _measured().get(code, _ANY)


@cache
def _measured() -> dict[str, tuple[DType, ...]]:
    text = resources.files("convertkit.targets.tflite").joinpath("kernels.json").read_text()
    return {code: tuple(kinds) for code, kinds in json.loads(text).items()}

"""A value while a model is lowered: a MIL variable, or numbers that are known already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported

HELD: Mapping[str, str] = {
    "float32": "float32",
    "float16": "float16",
    "bool": "bool",
    **dict.fromkeys(("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"), "int32"),
}
"""The element type in which Core ML computes what ONNX computes in another one."""

_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """``dtype`` is MIL's; a size is None where it is only known when the model runs.

    ``array`` holds constants as ONNX has them, ``var`` what MIL computes; one of the two is there.
    """

    dtype: str
    shape: tuple[int | None, ...]
    array: Array | None = None
    var: Any = None

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether its numbers are float32 or float16."""
        return self.dtype.startswith("float")

    @property
    def sizes(self) -> tuple[int, ...]:
        """All sizes; ``Unsupported`` where one is dynamic."""
        if None in self.shape:
            raise UnknownSize("a dynamic dimension, of which this needs the size")
        return tuple(size for size in self.shape if size is not None)

    def size(self, axis: int) -> int:
        """One size; ``Unsupported`` where it is dynamic."""
        size = self.shape[axis]
        if size is None:
            raise UnknownSize(f"the size of axis {axis % self.rank} is dynamic, and this needs it")
        return size


def held(dtype: str) -> str:
    """MIL's type for one of ONNX; ``Unsupported`` where there is none."""
    if dtype not in HELD:
        raise Unsupported(f"{dtype} numbers: Core ML computes in float32, float16, int32 and bool")
    return HELD[dtype]


def constant(array: Array) -> Tensor:
    """A tensor of known numbers."""
    name = array.dtype.name
    dtype = name if name not in HELD and array.dtype.kind not in "fc" else held(name)
    return Tensor(dtype, tuple(array.shape), array)


def as_mil(array: Array) -> Array:
    """Known numbers in the type that MIL has for them; ``Unsupported`` where one does not fit."""
    kind = held(array.dtype.name)
    if array.dtype.kind in "iu" and array.size:
        least, most = int(array.min()), int(array.max())
        if least < _INT32.min or most > _INT32.max:
            raise Unsupported(f"the integer {least if least < _INT32.min else most}: Core ML's have 32 bits")
    return np.asarray(array.astype(kind), order="C")

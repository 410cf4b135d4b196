"""Values of a TFLite graph: typed, shaped, perhaps constant, perhaps quantized."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from convertkit.artifact import Array

DType = Literal[
    "float32", "float16", "float64", "bfloat16", "bool", "string", "complex64",
    "int4", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
"""NumPy's name of an element type, ``bfloat16``, ``int4`` or ``string``."""

DYNAMIC = -1
"""A size that is known only at run time."""


@dataclass(frozen=True, slots=True)
class QuantParams:
    """``real = (integer - zero_point) * scale``, per tensor (``axis`` None) or along one axis.

    ``scale`` and ``zero_point`` are as long as that axis, or have one element.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    @staticmethod
    def per_tensor(scale: float, zero_point: int) -> QuantParams:
        """One scale for the whole tensor; ``scale`` is rounded to float32, as the file stores it."""
        return QuantParams((float(np.float32(scale)),), (int(zero_point),))

    def moved(self, axis: int | None) -> QuantParams:
        """The same parameters along another axis."""
        return QuantParams(self.scale, self.zero_point, axis)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One value; two tensors are the same only if they are the same object.

    ``shape`` holds ``DYNAMIC`` where a size is known at run time only.  ``constant`` may be a
    view of a memory-mapped file: transpose it, never copy it without need.  A ``variable`` is state
    of a fused kernel that the runtime keeps from call to call.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    constant: Array | None = None
    quantization: QuantParams | None = None
    variable: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every size is known."""
        return DYNAMIC not in self.shape

    @property
    def size(self) -> int:
        """Number of elements; needs a static shape."""
        assert self.is_static, "size of a dynamic shape"
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether this is float32, float16, bfloat16 or float64."""
        return self.dtype in ("float32", "float16", "bfloat16", "float64")

    @property
    def is_quantized(self) -> bool:
        """Whether the integers stand for reals."""
        return self.quantization is not None


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape under NumPy's rules; a dynamic size meets 1 as itself and wins over 1 only."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        known = [size for size in sizes if size not in (1, DYNAMIC)]
        result.append(known[0] if known else DYNAMIC if DYNAMIC in sizes else 1)
    return tuple(result)

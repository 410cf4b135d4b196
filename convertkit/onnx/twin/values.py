"""What flows through the twin: arrays whose floats are float64, each with the element type that the model gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array

UNIT: Mapping[ir.DataType, float] = {
    ir.DataType.FLOAT16: 2.0**-11,
    ir.DataType.BFLOAT16: 2.0**-8,
    ir.DataType.FLOAT: 2.0**-24,
    ir.DataType.DOUBLE: 2.0**-53,
}
"""Unit roundoff of each element type that the twin widens: the largest relative error of one rounding to nearest."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array and the element type that it has in the model; ``array`` is float64 where that is in ``UNIT``."""

    array: Array
    dtype: ir.DataType

    @property
    def is_real(self) -> bool:
        """Whether the model holds it in a float type that the twin widens."""
        return self.dtype in UNIT


Value = Tensor | tuple[Tensor, ...] | None
"""A tensor, a sequence of them, or an optional that holds nothing."""


def widened(array: Array) -> Tensor:
    """``array`` as the twin holds it: floats keep exactly their value."""
    dtype = ir.DataType.STRING if array.dtype.kind in "OUS" else ir.DataType.from_numpy(array.dtype)
    return Tensor(array.astype(np.float64) if dtype in UNIT else array, dtype)


def real(array: Array, dtype: ir.DataType) -> Tensor:
    """A float64 result that the model holds as ``dtype``."""
    return Tensor(np.asarray(array, np.float64), dtype)

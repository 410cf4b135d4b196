"""Quantized element types, ``!quant.uniform<storage:expressed[:axis], scale:zero point>``, as plain values.

Source: MLIR's quant dialect (how the types are written) and the StableHLO specification, "Types" (what they mean).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import onnx_ir as ir
from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.tensor import I8, I16, I32, Tensor, constant
from convertkit.errors import Unsupported

QUANTIZED_WAY_OUT = "export the float model and quantize it with --int8"
_PREFIX = "!quant."
_STORAGE = {"i8": I8, "i16": I16, "i32": I32}
_TYPE = re.compile(
    r"!quant\.uniform<(?P<storage>\w+)(?:<(?P<low>-?\d+):(?P<high>-?\d+)>)?:(?P<expressed>\w+)(?::(?P<axis>\d+))?, "
    r"\{?(?P<pairs>[^{}<>]+)\}?>"
)


@dataclass(frozen=True, slots=True)
class Quantization:
    """Integers ``q`` from ``low`` to ``high`` that stand for ``(q - zero_point) * scale``.

    One scale and zero point for all elements, or one for each index along ``axis``.
    """

    storage: ir.DataType
    low: int
    high: int
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None

    @property
    def is_narrow(self) -> bool:
        """Whether the storage type holds integers that the quantized type does not."""
        limits = np.iinfo(self.storage.numpy())
        return self.low > limits.min or self.high < limits.max

    def along(self, values: Sequence[float], rank: int, dtype: ir.DataType) -> Tensor:
        """One number for each scale, so that it broadcasts against a tensor of ``rank``."""
        array = np.array(values, dtype.numpy())
        if self.axis is None:
            return constant(array.reshape(()))
        return constant(array.reshape([-1 if axis == self.axis else 1 for axis in range(rank)]))

    def agrees(self, other: Quantization) -> bool:
        """Whether equal integers stand for equal numbers; the axis may be another, as after a transpose."""
        mine, theirs = ((each.storage, each.scales, each.zero_points) for each in (self, other))
        return mine == theirs


def is_quantized(name: str) -> bool:
    """Whether an element type, as MLIR writes it, is a quantized one."""
    return name.startswith(_PREFIX)


def quantization_of(kind: mlir.Type) -> Quantization | None:
    """How the elements of a tensor type are quantized; None where they are not.  Raises ``Unsupported``."""
    if not isinstance(kind, mlir.RankedTensorType):
        return None
    name = str(mlir.RankedTensorType(kind).element_type)
    return parsed(name) if is_quantized(name) else None


@cache
def parsed(name: str) -> Quantization:
    """A quantized element type from what MLIR prints; raises ``Unsupported`` for one without an exact ONNX form."""
    found = _TYPE.fullmatch(name)
    storage = _STORAGE.get(found["storage"]) if found else None
    if found is None or storage is None or found["expressed"] != "f32":
        raise Unsupported(
            f"the quantized element type {name}: only i8, i16 and i32 that stand for f32, "
            f"with one scale or one for each index of an axis, have an ONNX form here; {QUANTIZED_WAY_OUT}"
        )
    limits = np.iinfo(storage.numpy())
    pairs = [pair.partition(":") for pair in found["pairs"].split(",")]
    return Quantization(
        storage,
        int(found["low"]) if found["low"] else int(limits.min),
        int(found["high"]) if found["high"] else int(limits.max),
        tuple(float(scale) for scale, _, _ in pairs),
        tuple(int(zero or 0) for _, _, zero in pairs),
        int(found["axis"]) if found["axis"] else None,
    )

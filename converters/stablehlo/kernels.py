"""Which element types ONNX Runtime's CPU kernels take, and an exact detour for the others.

``kernels.json`` is the table; ``make_kernels`` writes it.  An operator that has no kernel for a
dtype runs in another one that holds every value, with a cast before and after.  What "holds every
value" means depends on the operator: moving data needs a bijection, arithmetic modulo 2^n survives
any wider or equally wide integer, comparisons need order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import onnx_ir as ir

from convertkit.converters.stablehlo.tensor import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
)
from convertkit.errors import Unsupported

_NAMES: Mapping[ir.DataType, str] = {
    BOOL: "bool",
    I8: "int8",
    I16: "int16",
    I32: "int32",
    I64: "int64",
    U8: "uint8",
    U16: "uint16",
    U32: "uint32",
    U64: "uint64",
    BF16: "bfloat16",
    F16: "float16",
    F32: "float",
    F64: "double",
}
_WIDER: Mapping[ir.DataType, tuple[ir.DataType, ...]] = {
    BOOL: (U8, I8, I32, I64, F32),
    I8: (I16, I32, I64, F32),
    U8: (I16, U16, I32, U32, I64, F32),
    I16: (I32, I64, F32),
    U16: (I32, U32, I64, F32),
    I32: (I64, F64),
    U32: (I64, F64),
    BF16: (F32,),
    F16: (F32,),
}
"""Types that hold every value of a type, in order of preference; order and value survive."""

MODULAR = frozenset({"Add", "Sub", "Mul", "Neg", "MatMul", "Einsum", "ReduceSum", "ReduceProd", "CumSum", "CumProd"})
"""Integer arithmetic modulo 2^n: a uint64 may run as the int64 with the same bits."""

MOVES = frozenset(
    {"Where", "Pad", "Expand", "Tile", "Concat", "Gather", "GatherElements", "GatherND", "Slice", "Transpose"}
    | {"Reshape", "ScatterElements", "ScatterND", "ReverseSequence", "Compress", "Trilu"}
)
"""Operators that only move data: any type with the same number of values will do."""

ORDERED = frozenset({"TopK", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "Max", "Min", "MaxPool"})
"""Operators that only compare: a uint64 may run as the int64 with the top bit flipped."""

REDUCING_SCATTER = "ScatterElements with a reduction"


@dataclass(frozen=True, slots=True)
class Detour:
    """The dtype to compute in; ``flipped`` where the top bit of a uint64 is inverted on the way."""

    dtype: ir.DataType
    flipped: bool = False


@cache
def table() -> Mapping[str, frozenset[str]]:
    """Dtype names by ONNX operator."""
    text = files(__package__).joinpath("kernels.json").read_text()
    kernels = {op: frozenset(types) for op, types in json.loads(text).items()}
    # Vectorised int64 maximum compares wrongly where the upper halves are equal and bit 31 differs.
    for op in ("Max", "Min", "ReduceMax", "ReduceMin"):
        kernels[op] -= {"int64"}
    # Integer sums and products go through double: only what stays below 2^53 is right.
    kernels["ReduceProd"] -= {"int32", "int64"}
    # The kernel exists for these types and refuses reductions when it runs.
    kernels[REDUCING_SCATTER] = kernels["ScatterElements"] - {"bool", "float16", "bfloat16", "string"}
    return kernels


def has_kernel(op: str, dtype: ir.DataType) -> bool:
    """Whether ONNX Runtime's CPU provider runs ``op`` on ``dtype``; unlisted operators take any."""
    types = table().get(op)
    return types is None or _NAMES.get(dtype, "") in types


@cache
def detour(op: str, dtype: ir.DataType) -> Detour:
    """How ``op`` computes exactly on ``dtype``; ``Unsupported`` where no dtype with a kernel would."""
    if has_kernel(op, dtype):
        return Detour(dtype)
    for wider in _WIDER.get(dtype, ()):
        if has_kernel(op, wider) and not (op in MODULAR and wider in (F32, F64) and dtype not in (BF16, F16)):
            return Detour(wider)
    if dtype in (U64, I64) and op in MODULAR | MOVES | {REDUCING_SCATTER}:
        other = I64 if dtype == U64 else U64
        if has_kernel(op, other):
            return Detour(other)
    if dtype == U64 and op in ORDERED and has_kernel(op, I64):
        return Detour(I64, flipped=True)
    if dtype == I64 and op in ("Max", "Min", "ReduceMax", "ReduceMin"):
        return Detour(I64)  # values that fit 32 bits; ``Arithmetic`` and ``Reductions`` see to the others
    raise Unsupported(
        f"ONNX Runtime has no kernel of {op} for {_NAMES.get(dtype, dtype.name)} and no wider type holds it"
    )

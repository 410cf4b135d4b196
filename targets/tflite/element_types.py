"""Element types of a node's operands: what ONNX allows, and what kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import onnx_ir as ir
from onnx import defs

from convertkit.errors import Unsupported
from convertkit.targets.tflite.annotations import NHWC, quantization_of
from convertkit.targets.tflite.graph import Operation
from convertkit.targets.tflite.kernels import MEASURED, accepted_dtypes


def check_types(node: ir.Node, opset: int) -> None:
    """Refuse a node whose operands have types that its ONNX schema does not allow: kernels would not notice."""
    if node.domain not in ("", NHWC):
        return
    for place, value in enumerate(node.inputs):
        if value is None or value.dtype is None or quantization_of(value) is not None:
            continue
        allowed = _allowed(node.op_type, opset, place)
        if allowed is not None and value.dtype not in allowed:
            raise Unsupported(f"{value.dtype} as input {place}, which ONNX does not allow for this operator")


@cache
def _allowed(op: str, opset: int, place: int) -> frozenset[ir.DataType] | None:
    try:
        schema = defs.get_schema(op, opset)
    except defs.SchemaError:
        return None
    if not schema.inputs:
        return None
    formal = schema.inputs[min(place, len(schema.inputs) - 1)]
    names = {name[len("tensor(") : -1] for name in formal.types if name.startswith("tensor(")}
    kinds = {kind for kind in ir.DataType if kind != ir.DataType.UNDEFINED and _schema_name(kind) in names}
    return frozenset(kinds) or None


def _schema_name(kind: ir.DataType) -> str:
    return {ir.DataType.FLOAT: "float", ir.DataType.DOUBLE: "double"}.get(kind, kind.name.lower())


_DECIDING = {"DYNAMIC_UPDATE_SLICE": 0, "ONE_HOT": 2, "SCATTER_ND": 1, "SELECT_V2": 1, "SPLIT": 1}
"""Which operand's type kernels look at, where it is not the first."""


_NOT_EMPTY = frozenset({"AVERAGE_POOL_2D", "BATCH_MATMUL", "DEPTH_TO_SPACE", "MAX_POOL_2D", "SPACE_TO_DEPTH"})
"""Kernels that fail at run time where an operand has no elements."""


def check_kernels(operations: Sequence[Operation]) -> None:
    """Refuse an operation whose kernel, as measured, does not compute what it should for the type it is given."""
    for operation in operations:
        if operation.code in _NOT_EMPTY and any(
            tensor is not None and 0 in tensor.shape for tensor in operation.inputs
        ):
            raise Unsupported(f"an operand without elements, which TFLite {operation.code} cannot take")
        operand = operation.inputs[_DECIDING.get(operation.code, 0)] if operation.inputs else None
        if operand is None or operand.is_quantized:
            continue
        code = f"CAST from {operand.dtype}" if operation.code == "CAST" else operation.code
        if operand.dtype in MEASURED and operand.dtype not in accepted_dtypes(code, MEASURED):
            taken = ", ".join(accepted_dtypes(code, MEASURED))
            raise Unsupported(f"{operand.dtype} operands: TFLite {operation.code} takes {taken}")

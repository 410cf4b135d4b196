"""Our operations and tensors as objects of TFLite's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.targets.tflite.graph import Operation, Option
from convertkit.targets.tflite.tensor import QuantParams

if TYPE_CHECKING:
    from convertkit.artifact import Array

# Where the options table is not named after the operator.
_OPTIONS = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "GELU": "GeluOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "PADV2": "PadV2Options",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "REVERSE_V2": "ReverseV2Options",
    "SELECT_V2": "SelectV2Options",
    "SPLIT_V": "SplitVOptions",
    "SUM": "ReducerOptions",
    "TOPK_V2": "TopKV2Options",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
}
_LARGEST_OLD_CODE = 127
"""Codes above it do not fit the field that old runtimes read."""

TYPES: Mapping[str, int] = {
    name.lower(): code for name, code in vars(schema.TensorType).items() if not name.startswith("_")
}


def operator_code(code: str, version: int) -> object:
    """The entry of the model's operator table."""
    number = getattr(schema.BuiltinOperator, code)
    entry = schema.OperatorCodeT()
    entry.builtinCode = number
    entry.deprecatedBuiltinCode = min(number, _LARGEST_OLD_CODE)
    entry.version = version
    return entry


def operator(
    operation: Operation, opcode: int, inputs: list[int], outputs: list[int], intermediates: list[int]
) -> object:
    """One operator with its options."""
    result = schema.OperatorT()
    result.opcodeIndex = opcode
    result.inputs = inputs
    result.outputs = outputs
    if intermediates:
        result.intermediates = intermediates
    name = _OPTIONS.get(operation.code) or _camel(operation.code) + "Options"
    in_first_union = getattr(schema.BuiltinOptions, name, 0)
    in_second_union = getattr(schema.BuiltinOptions2, name, 0)
    if in_first_union:
        result.builtinOptionsType = in_first_union
        result.builtinOptions = _options(name, operation.options)
    elif in_second_union:
        result.builtinOptions2Type = in_second_union
        result.builtinOptions2 = _options(name, operation.options)
    else:
        assert not operation.options, f"{operation.code} has no options table"
    return result


@dataclass(slots=True)
class Stored:
    """Where a file being built holds numbers and parameters, so that equal ones are stored once.

    Old runtimes demand a zero point of eight bytes for each scale: shared, all layers of a width have one such vector.
    """

    vectors: dict[bytes, int] = field(default_factory=dict)
    parameters: dict[tuple[int, int, int], int] = field(default_factory=dict)


class _Parameters(schema.QuantizationParametersT):  # type: ignore[misc]
    """QuantizationParameters that may lie in the file already."""

    def __init__(self, stored: Stored) -> None:
        super().__init__()
        self._stored = stored

    def Pack(self, builder: flatbuffers.Builder) -> int:  # noqa: N802 - the schema's own name
        scale = self._vector(builder, np.array(self.scale, "<f4"))
        zero_point = self._vector(builder, np.array(self.zeroPoint, "<i8"))
        key = (scale, zero_point, self.quantizedDimension)
        if key not in self._stored.parameters:
            schema.QuantizationParametersStart(builder)
            schema.QuantizationParametersAddScale(builder, scale)
            schema.QuantizationParametersAddZeroPoint(builder, zero_point)
            schema.QuantizationParametersAddQuantizedDimension(builder, self.quantizedDimension)
            self._stored.parameters[key] = schema.QuantizationParametersEnd(builder)
        return self._stored.parameters[key]

    def _vector(self, builder: flatbuffers.Builder, numbers: Array) -> int:
        key = numbers.dtype.str.encode() + numbers.tobytes()
        if key not in self._stored.vectors:
            self._stored.vectors[key] = builder.CreateNumpyVector(numbers)
        return self._stored.vectors[key]


def quantization(params: QuantParams, size: int, stored: Stored) -> object:
    """Scales and zero points, one for each scale; ``stored`` is shared by all of a file."""
    result = _Parameters(stored)
    result.scale = list(params.scale)
    result.zeroPoint = list(params.zero_point)
    if params.axis is not None:
        result.quantizedDimension = params.axis
        if len(params.scale) == 1 and size > 1:
            result.scale = list(params.scale) * size
        if len(params.zero_point) != len(result.scale):
            result.zeroPoint = [params.zero_point[0]] * len(result.scale)
    return result


def _options(name: str, values: Mapping[str, Option]) -> object:
    table = getattr(schema, name + "T")()
    for option, value in values.items():
        attribute = _camel(option, first_lower=True)
        assert hasattr(table, attribute), f"{name} has no field {attribute}"
        setattr(table, attribute, list(value) if isinstance(value, tuple) else value)
    return table


def _camel(snake: str, *, first_lower: bool = False) -> str:
    words = snake.lower().split("_")
    head = words[0] if first_lower else words[0].capitalize()
    return head + "".join(word.upper() if word in ("2d", "3d") else word.capitalize() for word in words[1:])

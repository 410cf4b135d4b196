"""A ``.tflite`` file as objects of its schema, and operators put into it."""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

BUILTIN = schema.BuiltinOperator


def unpacked(content: bytes) -> Any:
    """The file's ``ModelT``."""
    return schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))


def packed(root: Any) -> bytes:
    """The file of a ``ModelT``."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(root.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def is_kind(root: Any, operator: Any, *kinds: int) -> bool:
    """Whether an operator is one of these."""
    entry = root.operatorCodes[operator.opcodeIndex]
    return max(entry.builtinCode, entry.deprecatedBuiltinCode) in kinds


class File:
    """A file that operators and tensors are added to."""

    def __init__(self, root: Any, graph: Any) -> None:
        self.root, self.graph = root, graph

    def buffer(self, array: np.ndarray) -> int:
        """The place of new stored data."""
        data = schema.BufferT()
        data.data = np.frombuffer(array.tobytes(), np.uint8)
        self.root.buffers.append(data)
        return len(self.root.buffers) - 1

    def tensor(self, like: Any, shape: Any, kind: int, buffer: int = 0, scale: tuple[float, int] | None = None) -> int:
        """The place of a new tensor, named after ``like``, with its scale and zero point."""
        made = schema.TensorT()
        made.name = bytes(like.name) + b"/npu_%d" % len(self.graph.tensors)
        made.shape, made.type, made.buffer = shape, kind, buffer
        if scale is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale, made.quantization.zeroPoint = [scale[0]], [scale[1]]
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def insert(self, before: Any, kind: str, operands: list[int], result: int) -> Any:
        """Put an operator in front of another one; its options."""
        made = schema.OperatorT()
        made.opcodeIndex = self._code(getattr(BUILTIN, kind.upper()))
        made.inputs, made.outputs = operands, [result]
        made.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
        made.builtinOptions = getattr(schema, f"{kind}OptionsT")()
        self.graph.operators.insert(self.graph.operators.index(before), made)
        return made.builtinOptions

    def _code(self, kind: int) -> int:
        for place, entry in enumerate(self.root.operatorCodes):
            if max(entry.builtinCode, entry.deprecatedBuiltinCode) == kind:
                return place
        made = schema.OperatorCodeT()
        made.builtinCode = made.deprecatedBuiltinCode = kind
        made.version = 2
        self.root.operatorCodes.append(made)
        return len(self.root.operatorCodes) - 1

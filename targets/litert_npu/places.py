"""Tables of 256 results as Qualcomm's NPU reads them at the places that TFLite reads.

before:  x:i8 → CAST → ADD (128) → GATHER
after:   x:i8 → MUL (1 / scale) → ADD (zero point + 128) → CAST → GATHER

TFLite casts the integers, from -128 on, Qualcomm's NPU the numbers that they stand for.  So this is for its compiler
alone; the file that an app falls back to is the one before.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.targets.litert_npu.dispatch import refused_table
from convertkit.targets.tflite_micro.file import read_graphs

_BUILTIN = schema.BuiltinOperator
_FROM, _STEPS = 128, 64


def with_places(content: bytes) -> bytes:
    """The file for Qualcomm's compiler; ``Unsupported`` for a CAST of bytes that is no place in a table."""
    if not any(each.code == "CAST" for graph in read_graphs(content) for each in graph.operators):
        return content
    root = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    for graph in root.subgraphs:
        for cast in [each for each in graph.operators if _is(root, each, _BUILTIN.CAST)]:
            given = graph.tensors[cast.inputs[0]]
            if given.quantization is None or given.quantization.scale is None or not len(given.quantization.scale):
                continue
            if given.type != schema.TensorType.INT8 or not _follow(root, graph, cast):
                raise refused_table(bytes(graph.tensors[cast.outputs[0]].name).decode("utf-8", "replace"))
            _relabel(root, graph, cast)
    builder = flatbuffers.Builder(len(content) + 1024)
    builder.Finish(root.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _is(root: Any, operator: Any, kind: int) -> bool:
    entry = root.operatorCodes[operator.opcodeIndex]
    return max(entry.builtinCode, entry.deprecatedBuiltinCode) == kind


def _follow(root: Any, graph: Any, cast: Any) -> bool:
    """Take out the ADD of 128 behind ``cast``, in whose place what it casts is read; False where there is none."""
    (place,) = cast.outputs
    readers = [each for each in graph.operators if place in list(each.inputs)]
    if len(readers) != 1 or place in list(graph.outputs) or not _is(root, readers[0], _BUILTIN.ADD):
        return False
    (add,) = readers
    offset = next(graph.tensors[each] for each in add.inputs if each != place)
    stored = root.buffers[offset.buffer].data
    if stored is None or np.asarray(stored, np.uint8).tobytes() != np.int32(_FROM).tobytes():
        return False
    cast.outputs = add.outputs
    graph.operators.remove(add)
    return True


class _File:
    """A file that operators and tensors are added to."""

    def __init__(self, root: Any, graph: Any) -> None:
        self._root, self._graph = root, graph

    def number(self, like: Any, integer: int, scale: float, zero: int) -> int:
        """A constant of one byte."""
        data = schema.BufferT()
        data.data = np.frombuffer(np.int8(integer).tobytes(), np.uint8)
        self._root.buffers.append(data)
        return self.tensor(like, [], scale, zero, len(self._root.buffers) - 1)

    def tensor(self, like: Any, shape: Any, scale: float, zero: int, buffer: int = 0) -> int:
        """Bytes with this scale and zero point, named after ``like``."""
        made = schema.TensorT()
        made.name = bytes(like.name) + b"/place_%d" % len(self._graph.tensors)
        made.shape, made.type, made.buffer = shape, schema.TensorType.INT8, buffer
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale, made.quantization.zeroPoint = [scale], [zero]
        self._graph.tensors.append(made)
        return len(self._graph.tensors) - 1

    def insert(self, before: Any, kind: str, operands: list[int], result: int) -> None:
        """An ADD or a MUL in front of another operator."""
        made = schema.OperatorT()
        made.opcodeIndex = self._code(getattr(_BUILTIN, kind.upper()))
        made.inputs, made.outputs = operands, [result]
        made.builtinOptionsType = getattr(schema.BuiltinOptions, f"{kind}Options")
        made.builtinOptions = getattr(schema, f"{kind}OptionsT")()
        self._graph.operators.insert(self._graph.operators.index(before), made)

    def _code(self, kind: int) -> int:
        for place, entry in enumerate(self._root.operatorCodes):
            if max(entry.builtinCode, entry.deprecatedBuiltinCode) == kind:
                return place
        made = schema.OperatorCodeT()
        made.builtinCode = made.deprecatedBuiltinCode = kind
        made.version = 2
        self._root.operatorCodes.append(made)
        return len(self._root.operatorCodes) - 1


def _relabel(root: Any, graph: Any, cast: Any) -> None:
    """In front of ``cast`` what its bytes stand for becomes 0 to 255, by a product and a sum without roundings."""
    given, file = graph.tensors[cast.inputs[0]], _File(root, graph)
    scale, zero = float(given.quantization.scale[0]), int(given.quantization.zeroPoint[0])
    steps = file.tensor(given, given.shape, 1.0, zero)
    file.insert(cast, "Mul", [cast.inputs[0], file.number(given, _STEPS, 1 / scale / _STEPS, 0)], steps)
    cast.inputs = [steps]
    if zero != -_FROM:
        cast.inputs = [file.tensor(given, given.shape, 1.0, -_FROM)]
        file.insert(cast, "Add", [steps, file.number(given, zero, 1.0, -_FROM)], cast.inputs[0])

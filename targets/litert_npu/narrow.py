"""Whole numbers of 64 bits as those of 32 that Qualcomm's NPU moves and compares.

before:  mask:i64 → RESHAPE → EQUAL (1:i64)
after:   mask:i64 → CAST → mask:i32 → RESHAPE → EQUAL (1:i32)

So masks of padding get into attention.  A number beyond 32 bits would become another one, which is told.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.targets.litert_npu.flat import BUILTIN, File, is_kind, packed, unpacked
from convertkit.targets.tflite_micro.file import read_graphs

_TYPE = schema.TensorType
_MOVES = (BUILTIN.RESHAPE, BUILTIN.TRANSPOSE, BUILTIN.SLICE)
_COMPARES = (BUILTIN.EQUAL, BUILTIN.NOT_EQUAL)


def narrowed(content: bytes) -> tuple[bytes, tuple[str, ...]]:
    """The file for Qualcomm's compiler, and the inputs that are read so."""
    graph = read_graphs(content)[0]
    if not any(graph.tensors[each].dtype == "int64" for each in graph.inputs):
        return content, ()
    root = unpacked(content)
    names = tuple(name for place in list(root.subgraphs[0].inputs) for name in _narrowed(root, int(place)))
    return (packed(root), names) if names else (content, ())


def _narrowed(root: Any, place: int) -> tuple[str, ...]:
    """The name of an input that is compared; none where something else is done with it."""
    graph = root.subgraphs[0]
    given = graph.tensors[place]
    behind = None if given.type != _TYPE.INT64 else _behind(root, place)
    if not behind or place in list(graph.outputs):
        return ()
    file = File(root, graph)
    narrow = file.tensor(given, given.shape, _TYPE.INT32)
    readers = [each for each in graph.operators if place in list(each.inputs)]
    options = file.insert(readers[0], "Cast", [place], narrow)
    options.inDataType, options.outDataType = _TYPE.INT64, _TYPE.INT32
    for reader in readers:
        reader.inputs = [narrow if each == place else each for each in reader.inputs]
    for operator in behind:
        _retype(file, operator)
    return (bytes(given.name).decode("utf-8", "replace"),)


def _behind(root: Any, place: int) -> list[Any]:
    """What moves or compares a tensor; empty where anything else reads it, or a result is the model's."""
    graph, found = root.subgraphs[0], []
    for reader in (each for each in graph.operators if place in list(each.inputs)):
        if is_kind(root, reader, *_COMPARES):
            others = [graph.tensors[each] for each in reader.inputs if each != place]
            if len(others) != 1 or _stored(root, others[0]) is None:
                return []
            found.append(reader)
            continue
        further = _behind(root, int(reader.outputs[0])) if is_kind(root, reader, *_MOVES) else []
        if not further or reader.inputs[0] != place or reader.outputs[0] in list(graph.outputs):
            return []
        found += [reader, *further]
    return found


def _stored(root: Any, tensor: Any) -> np.ndarray | None:
    """A constant of 64 bits whose numbers have 32; None where it is no such."""
    data = root.buffers[tensor.buffer].data
    if data is None or tensor.type != _TYPE.INT64:
        return None
    numbers = np.frombuffer(np.asarray(data, np.uint8).tobytes(), np.int64)
    return numbers.astype(np.int32) if (numbers == numbers.astype(np.int32)).all() else None


def _retype(file: File, operator: Any) -> None:
    """Results that are moved have 32 bits, and so has what they are compared with."""
    tensors = file.graph.tensors
    if not is_kind(file.root, operator, *_COMPARES):
        tensors[operator.outputs[0]].type = _TYPE.INT32
        return
    for slot, place in enumerate(list(operator.inputs)):
        numbers = _stored(file.root, tensors[place])
        if numbers is not None:
            made = file.tensor(tensors[place], tensors[place].shape, _TYPE.INT32, file.buffer(numbers))
            operator.inputs = [made if at == slot else each for at, each in enumerate(operator.inputs)]

"""Tables of 256 results as Qualcomm's NPU reads them at the places that TFLite reads.

before:  x:i8 → CAST → ADD (128) → GATHER
after:   x:i8 → MUL (1 / scale) → ADD (zero point + 128) → CAST → GATHER

TFLite casts the integers, from -128 on, Qualcomm's NPU the numbers that they stand for.  So this is for its compiler
alone; the file that an app falls back to is the one before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from convertkit.targets.litert_npu.dispatch import refused_table
from convertkit.targets.litert_npu.flat import BUILTIN, File, is_kind, packed, unpacked
from convertkit.targets.tflite_micro.file import read_graphs

_FROM, _STEPS = 128, 64


def with_places(content: bytes) -> bytes:
    """The file for Qualcomm's compiler; ``Unsupported`` for a CAST of bytes that is no place in a table."""
    if not any(each.code == "CAST" for graph in read_graphs(content) for each in graph.operators):
        return content
    root = unpacked(content)
    for graph in root.subgraphs:
        for cast in [each for each in graph.operators if is_kind(root, each, BUILTIN.CAST)]:
            given = graph.tensors[cast.inputs[0]]
            if given.quantization is None or given.quantization.scale is None or not len(given.quantization.scale):
                continue
            if given.type != schema.TensorType.INT8 or not _follow(root, graph, cast):
                raise refused_table(bytes(graph.tensors[cast.outputs[0]].name).decode("utf-8", "replace"))
            _relabel(root, graph, cast)
    return packed(root)


def _follow(root: Any, graph: Any, cast: Any) -> bool:
    """Take out the ADD of 128 behind ``cast``, in whose place what it casts is read; False where there is none."""
    (place,) = cast.outputs
    readers = [each for each in graph.operators if place in list(each.inputs)]
    if len(readers) != 1 or place in list(graph.outputs) or not is_kind(root, readers[0], BUILTIN.ADD):
        return False
    (add,) = readers
    offset = next(graph.tensors[each] for each in add.inputs if each != place)
    stored = root.buffers[offset.buffer].data
    if stored is None or np.asarray(stored, np.uint8).tobytes() != np.int32(_FROM).tobytes():
        return False
    cast.outputs = add.outputs
    graph.operators.remove(add)
    return True


def _relabel(root: Any, graph: Any, cast: Any) -> None:
    """In front of ``cast`` what its bytes stand for becomes 0 to 255, by a product and a sum without roundings."""
    given, file = graph.tensors[cast.inputs[0]], File(root, graph)
    scale, zero = float(given.quantization.scale[0]), int(given.quantization.zeroPoint[0])

    def number(integer: int, step: float, offset: int) -> int:
        return file.tensor(given, [], given.type, file.buffer(np.array(integer, np.int8)), (step, offset))

    steps = file.tensor(given, given.shape, given.type, scale=(1.0, zero))
    file.insert(cast, "Mul", [cast.inputs[0], number(_STEPS, 1 / scale / _STEPS, 0)], steps)
    cast.inputs = [steps]
    if zero != -_FROM:
        cast.inputs = [file.tensor(given, given.shape, given.type, scale=(1.0, -_FROM))]
        file.insert(cast, "Add", [steps, number(zero, 1.0, -_FROM)], cast.inputs[0])

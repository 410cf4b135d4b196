"""What a TFLite file holds in memory while it is called.

Read from the FlatBuffer; nothing is run.  XNNPACK copies the weights of each product into the order of its kernels
when the file is loaded, beside the file that lies in memory itself, and keeps for a convolution where each element of
each window lies.  How near that comes to a process is measured in
docs/measurements/device-costs.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from convertkit.operators import Memory
from convertkit.targets.tflite.inspection import CODES, Placed, Tensors, indices, placed_operators

_ALIGNED = 64
"""Bytes that begin each tensor in the arena."""
_PACKED = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL"})
_WINDOWS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
_POINTER = 8
_PER_CHANNEL = 8
"""Bytes of a scale and of a sum, which a kernel of integers keeps for each channel beside its bias."""
_NOT_PACKED = frozenset({"int16", "int32", "int64"})
"""Types of activations whose products XNNPACK does not compute."""


def memory(path: Path) -> Memory:
    """Bytes of one instance; dynamic dimensions count as 1."""
    model = schema.Model.GetRootAs(path.read_bytes(), 0)
    graphs = [model.Subgraphs(place) for place in range(model.SubgraphsLength())]
    tensors = [Tensors(model, graph) for graph in graphs]
    alive = [_most_alive(graph, own) for graph, own in zip(graphs, tensors, strict=True)]
    stored = {
        int(graph.Tensors(index).Buffer()): own.stored_bytes(index)
        for graph, own in zip(graphs, tensors, strict=True)
        for index in range(graph.TensorsLength())
    }
    copied = sum(_copied(model, graph, own) for graph, own in zip(graphs, tensors, strict=True))
    tables = sum(map(_table, placed_operators(path)))
    return Memory(alive[0] + max(alive[1:], default=0), sum(stored.values()), copied, tables)


def _most_alive(graph: Any, tensors: Tensors) -> int:
    """The largest sum of the tensors that are needed at one time; inputs are kept throughout."""
    last = {index: graph.OperatorsLength() for index in indices(graph.OutputsAsNumpy())}
    steps = [graph.Operators(place) for place in range(graph.OperatorsLength())]
    for place, step in enumerate(steps):
        for index in indices(step.InputsAsNumpy()):
            last[index] = max(last.get(index, 0), place)
    held = sum(_bytes(tensors, index) for index in indices(graph.InputsAsNumpy()))
    most, alive = held, dict[int, int]()
    for place, step in enumerate(steps):
        alive |= {index: _bytes(tensors, index) for index in _computed(step, tensors)}
        most = max(most, held + sum(alive.values()))
        alive = {index: size for index, size in alive.items() if last.get(index, -1) > place}
    return most


def _computed(step: Any, tensors: Tensors) -> Sequence[int]:
    """What an operator writes; what is made of constants alone is a weight and not an activation."""
    read = [index for index in indices(step.InputsAsNumpy()) if index >= 0]
    if read and all(tensors.stored_bytes(index) for index in read):
        return ()
    return indices(step.OutputsAsNumpy())


def _bytes(tensors: Tensors, index: int) -> int:
    return -(-tensors.size_bytes(index) // _ALIGNED) * _ALIGNED


def _table(placed: Placed) -> int:
    """Of a convolution's windows: a pointer for each element of each; neighbours of a depthwise one share theirs."""
    if placed.told.kind not in _WINDOWS or math.prod(placed.weight[1:3]) == 1:
        return 0
    height, width = placed.weight[1:3]
    _, rows, columns, _ = placed.written[0]
    if placed.told.kind == "CONV_2D":
        return rows * columns * height * width * _POINTER
    step = min(-(-placed.reads[0][2] // columns), width)
    return rows * (width + (columns - 1) * step) * height * _POINTER


def _copied(model: Any, graph: Any, tensors: Tensors) -> int:
    """All products' weights and biases as they are packed, and those that are made real for that."""
    made: dict[int, int] = {}
    total = 0
    for place in range(graph.OperatorsLength()):
        step = graph.Operators(place)
        entry = model.OperatorCodes(step.OpcodeIndex())
        kind = CODES[max(entry.BuiltinCode(), entry.DeprecatedBuiltinCode())]
        read = [index for index in indices(step.InputsAsNumpy()) if index >= 0]
        if kind == "DEQUANTIZE" and tensors.stored_bytes(read[0]):
            made |= {index: tensors.size_bytes(index) for index in indices(step.OutputsAsNumpy())}
        elif kind in _PACKED:
            total += _copies(read, tensors, made)
    return total + sum(made.values())


def _copies(read: Sequence[int], tensors: Tensors, made: dict[int, int]) -> int:
    """Of one product, whose data has the type that XNNPACK takes; none of two activations."""
    data = [index for index in read if not tensors.stored_bytes(index) and index not in made]
    constants = [index for index in read if index not in data and math.prod(tensors.shape(index)) > 1]
    if not data or tensors.dtype(data[-1]) in _NOT_PACKED:
        return 0
    sizes = [made.get(index, tensors.stored_bytes(index)) for index in constants]
    channels = sum(math.prod(tensors.shape(index)) for index in constants if len(tensors.shape(index)) == 1)
    whole = any(tensors.is_quantized(index) and index not in made for index in constants)
    return sum(sizes) + (_PER_CHANNEL * channels if whole else 0)

"""How large an arena TensorFlow Lite Micro needs for a file, computed without running it.

The plan of values and scratch memory lies at one end (:mod:`planner`), structures that stay at the other.  While a
model is set up, records for planning lie between them.  Sources: ``micro_allocator.cc`` and
``arena_allocator/single_arena_buffer_allocator.cc`` of tensorflow/tflite-micro, 2026-08-20; sizes where pointers have
64 bits, with the allocator that its Python package records with.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from convertkit.targets.tflite_micro.file import FileGraph, FileOperator, FileTensor
from convertkit.targets.tflite_micro.planner import aligned, buffers, greedy, height

_ALLOCATORS = 488 - 16
"""Objects of the allocator and the planner."""
_SUBGRAPH, _EVAL_TENSOR, _TENSOR, _NODE, _POINTER = 16, 24, 64, 64, 8
_QUANTIZATION = 24
_RECORD, _PLANNED, _REQUEST, _REQUESTS_OF_A_NODE = 32, 40, 16, 12
"""``AllocationInfo``, ``GreedyMemoryPlanner::per_buffer_size``, ``ScratchBufferRequest``, and how many stay free."""
_SLACK = 16
"""For the alignment of what is read while a kernel is prepared."""
_LOOKUP_OF_INT16 = 1026
_READ_TWICE = frozenset({"MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL"})
_SCALES_OF_A_PRODUCT = 28
"""What BATCH_MATMUL keeps of integers."""


@dataclass(frozen=True, slots=True)
class Arena:
    """Bytes that the arena has to have, and those in use afterwards: for values and scratch, and for what stays."""

    size: int
    head: int
    tail: int

    def told(self) -> str:
        """In a clause."""
        return f"{self.size:,} bytes: values and scratch memory {self.head:,}, structures of the runtime {self.tail:,}"


def foretold_arena(graphs: Sequence[FileGraph]) -> Arena:
    """The arena that :func:`~convertkit.targets.tflite_micro.arena.measured_arena` would find."""
    wanted = buffers(graphs)
    head = height(wanted, greedy(wanted))
    scratch = sum(each.tensor is None for each in wanted)
    tail = _Tail()
    tail.add(_ALLOCATORS, 8)
    tail.add(_SUBGRAPH * len(graphs), 8)
    for size, alignment in _structures(graphs):
        tail.add(size, alignment)
    tail.add(_POINTER * scratch, _POINTER)
    for graph in graphs:
        for tensor in graph.tensors:
            if tensor.variable:
                tail.add(tensor.size_bytes)
    requests = _REQUEST * (scratch + _REQUESTS_OF_A_NODE)
    tensors = sum(len(graph.tensors) for graph in graphs)
    records = requests + _POINTER * len(graphs) + _RECORD * (tensors + scratch)
    setting_up = aligned(records) + aligned(_PLANNED * len(wanted)) + aligned(tail.used)
    temporary = max((_temporary(each, graph) for graph in graphs for each in graph.operators), default=0)
    preparing = aligned(requests) + _SLACK + temporary + tail.used
    for ends in (graphs[0].inputs, graphs[0].outputs):
        tail.add(_POINTER * len(ends))
        for index in ends:
            for size, alignment in _interface(graphs[0].tensors[index]):
                tail.add(size, alignment)
    size = aligned(max(head + tail.used, setting_up, preparing))
    return Arena(size, head, tail.used)


class _Tail:
    """Grows from the end of the arena, whose last byte is at a multiple of 16."""

    def __init__(self) -> None:
        self.used = 0

    def add(self, size: int, alignment: int = 16) -> None:
        self.used = aligned(self.used + size, alignment)


def _structures(graphs: Sequence[FileGraph]) -> Iterator[tuple[int, int]]:
    """Sizes and alignments in the order in which they are laid down."""
    for graph in graphs:
        yield _EVAL_TENSOR * len(graph.tensors), 8
    for graph in graphs:
        yield _NODE * len(graph.operators), 8
    operators = [(each, graph) for graph in graphs for each in graph.operators]
    for operator, _ in operators:
        options = _sizes()["params"].get(operator.code, 0)
        yield options, 8 if options >= 16 and options % 8 == 0 else 4
    for operator, graph in operators:
        yield _data(operator, graph), 16
    for operator, graph in operators:
        for size in _prepared(operator, graph):
            yield size, 16


def _data(operator: FileOperator, graph: FileGraph) -> int:
    """Of the kernel's own structure; CUMSUM has one for integers alone."""
    first = graph.tensor(operator.inputs[0]) if operator.inputs else None
    if operator.code == "CUMSUM" and first is not None and first.dtype == "float32":
        return 0
    return _sizes()["data"].get(operator.code, 0)


def _prepared(operator: FileOperator, graph: FileGraph) -> Iterator[int]:
    """What a kernel keeps beside its structure: multipliers and shifts of channels, tables, copies."""
    inputs = [graph.tensor(index) for index in operator.inputs]
    match operator.code:
        case "CONV_2D" | "TRANSPOSE_CONV":
            yield from _channels(inputs[1], 0)
        case "DEPTHWISE_CONV_2D":
            yield from _channels(inputs[1], 3)
        case "FULLY_CONNECTED" if inputs[1] is not None and inputs[1].channels > 1:
            yield from _channels(inputs[1], 0)
        case "SOFTMAX" if inputs[0] is not None and inputs[0].dtype == "int16":
            yield from (_LOOKUP_OF_INT16, _LOOKUP_OF_INT16)
        case "GATHER":
            yield _dims(graph.tensors[operator.outputs[0]])
        case "BATCH_MATMUL":
            yield _dims(graph.tensors[operator.outputs[0]])
            for each, turned in zip(inputs, operator.turned, strict=True):
                if each is not None and turned:
                    yield from (_EVAL_TENSOR, _dims(each), each.size_bytes)
            if inputs[0] is not None and inputs[0].dtype != "float32":
                yield _SCALES_OF_A_PRODUCT


def _channels(weights: FileTensor | None, axis: int) -> Iterator[int]:
    if weights is not None:
        yield from (4 * weights.shape[axis],) * 2


def _dims(tensor: FileTensor) -> int:
    """A ``TfLiteIntArray`` of its shape."""
    return 4 + 4 * len(tensor.shape)


def _interface(tensor: FileTensor) -> Iterator[tuple[int, int]]:
    """What is kept of an input or output of the model."""
    yield _TENSOR, 8
    if tensor.channels:
        yield _QUANTIZATION, 8
        yield 4 + 4 * tensor.channels, 4


def _temporary(operator: FileOperator, graph: FileGraph) -> int:
    """At most what a kernel reads tensors into while it is prepared: all of them at once, and one of them again.

    Reductions read theirs twice (``PrepareSimple`` within ``PrepareMeanOrSumHelper``).
    """
    tensors = [graph.tensors[index] for index in (*operator.inputs, *operator.outputs) if index >= 0]
    taken = [aligned(sum(size for size, _ in _interface(tensor)), 8) for tensor in tensors]
    return sum(taken) + (sum(taken) if operator.code in _READ_TWICE else max(taken, default=0))


@cache
def _sizes() -> Mapping[str, Mapping[str, int]]:
    text = resources.files("convertkit.targets.tflite_micro").joinpath("structures.toml").read_text(encoding="utf-8")
    found: Mapping[str, Mapping[str, int]] = tomllib.loads(text)
    return found

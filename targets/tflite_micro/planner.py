"""Where TensorFlow Lite Micro puts values in its arena: lifetimes, and the greedy plan with what was placed before.

Sources: ``micro_allocation_info.cc`` (lifetimes) and ``memory_planner/greedy_memory_planner.cc`` (places) of
tensorflow/tflite-micro, 2026-08-20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convertkit.targets.tflite_micro.file import FileGraph
from convertkit.targets.tflite_micro.scratch import scratch_bytes

ALIGNMENT_BYTES = 16
_NEVER = (-1, -1)
"""When a tensor is needed that nothing makes or reads, which gets its place all the same."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Bytes that are needed from a time to a time, both included; ``offset`` where that is laid down before the plan.

    ``tensor`` is its subgraph and its place there, None for scratch memory of a kernel.
    """

    size_bytes: int
    first: int
    last: int
    tensor: tuple[int, int] | None = None
    offset: int | None = None

    def meets(self, other: Buffer) -> bool:
        """Whether both are needed at some time."""
        return self.first <= other.last and other.first <= self.last


def aligned(size_bytes: int, alignment: int = ALIGNMENT_BYTES) -> int:
    """The next multiple of ``alignment``."""
    return -(-size_bytes // alignment) * alignment


def buffers(graphs: Sequence[FileGraph]) -> tuple[Buffer, ...]:
    """What the planner is given, in its order: tensors of all subgraphs, then scratch memory."""
    times = _Lifetimes(graphs)
    times.walk(0)
    found = [
        Buffer(aligned(tensor.size_bytes), *times.of.get((place, index), _NEVER), (place, index), graph.offset(index))
        for place, graph in enumerate(graphs)
        for index, tensor in enumerate(graph.tensors)
        if not tensor.constant and not tensor.variable and tensor.size_bytes
    ]
    return (*found, *times.scratch)


class _Lifetimes:
    """Counts operators as the runtime does: those of a branch or a loop between those around it."""

    def __init__(self, graphs: Sequence[FileGraph]) -> None:
        self._graphs = graphs
        self._now = 0
        self.of: dict[tuple[int, int], tuple[int, int]] = {}
        self.scratch: list[Buffer] = []

    def walk(self, place: int) -> None:
        """One subgraph and what it calls."""
        graph = self._graphs[place]
        self._use(place, graph.inputs)
        for operator in graph.operators:
            self._now += 1
            self._use(place, operator.outputs)
            begun = self._now
            for called in operator.subgraphs:
                self._now += 1
                self.walk(called)
            self._use(place, (*operator.inputs, *operator.outputs))
            sizes = scratch_bytes(operator, graph)
            self.scratch += [Buffer(aligned(size), begun, self._now) for size in sizes]
        self._use(place, graph.outputs)

    def _use(self, place: int, tensors: Sequence[int]) -> None:
        for index in tensors:
            if index >= 0:
                first, _ = self.of.get((place, index), (self._now, self._now))
                self.of[(place, index)] = first, self._now


def greedy(wanted: Sequence[Buffer]) -> tuple[int, ...]:
    """The offset of each buffer: those that have one, then the others, largest first, in the first gap that holds them.

    Of the same size, the one that was added last comes first.
    """
    free = [place for place, each in enumerate(wanted) if each.offset is None]
    return in_order(wanted, sorted(free, key=lambda p: (-wanted[p].size_bytes, -p)))


def in_order(wanted: Sequence[Buffer], order: Sequence[int]) -> tuple[int, ...]:
    """The offset of each buffer: those that have one, then the others in this order, in the first gap."""
    offsets = [-1 if each.offset is None else each.offset for each in wanted]
    placed = sorted((place for place, each in enumerate(wanted) if each.offset is not None), key=lambda p: offsets[p])
    for place in order:
        offsets[place] = _gap(wanted, placed, offsets, place)
        spot = next((at for at, other in enumerate(placed) if offsets[other] > offsets[place]), len(placed))
        placed.insert(spot, place)
    return tuple(offsets)


def _gap(wanted: Sequence[Buffer], placed: Sequence[int], offsets: Sequence[int], place: int) -> int:
    """The lowest offset at which a buffer meets none that is placed; ``placed`` are in the order of their offsets."""
    end = 0
    for other in placed:
        if wanted[place].meets(wanted[other]):
            if offsets[other] - end >= wanted[place].size_bytes:
                break
            end = max(end, offsets[other] + wanted[other].size_bytes)
    return end


def height(wanted: Sequence[Buffer], offsets: Sequence[int]) -> int:
    """Bytes that a plan takes."""
    return max((offset + each.size_bytes for each, offset in zip(wanted, offsets, strict=True)), default=0)


def least(wanted: Sequence[Buffer]) -> int:
    """What no plan is below: the most that is needed at one time."""
    times = {each.first for each in wanted}
    return max((sum(b.size_bytes for b in wanted if b.first <= now <= b.last) for now in times), default=0)

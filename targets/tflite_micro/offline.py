"""A plan of values that is laid down in the file, and kept by TensorFlow Lite Micro instead of its own.

The metadata ``OfflineMemoryAllocation`` holds int32: a version, a subgraph, the number of tensors in all subgraphs, and
where each lies in the arena, -1 for what the runtime places by itself.  Source: ``GetOfflinePlannedOffsets`` and
``InitializeAllocationInfo`` of tensorflow/tflite-micro (``micro_allocation_info.cc``, 2026-08-20).  Its
``AllocateVariables`` (``micro_allocator.cc``) looks for state of every subgraph among the first places: these stay -1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from convertkit.targets.tflite_micro.file import OFFLINE_PLAN, FileGraph
from convertkit.targets.tflite_micro.planner import Buffer, buffers, greedy, height, in_order, least

_VERSION, _SUBGRAPH, _OWN = 1, 0, -1
_WORK = 4_000_000
"""Pairs of buffers that a search may look at: some seconds."""


def plan_note(graphs: Sequence[FileGraph]) -> tuple[str, bytes]:
    """Name and content of the metadata."""
    starts = list(accumulate((len(graph.tensors) for graph in graphs), initial=0))
    state = {place for graph in graphs for place, tensor in enumerate(graph.tensors) if tensor.variable}
    wanted = [_laid(each, starts, state) for each in buffers(graphs)]
    offsets = [_OWN] * starts[-1]
    for each, offset in zip(wanted, smallest(wanted), strict=True):
        if each.tensor is not None:
            offsets[_place(each.tensor, starts)] = offset
    return OFFLINE_PLAN, np.array([_VERSION, _SUBGRAPH, len(offsets), *offsets], "<i4").tobytes()


def _place(tensor: tuple[int, int], starts: Sequence[int]) -> int:
    """Of a tensor among those of all subgraphs."""
    return starts[tensor[0]] + tensor[1]


def _laid(buffer: Buffer, starts: Sequence[int], state: Collection[int]) -> Buffer:
    """``buffer``; as scratch memory, which the runtime places, where its place has to be left open."""
    if buffer.tensor is None or _place(buffer.tensor, starts) not in state:
        return buffer
    return replace(buffer, tensor=None)


def smallest(wanted: Sequence[Buffer]) -> tuple[int, ...]:
    """The lowest plan that is found, with scratch memory where the runtime then puts it; never above the greedy one."""
    best = greedy(wanted)
    bound, rounds = least(wanted), _WORK // max(len(wanted) ** 2, 1)
    for order, _ in zip(_orders(wanted), range(rounds), strict=False):
        offsets = in_order(wanted, order)
        places = zip(wanted, offsets, strict=True)
        laid = [replace(each, offset=at) if each.tensor is not None else each for each, at in places]
        found = greedy(laid)
        if height(wanted, found) < height(wanted, best):
            best = found
        if height(wanted, best) == bound:
            break
    return best


def _orders(wanted: Sequence[Buffer]) -> Iterator[list[int]]:
    """Orders to place buffers in: simple ones, then the last of these with what lies on top moved to the front."""
    every = range(len(wanted))
    order = list(every)
    for key in (_by_size, _by_area, _by_time, _by_end):
        order = sorted(every, key=lambda place, key=key: (key(wanted[place]), place))  # type: ignore[misc]
        yield order
    order = sorted(every, key=lambda place: (_by_size(wanted[place]), place))
    while True:
        offsets = in_order(wanted, order)
        top = max(order, key=lambda place: (offsets[place] + wanted[place].size_bytes, place))
        order = [top, *(place for place in order if place != top)]
        yield order


def _by_size(buffer: Buffer) -> int:
    return -buffer.size_bytes


def _by_area(buffer: Buffer) -> int:
    return -buffer.size_bytes * (buffer.last - buffer.first + 1)


def _by_time(buffer: Buffer) -> int:
    return buffer.first


def _by_end(buffer: Buffer) -> int:
    return -buffer.last

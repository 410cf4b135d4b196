"""A plan of values that is laid down in the file, and kept by TensorFlow Lite Micro instead of its own.

The metadata ``OfflineMemoryAllocation`` holds int32: a version, a subgraph, the number of tensors, and where each lies
in the arena, -1 for what the runtime places by itself.  Source: ``GetOfflinePlannedOffsets`` of tensorflow/tflite-micro
(``micro_allocation_info.cc``, 2026-08-20), which gives the same places to every subgraph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from convertkit.errors import Unsupported
from convertkit.targets.tflite_micro.file import OFFLINE_PLAN, FileGraph
from convertkit.targets.tflite_micro.planner import Buffer, buffers, greedy, height, in_order, least

_VERSION, _SUBGRAPH, _OWN = 1, 0, -1
_WORK = 4_000_000
"""Pairs of buffers that a search may look at: some seconds."""


def plan_note(graphs: Sequence[FileGraph]) -> tuple[str, bytes]:
    """Name and content of the metadata; ``Unsupported`` for a model with branches or loops."""
    if len(graphs) > 1:
        raise Unsupported(
            "--tflite-micro-plan offline: TensorFlow Lite Micro reads the places of one graph, and the model has "
            f"{len(graphs)}, of branches or loops",
            ways_out=("--tflite-micro-plan greedy",),
        )
    wanted = buffers(graphs)
    offsets = [_OWN] * len(graphs[0].tensors)
    for each, offset in zip(wanted, smallest(wanted), strict=True):
        if each.tensor is not None:
            offsets[each.tensor[1]] = offset
    return OFFLINE_PLAN, np.array([_VERSION, _SUBGRAPH, len(offsets), *offsets], "<i4").tobytes()


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

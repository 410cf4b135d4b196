"""Sparse constants as dense arrays.

Source: ``SparsityParameters`` of ``schema.fbs``, ``kernels/internal/utils/sparsity_format_converter.cc``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.tflite.flatbuffer import Table
from convertkit.errors import SourceError

_DENSE, _COMPRESSED = 0, 1
_VECTORS = {1: "<i4", 2: "<u2", 3: "u1"}
_MAX_ELEMENTS = 1 << 31


@dataclass(frozen=True, slots=True)
class _Level:
    """One dimension in the order in which values are stored."""

    compressed: bool
    size: int
    segments: Array
    indices: Array


def stored_count(parameters: Table, shape: tuple[int, ...]) -> int:
    """How many values the buffer of a sparse tensor holds."""
    return len(_places(parameters, shape))


def dense(parameters: Table, shape: tuple[int, ...], values: Array) -> Array:
    """The array of ``shape`` whose stored ``values`` lie where ``parameters`` say; the rest is zero."""
    places = _places(parameters, shape)
    if values.size != len(places):
        raise SourceError(f"a sparse tensor of {len(places)} places holds {values.size} values")
    result = np.zeros(math.prod(shape), values.dtype)
    result[places] = values
    return result.reshape(shape)


def _places(parameters: Table, shape: tuple[int, ...]) -> Array:
    """Flat places of the stored values, in their order."""
    order, blocks = parameters.integers(0), parameters.integers(1)
    levels = tuple(_level(each) for each in parameters.tables(2))
    rank = len(shape)
    if sorted(order) != list(range(len(levels))) or len(levels) != rank + len(blocks):
        raise SourceError(f"a sparse tensor of {rank} axes with {len(levels)} levels in the order {order}")
    if any(not 0 <= axis < rank for axis in blocks) or math.prod(shape) > _MAX_ELEMENTS:
        raise SourceError(f"a sparse tensor of shape {shape} in blocks along {blocks}")
    coordinates = _coordinates(levels, math.prod(shape))
    by_axis = {axis: coordinates[level] for level, axis in enumerate(order)}
    for number, axis in enumerate(blocks):
        by_axis[axis] = by_axis[axis] * levels[order.index(rank + number)].size + by_axis[rank + number]
    place = np.zeros(coordinates.shape[1], np.int64)
    for axis, size in enumerate(shape):
        if by_axis[axis].size and not 0 <= by_axis[axis].min() <= by_axis[axis].max() < size:
            raise SourceError(f"a sparse tensor of shape {shape} has values outside it")
        place = place * size + by_axis[axis]
    return place


def _level(table: Table) -> _Level:
    kind = table.scalar(0, "i8", 0)
    if kind not in (_DENSE, _COMPRESSED):
        raise SourceError(f"a sparse tensor with a dimension of the format {kind}")
    size = table.scalar(1, "i32", 0)
    return _Level(kind == _COMPRESSED, size, _vector(table, 2), _vector(table, 4))


def _vector(table: Table, slot: int) -> Array:
    kind, held = table.scalar(slot, "u8", 0), table.table(slot + 1)
    if held is None or kind not in _VECTORS:
        return np.empty(0, np.int64)
    return held.array(0, _VECTORS[kind]).astype(np.int64)


def _coordinates(levels: tuple[_Level, ...], most: int) -> Array:
    """One column for each stored value, one row for each level; no more than ``most`` columns."""
    found = np.zeros((0, 1), np.int64)
    parents = np.zeros(1, np.int64)
    for level in levels:
        if level.compressed:
            if len(level.segments) != found.shape[1] + 1 or np.any(np.diff(level.segments) < 0):
                raise SourceError("the segments of a sparse tensor do not fit")
            counts = np.diff(level.segments)
            if level.segments[0] != 0 or level.segments[-1] != len(level.indices) or counts.sum() > most:
                raise SourceError("the segments of a sparse tensor do not fit its indices")
            own = level.indices
        else:
            if level.size < 0 or level.size * found.shape[1] > most:
                raise SourceError(f"a dimension of {level.size} places in a sparse tensor of {most} elements")
            counts = np.full(found.shape[1], level.size)
            own = np.tile(np.arange(level.size), found.shape[1])
        parents = np.repeat(np.arange(found.shape[1]), counts)
        found = np.concatenate([found[:, parents], own[None]])
    return found

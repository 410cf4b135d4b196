"""Gathering, scattering, sorting.

Source: coremltools, mil/ops/defs, scatter_gather.py and tensor_operation.py.
"""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

indexing = Table()


def _int(value: Array | None, default: int = 0) -> int:
    return default if value is None else int(value)


def _flag(value: Array | None, default: bool = False) -> bool:
    return default if value is None else bool(value)


@indexing.computes("gather")
def _gather(
    *,
    x: Array,
    indices: Array,
    axis: Array | None = None,
    batch_dims: Array | None = None,
    validate_indices: Array | None = None,
) -> Array:
    assert _int(batch_dims) == 0
    return np.take(x, indices, _int(axis))


@indexing.computes("gather_along_axis")
def _gather_along_axis(
    *, x: Array, indices: Array, axis: Array | None = None, validate_indices: Array | None = None
) -> Array:
    return np.take_along_axis(x, indices.astype(np.int64), _int(axis))


@indexing.computes("gather_nd")
def _gather_nd(
    *, x: Array, indices: Array, batch_dims: Array | None = None, validate_indices: Array | None = None
) -> Array:
    batch = _int(batch_dims)
    lead = x.shape[:batch]
    if batch:
        flat, places = x.reshape(-1, *x.shape[batch:]), indices.reshape(-1, *indices.shape[batch:])
        rows = [row[tuple(np.moveaxis(place, -1, 0))] for row, place in zip(flat, places, strict=True)]
        return np.stack(rows).reshape(*lead, *rows[0].shape)
    return np.asarray(x[tuple(np.moveaxis(indices, -1, 0))])


_UPDATES = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "sub": np.subtract}


def _updated(data: Array, index: tuple[Array, ...], updates: Array, mode: Array | None) -> Array:
    result = data.copy()
    kind = "add" if mode is None else str(mode)
    if kind == "update":
        result[index] = updates
    else:
        _UPDATES[kind].at(result, index, updates)
    return result


@indexing.computes("scatter_nd")
def _scatter_nd(
    *,
    data: Array,
    indices: Array,
    updates: Array,
    mode: Array | None = None,
    validate_indices: Array | None = None,
) -> Array:
    return _updated(data, tuple(np.moveaxis(indices, -1, 0)), updates, mode)


@indexing.computes("scatter_along_axis")
def _scatter_along_axis(
    *,
    data: Array,
    indices: Array,
    updates: Array,
    axis: Array | None = None,
    mode: Array | None = None,
    validate_indices: Array | None = None,
) -> Array:
    places: list[Array] = list(np.indices(indices.shape))
    places[_int(axis)] = indices
    return _updated(data, tuple(places), updates, mode)


@indexing.computes("topk")
def _topk(
    *,
    x: Array,
    k: Array | None = None,
    axis: Array | None = None,
    ascending: Array | None = None,
    sort: Array | None = None,
    return_indices: Array | None = None,
    output_indices_dtype: Array | None = None,
) -> tuple[Array, ...]:
    """Of equal values, the one that comes first."""
    at, count = _int(axis, -1), _int(k, 1)
    count = x.shape[at] if count == -1 else count
    keys = x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64)
    order = np.argsort(keys if _flag(ascending) else -keys, axis=at, kind="stable")
    places = np.take(order, np.arange(count), at)
    values = np.take_along_axis(x, places, at)
    return (values, places.astype(np.int32)) if _flag(return_indices, True) else (values,)


@indexing.computes("argsort")
def _argsort(*, x: Array, axis: Array | None = None, ascending: Array | None = None) -> Array:
    keys = x if _flag(ascending) else -x
    return np.argsort(keys, axis=_int(axis, -1), kind="stable").astype(np.int32)


@indexing.computes("non_zero")
def _non_zero(*, x: Array) -> Array:
    return np.argwhere(x).astype(np.int32)


@indexing.computes("one_hot")
def _one_hot(
    *,
    indices: Array,
    one_hot_vector_size: Array,
    axis: Array | None = None,
    on_value: Array | None = None,
    off_value: Array | None = None,
) -> Array:
    size, at = int(one_hot_vector_size), _int(axis, -1)
    at = at % (indices.ndim + 1)
    places = np.arange(size).reshape([-1 if each == at else 1 for each in range(indices.ndim + 1)])
    on, off = (np.int32(1) if on_value is None else on_value), (np.int32(0) if off_value is None else off_value)
    return np.where(np.expand_dims(indices, at) == places, on, off)

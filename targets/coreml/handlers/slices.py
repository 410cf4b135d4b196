"""ONNX operators that take parts of a tensor, as MIL."""

from __future__ import annotations

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import flat_axes, integers
from convertkit.targets.coreml.tensor import Tensor, constant

slices = Registry()

_FAR = 2**31 - 1


@slices.lowers("Slice", since=13)
def slice_(b: Builder, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None, steps: Tensor | None) -> Tensor:
    """``slice_by_index``; with a negative step, what a positive one takes, reversed."""
    if starts.array is None or ends.array is None:
        return _at_run_time(b, x, starts, ends, axes, steps)
    firsts, lasts = integers(starts, "starts"), integers(ends, "ends")
    named = tuple(range(len(firsts))) if axes is None else flat_axes(integers(axes, "axes"), x.rank)
    strides = (1,) * len(firsts) if steps is None else integers(steps, "steps")
    begin, end, stride = [0] * x.rank, [0] * x.rank, [1] * x.rank
    begin_mask, end_mask, turned = [True] * x.rank, [True] * x.rank, []
    for axis, first, last, step in zip(named, firsts, lasts, strides, strict=True):
        if step < 0:
            first, last, step = _forwards(x.size(axis), first, last, step)  # noqa: PLW2901
            turned.append(axis)
        begin[axis], end[axis], stride[axis] = (*_bounds(x.shape[axis], first, last), step)
        begin_mask[axis], end_mask[axis] = begin[axis] == 0, end[axis] == _FAR
    for axis in named:
        if _is_empty(x.shape[axis], begin[axis], end[axis], end_mask[axis]):
            return _nothing(x, axis)
    result = b.op(
        "slice_by_index",
        x=x,
        begin=tuple(begin),
        end=tuple(0 if mask else last for last, mask in zip(end, end_mask, strict=True)),
        stride=tuple(stride),
        begin_mask=tuple(begin_mask),
        end_mask=tuple(end_mask),
    )
    return b.op("reverse", x=result, axes=tuple(turned)) if turned else result


def _forwards(size: int, first: int, last: int, step: int) -> tuple[int, int, int]:
    """The same elements from the front."""
    places = range(*slice(first, None if last < -size else last, step).indices(size))
    if not places:
        return 0, 0, 1
    return places[-1], places[0] + 1, -step


def _bounds(size: int | None, first: int, last: int) -> tuple[int, int]:
    """Both ends from the front where the size is known, ``_FAR`` for one at or beyond it."""
    if size is None:
        return first, _FAR if last >= _FAR else last
    low, high, _ = slice(first, last).indices(size)
    return low, _FAR if high >= size else high


def _is_empty(size: int | None, first: int, last: int, open_end: bool) -> bool:
    if size is None:
        return False
    return first >= size if open_end else last <= first


def _at_run_time(
    b: Builder, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None, steps: Tensor | None
) -> Tensor:
    """Ends that are computed: a vector for all axes, with masks for those that stay whole."""
    named = tuple(range(x.rank)) if axes is None else flat_axes(integers(axes, "axes"), x.rank)
    strides = (1,) * len(named) if steps is None else integers(steps, "steps")
    if min(strides) < 0:
        raise Unsupported("a negative step between ends that are computed at run time")
    by_axis = {axis: place for place, axis in enumerate(named)}
    begin = [_one(b, starts, by_axis.get(axis)) for axis in range(x.rank)]
    end = [_one(b, ends, by_axis.get(axis)) for axis in range(x.rank)]
    return b.op(
        "slice_by_index",
        x=x,
        begin=b.concat(begin, 0),
        end=b.concat(end, 0),
        stride=tuple(strides[by_axis[axis]] if axis in by_axis else 1 for axis in range(x.rank)),
        begin_mask=tuple(axis not in by_axis for axis in range(x.rank)),
        end_mask=tuple(axis not in by_axis or _is_far(ends, by_axis[axis]) for axis in range(x.rank)),
    )


def _is_far(ends: Tensor, place: int) -> bool:
    return ends.array is not None and int(ends.array[place]) >= _FAR


def _one(b: Builder, values: Tensor, place: int | None) -> Tensor:
    if place is None:
        return constant(np.zeros(1, np.int32))
    if values.array is not None:
        return constant(np.clip(values.array[place : place + 1], -_FAR, _FAR).astype(np.int32))
    return b.op("slice_by_index", x=values, begin=(place,), end=(place + 1,))


@slices.lowers("Split", since=18)
def split(
    b: Builder, x: Tensor, sizes: Tensor | None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    """The last part is the smaller one where the number does not divide the size."""
    at = axis % x.rank
    if sizes is not None:
        parts = integers(sizes, "split")
    else:
        count, size = num_outputs or 1, x.size(at)
        most = -(-size // count)
        parts = (*[most] * (count - 1), size - most * (count - 1))
    full = tuple(part for part in parts if part)
    found = iter(
        b.ops("split", x=x, split_sizes=full, axis=np.int32(at)) if len(full) > 1 else (b.op("identity", x=x),)
    )
    return tuple(next(found) if part else _nothing(x, at) for part in parts)


def _nothing(x: Tensor, axis: int) -> Tensor:
    """No elements, which a Concat leaves out: Core ML itself has no empty tensors."""
    sizes = [0 if each == axis else size for each, size in enumerate(x.sizes)]
    return constant(np.zeros(sizes, x.dtype))

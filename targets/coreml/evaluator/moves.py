"""Data that changes its place or shape.

Source: coremltools, mil/ops/defs, tensor_operation.py and tensor_transformation.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

moves = Table()


def numbers(value: Array) -> tuple[int, ...]:
    """A constant as Python's integers."""
    return tuple(int(each) for each in np.asarray(value).reshape(-1))


@moves.computes("reshape")
def _reshape(*, x: Array, shape: Array) -> Array:
    sizes = [x.shape[place] if size == 0 else size for place, size in enumerate(numbers(shape))]
    return x.reshape(sizes)


@moves.computes("transpose")
def _transpose(*, x: Array, perm: Array) -> Array:
    return x.transpose(numbers(perm))


@moves.computes("squeeze")
def _squeeze(*, x: Array, axes: Array | None = None) -> Array:
    return x.squeeze(None if axes is None else numbers(axes))


@moves.computes("expand_dims")
def _expand_dims(*, x: Array, axes: Array) -> Array:
    return np.expand_dims(x, numbers(axes))


@moves.computes("concat")
def _concat(*, values: Sequence[Array], axis: Array, interleave: Array | None = None) -> Array:
    return np.concatenate(list(values), int(axis))


@moves.computes("stack")
def _stack(*, values: Sequence[Array], axis: Array) -> Array:
    return np.stack(list(values), int(axis))


@moves.computes("split")
def _split(
    *, x: Array, axis: Array, num_splits: Array | None = None, split_sizes: Array | None = None
) -> tuple[Array, ...]:
    if split_sizes is None:
        assert num_splits is not None
        return tuple(np.split(x, int(num_splits), int(axis)))
    return tuple(np.split(x, np.cumsum(numbers(split_sizes))[:-1], int(axis)))


@moves.computes("slice_by_index")
def _slice_by_index(
    *,
    x: Array,
    begin: Array,
    end: Array,
    stride: Array | None = None,
    begin_mask: Array | None = None,
    end_mask: Array | None = None,
    squeeze_mask: Array | None = None,
) -> Array:
    """As Python slices; a mask stands for an end that is not given."""
    rank = len(numbers(begin))
    steps = [1] * rank if stride is None else list(numbers(stride))
    masks = [[False] * rank if mask is None else [bool(each) for each in mask] for mask in (begin_mask, end_mask)]
    squeezed = [False] * rank if squeeze_mask is None else [bool(each) for each in squeeze_mask]
    index: list[slice | int] = []
    for place, (first, last) in enumerate(zip(numbers(begin), numbers(end), strict=True)):
        if squeezed[place]:
            index.append(first)
        else:
            start, stop = (None if masks[0][place] else first, None if masks[1][place] else last)
            index.append(slice(start, stop, steps[place]))
    return np.asarray(x[tuple(index)])


@moves.computes("slice_by_size")
def _slice_by_size(*, x: Array, begin: Array, size: Array) -> Array:
    pairs = zip(numbers(begin), numbers(size), x.shape, strict=True)
    return x[tuple(slice(first, whole if count == -1 else first + count) for first, count, whole in pairs)]


@moves.computes("tile")
def _tile(*, x: Array, reps: Array) -> Array:
    return np.tile(x, numbers(reps))


@moves.computes("reverse")
def _reverse(*, x: Array, axes: Array | None = None) -> Array:
    return np.flip(x, None if axes is None else numbers(axes))


@moves.computes("reverse_sequence")
def _reverse_sequence(
    *, x: Array, lengths: Array, seq_axis: Array | None = None, batch_axis: Array | None = None
) -> Array:
    batch, steps = int(batch_axis or 0), int(seq_axis or 0)
    rows = np.moveaxis(x, (batch, steps), (0, 1)).copy()
    for row, length in enumerate(numbers(lengths)):
        rows[row, :length] = rows[row, :length][::-1].copy()
    return np.moveaxis(rows, (0, 1), (batch, steps))


@moves.computes("pad")
def _pad(*, x: Array, pad: Array, mode: Array | None = None, constant_val: Array | None = None) -> Array:
    """``pad`` has two numbers for each of the last dimensions."""
    sizes = np.reshape(pad, (-1, 2)).tolist()
    widths = [[0, 0]] * (x.ndim - len(sizes)) + sizes
    kind = "constant" if mode is None else str(mode)
    if kind == "constant":
        return np.pad(x, widths, constant_values=0 if constant_val is None else np.asarray(constant_val).item())
    return np.pad(x, widths, mode="reflect" if kind == "reflect" else "edge")


@moves.computes("shape")
def _shape(*, x: Array) -> Array:
    return np.array(x.shape, np.int32)


@moves.computes("fill")
def _fill(*, shape: Array, value: Array | None = None) -> Array:
    filled = np.float32(0) if value is None else value
    return np.full(numbers(shape), filled, np.asarray(filled).dtype)


@moves.computes("fill_like")
def _fill_like(*, ref_tensor: Array, value: Array | None = None) -> Array:
    return np.full(ref_tensor.shape, np.float32(0) if value is None else value)


@moves.computes("range_1d")
def _range_1d(*, end: Array, start: Array, step: Array) -> Array:
    return np.arange(start.item(), end.item(), step.item(), dtype=start.dtype)


@moves.computes("flatten2d")
def _flatten2d(*, x: Array, axis: Array | None = None) -> Array:
    at = 1 if axis is None else int(axis)
    return x.reshape(int(np.prod(x.shape[:at])), -1)


@moves.computes("depth_to_space", "pixel_shuffle")
def _depth_to_space(*, x: Array, block_size: Array | None = None, upscale_factor: Array | None = None) -> Array:
    """``depth_to_space`` takes the block from the slow channels, ``pixel_shuffle`` from the fast ones."""
    n, c, h, w = x.shape
    if block_size is not None:
        b = int(block_size)
        return x.reshape(n, b, b, c // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, c // b**2, h * b, w * b)
    assert upscale_factor is not None
    b = int(upscale_factor)
    return x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, c // b**2, h * b, w * b)


@moves.computes("pixel_unshuffle")
def _pixel_unshuffle(*, x: Array, downscale_factor: Array) -> Array:
    n, c, h, w = x.shape
    b = int(downscale_factor)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 1, 3, 5, 2, 4).reshape(n, c * b * b, h // b, w // b)


@moves.computes("space_to_depth")
def _space_to_depth(*, x: Array, block_size: Array) -> Array:
    n, c, h, w = x.shape
    b = int(block_size)
    return x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


@moves.computes("band_part")
def _band_part(*, x: Array, lower: Array | None = None, upper: Array | None = None) -> Array:
    """What lies more than ``lower`` below the diagonal or ``upper`` above it becomes 0; -1 keeps all."""
    rows, columns = np.indices(x.shape[-2:])
    below, above = (-1 if each is None else int(each) for each in (lower, upper))
    kept = ((below < 0) | (rows - columns <= below)) & ((above < 0) | (columns - rows <= above))
    return np.where(kept, x, np.zeros((), x.dtype))

"""Reductions and running sums.

Source: coremltools, mil/ops/defs, reduction.py and tensor_operation.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.moves import numbers
from convertkit.targets.coreml.evaluator.table import Table

reductions = Table()


def _log_sum_exp(x: Array, axes: tuple[int, ...] | None, keepdims: bool) -> Array:
    largest = x.max(axes, keepdims=True)
    largest = np.where(np.isfinite(largest), largest, 0).astype(x.dtype)
    total = np.log(np.exp(x - largest).sum(axes, keepdims=True)) + largest
    return np.asarray(total if keepdims else total.squeeze(axes))


_REDUCED: dict[str, Callable[[Array, tuple[int, ...] | None, bool], Array]] = {
    "reduce_l1_norm": lambda x, axes, keep: np.abs(x).sum(axes, keepdims=keep),
    "reduce_l2_norm": lambda x, axes, keep: np.sqrt((x * x).sum(axes, keepdims=keep)),
    "reduce_log_sum": lambda x, axes, keep: np.log(x.sum(axes, keepdims=keep)),
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_max": lambda x, axes, keep: x.max(axes, keepdims=keep),
    "reduce_mean": lambda x, axes, keep: x.mean(axes, keepdims=keep),
    "reduce_min": lambda x, axes, keep: x.min(axes, keepdims=keep),
    "reduce_prod": lambda x, axes, keep: x.prod(axes, keepdims=keep),
    "reduce_sum": lambda x, axes, keep: x.sum(axes, keepdims=keep),
    "reduce_sum_square": lambda x, axes, keep: (x * x).sum(axes, keepdims=keep),
}


def _reduction(function: Callable[[Array, tuple[int, ...] | None, bool], Array]) -> Callable[..., Array]:
    def reduced(*, x: Array, axes: Array | None = None, keep_dims: Array | None = None) -> Array:
        keep = keep_dims is not None and bool(keep_dims)
        return np.asarray(function(x, None if axes is None else numbers(axes), keep))

    return reduced


for _name, _function in _REDUCED.items():
    reductions.add(_name, _reduction(_function))


def _choice(choose: Callable[[Array, int], Array]) -> Callable[..., Array]:
    def chosen(
        *, x: Array, axis: Array | None = None, keep_dims: Array | None = None, output_dtype: Array | None = None
    ) -> Array:
        at = -1 if axis is None else int(axis)
        places = np.asarray(choose(x, at)).astype(np.int32)
        return np.expand_dims(places, at) if keep_dims is not None and bool(keep_dims) else places

    return chosen


reductions.add("reduce_argmax", _choice(np.argmax))
reductions.add("reduce_argmin", _choice(np.argmin))


@reductions.computes("cumsum")
def _cumsum(
    *, x: Array, axis: Array | None = None, exclusive: Array | None = None, reverse: Array | None = None
) -> Array:
    at = 0 if axis is None else int(axis)
    values = np.flip(x, at) if reverse is not None and bool(reverse) else x
    total = np.cumsum(values, at, dtype=x.dtype)
    if exclusive is not None and bool(exclusive):
        total = total - values
    return np.flip(total, at) if reverse is not None and bool(reverse) else total

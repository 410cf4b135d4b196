"""Pooling over one to three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.forms.window_nodes import average, average_11, maximum
from convertkit.targets.forms.windows import Pool
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.handlers.convolutions import one_image, spread
from convertkit.targets.ncnn.handlers.reductions import reduced
from convertkit.targets.ncnn.layers import Parameter
from convertkit.targets.ncnn.tensor import Tensor

pooling = Registry()

_KINDS = {1: "Pooling1D", 2: "Pooling", 3: "Pooling3D"}
_MAX, _AVERAGE = 0, 1
_KERNEL, _STRIDE, _BEFORE, _AFTER = (1, 11, 21), (2, 12, 22), (3, 13, 23), (14, 15, 16)
_STATED = {5: 1}
"""The padding is what is stated, and no window begins that does not fit."""


def _pooled(b: Builder, x: Tensor, kind: int, pool: Pool) -> Tensor:
    """What ``ceil_mode`` adds is padding, which neither a maximum nor a mean without padding counts."""
    rank = len(pool.kernel)
    one_image(x, rank)
    window = pool.window(x.shape[2:])
    if pool.count_include_pad and window != pool.stated_window(x.shape[2:]):
        raise Unsupported("ceil_mode with count_include_pad: ncnn counts what is added, too")
    before, after = ([pad[end] for pad in window.pads] for end in (0, 1))
    groups: Sequence[tuple[tuple[int, ...], Sequence[int]]] = (
        (_KERNEL, window.kernel), (_STRIDE, window.strides), (_BEFORE, before), (_AFTER, after),
    )  # fmt: skip
    places: dict[int, Parameter] = {key: each for keys, values in groups for key, each in spread(keys, values).items()}
    parameters: dict[int, Parameter] = {0: kind, 6: int(pool.count_include_pad), **_STATED, **places}
    return b.layer(_KINDS[rank], [b.plain(x)], (*x.shape[:2], *window.counts(x.shape[2:])), None, parameters)


def _undilated(kind: int) -> Callable[[Builder, Tensor, Pool], Tensor]:
    def handler(b: Builder, x: Tensor, pool: Pool) -> Tensor:
        if any(each != 1 for each in pool.stated.dilations or ()):
            raise Unsupported("dilations: ncnn's Pooling has none")
        return _pooled(b, x, kind, pool)

    return handler


pooling.lowers("MaxPool", since=(11, 12, 22))(maximum(_undilated(_MAX)))
pooling.lowers("AveragePool", since=11)(average_11(_undilated(_AVERAGE)))
pooling.lowers("AveragePool", since=(19, 22))(average(_undilated(_AVERAGE)))


def _whole(kind: int, reduction: str) -> Handler:
    def handler(b: Builder, x: Tensor) -> Tensor:
        """The layer's own form for pictures, whose result is a blob of one dimension."""
        shape = (*x.shape[:2], *[1] * (x.rank - 2))
        if x.rank == 4 and x.shape[0] == 1:
            return b.layer("Pooling", [b.plain(x)], shape, (x.shape[1],), {0: kind, 4: 1})
        return reduced(b, x, reduction, tuple(range(2, x.rank)), keepdims=True)

    return handler


pooling.lowers("GlobalMaxPool", since=(1, 22))(_whole(_MAX, "ReduceMax"))
pooling.lowers("GlobalAveragePool", since=(1, 22))(_whole(_AVERAGE, "ReduceMean"))

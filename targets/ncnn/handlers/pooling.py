"""Pooling over one to three spatial axes."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.forms.windows import grown, ones, pads_of
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


def _pooled(
    b: Builder,
    x: Tensor,
    kind: int,
    kernel: tuple[int, ...],
    strides: tuple[int, ...] | None,
    pads: tuple[int, ...] | None,
    auto_pad: str,
    ceil_mode: int,
    count_include_pad: int = 0,
) -> Tensor:
    """What ``ceil_mode`` adds is padding, which neither a maximum nor a mean without padding counts."""
    rank = len(kernel)
    one_image(x, rank)
    steps, gaps = ones(strides, rank), (1,) * rank
    border = pads_of(x.shape[2:], kernel, steps, gaps, pads, auto_pad)
    if ceil_mode:
        whole = grown(x.shape[2:], kernel, steps, gaps, border)
        if count_include_pad and whole != border:
            raise Unsupported("ceil_mode with count_include_pad: ncnn counts what is added, too")
        border = whole
    reach = zip(x.shape[2:], border, kernel, steps, strict=True)
    space = [(size + sum(pad) - width) // step + 1 for size, pad, width, step in reach]
    before, after = ([pad[end] for pad in border] for end in (0, 1))
    groups: Sequence[tuple[tuple[int, ...], Sequence[int]]] = (
        (_KERNEL, kernel), (_STRIDE, steps), (_BEFORE, before), (_AFTER, after),
    )  # fmt: skip
    window: dict[int, Parameter] = {key: each for keys, values in groups for key, each in spread(keys, values).items()}
    parameters: dict[int, Parameter] = {0: kind, 6: count_include_pad, **_STATED, **window}
    return b.layer(_KINDS[rank], [b.plain(x)], (*x.shape[:2], *space), None, parameters)


@pooling.lowers("MaxPool", since=(11, 12, 22))
def max_pool(
    b: Builder,
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    storage_order: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """``storage_order`` is of the indices alone, which ncnn does not give."""
    if any(each != 1 for each in dilations or ()):
        raise Unsupported("dilations: ncnn's Pooling has none")
    return _pooled(b, x, _MAX, kernel_shape, strides, pads, auto_pad, ceil_mode)


@pooling.lowers("AveragePool", since=(11,))
def average_pool_11(
    b: Builder,
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    return _pooled(b, x, _AVERAGE, kernel_shape, strides, pads, auto_pad, ceil_mode, count_include_pad)


@pooling.lowers("AveragePool", since=(19, 22))
def average_pool(
    b: Builder,
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: tuple[int, ...] | None = None,
    kernel_shape: tuple[int, ...],
    pads: tuple[int, ...] | None = None,
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    if any(each != 1 for each in dilations or ()):
        raise Unsupported("dilations: ncnn's Pooling has none")
    return _pooled(b, x, _AVERAGE, kernel_shape, strides, pads, auto_pad, ceil_mode, count_include_pad)


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

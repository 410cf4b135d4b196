"""Views by strides of values that do not lie in memory in row-major order.

``aten::as_strided`` counts elements of memory.  ONNX has values without memory, and torch's exporter counts their
elements in row-major order, which gives other elements where a value is a transposed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from convertkit.errors import Unsupported

_AS_STRIDED = torch.ops.aten.as_strided.default


def as_strided(x: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Any:
    """``aten::as_strided`` by the value's axes in the order of memory; ``stride`` and ``storage_offset`` in elements.

    Raises ``Unsupported`` where memory between or outside of the value's own elements may be read.
    """
    first = x.storage_offset()
    if _is_row_major(x) and first == 0:
        return NotImplemented
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    laid_out = x.permute(order)
    if not _is_row_major(laid_out):
        raise Unsupported("as_strided of a slice: it reads memory that is not the slice's; expected all of a tensor")
    start = 0 if storage_offset is None else storage_offset - first
    last = start + reduce(lambda total, axis: total + (size[axis] - 1) * stride[axis], range(len(size)), 0)
    if start < 0 or last >= x.numel():
        raise Unsupported("as_strided reads memory outside of its argument; expected all of a tensor")
    return _AS_STRIDED(laid_out.clone(memory_format=torch.contiguous_format), size, stride, start)


def is_strided_otherwise(node: Any) -> bool:
    """Whether a node's argument does not lie in memory in row-major order, from the start."""
    value = node.args[0].meta["val"]
    return not (_is_row_major(value) and value.storage_offset() == 0)


def _is_row_major(x: Tensor) -> bool:
    return bool(x.is_contiguous())


def squeezed(x: Tensor, dims: Sequence[int]) -> Tensor:
    """``aten::squeeze.dims``, axis by axis; those of another size than one stay, which is no view of torch's own."""
    for axis in sorted((each % x.ndim for each in dims if x.ndim), reverse=True):
        if isinstance(x.shape[axis], int) and x.shape[axis] == 1:
            x = torch.ops.aten.squeeze.dim(x, axis)
    return x.clone()


def squeezed_one(x: Tensor, dim: int) -> Tensor:
    """``aten::squeeze.dim``: an axis that is larger than one stays."""
    if not x.ndim or not isinstance(x.shape[dim], int) or x.shape[dim] != 1:
        return x.clone()
    return x.reshape([size for axis, size in enumerate(x.shape) if axis != dim % x.ndim])


def keeps_its_axis(node: Any) -> bool:
    """Whether the axis that a node squeezes is larger than one."""
    x = node.args[0].meta["val"]
    return x.ndim > 0 and isinstance(x.shape[node.args[1]], int) and x.shape[node.args[1]] != 1


def keeps_an_axis(node: Any) -> bool:
    """Whether one of the axes that a node squeezes is larger than one, or of free size."""
    x = node.args[0].meta["val"]
    return x.ndim > 0 and any(not isinstance(x.shape[axis], int) or x.shape[axis] != 1 for axis in node.args[1])

"""Operators along an axis, of tensors without axes: torch takes those as one of a single element, ONNX does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.compat.trees import with_tensors

_ATEN = torch.ops.aten


def is_rankless(node: Any) -> bool:
    """Whether the first operand has no axes."""
    return int(node.args[0].meta["val"].dim()) == 0


def _lifted(overload: Any) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        if args[0].dim():
            return NotImplemented
        given, named = with_tensors(lambda x: x.reshape(1), (args, kwargs))
        return with_tensors(lambda x: x.reshape(()), overload(*given, **named))

    return function


def nonzero(x: Tensor) -> Any:
    """``aten::nonzero``: a place without axes has no coordinates."""
    return NotImplemented if x.dim() else _ATEN.nonzero.default(x.reshape(1)).narrow(1, 0, 0)


def argwhere(x: Tensor) -> Any:
    """``aten::argwhere``, the same."""
    return nonzero(x)


_AXIS = (
    _ATEN.topk.default,
    _ATEN.kthvalue.default,
    _ATEN.median.dim,
    _ATEN.nanmedian.dim,
    _ATEN.mode.default,
    _ATEN.prod.dim_int,
    _ATEN.linalg_vector_norm.default,
    _ATEN.scatter.src,
    _ATEN.scatter.value,
    _ATEN.scatter.reduce,
    _ATEN.scatter.value_reduce,
    _ATEN.scatter_add.default,
)
RANKLESS: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **{overload: _lifted(overload) for overload in _AXIS},
        _ATEN.nonzero.default: nonzero,
        _ATEN.argwhere.default: argwhere,
    }
)
"""By overload; :func:`is_rankless` tells where they are needed."""

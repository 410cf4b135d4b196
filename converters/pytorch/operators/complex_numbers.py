"""Complex arithmetic on real and imaginary parts, for what torch's ONNX exporter lacks of it.

Each function stands for an operator and returns ``NotImplemented`` where no operand is complex.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from convertkit.converters.pytorch.operators import complex_functions as functions
from convertkit.converters.pytorch.operators import missing_ops
from convertkit.converters.pytorch.operators.complex_parts import is_complex, joined, linear, part, product

_ATEN = torch.ops.aten


def _times(x: Any, y: Any) -> Any:
    return product(torch.mul, x, y)


def _matrix_product(x: Tensor, y: Tensor) -> Any:
    return product(torch.matmul, x, y)


def _einsum(equation: str, operands: Sequence[Tensor], *, path: Any = None) -> Any:
    """The sum of the products of all choices of parts, each with its power of i."""
    if not is_complex(operands):
        return NotImplemented
    sums: list[Any] = [None, None]
    for choice in itertools.product(*([0, 1] if is_complex(each) else [0] for each in operands)):
        turns = sum(choice)
        term = torch.einsum(equation, [part(each, place) for each, place in zip(operands, choice, strict=True)])
        term = -term if turns % 4 > 1 else term
        before = sums[turns % 2]
        sums[turns % 2] = term if before is None else before + term
    return joined(*sums)


def _addcmul(z: Tensor, x: Tensor, y: Tensor, *, value: float = 1) -> Any:
    return z + value * (x * y) if is_complex((z, x, y)) else NotImplemented


def _addcdiv(z: Tensor, x: Tensor, y: Tensor, *, value: float = 1) -> Any:
    return z + value * (x / y) if is_complex((z, x, y)) else NotImplemented


def _addmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Any:
    if not is_complex((bias, x, y)):
        return NotImplemented
    return (x @ y) * alpha + bias * beta


def _linear_layer(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not is_complex((x, weight)):
        return NotImplemented
    y = x @ weight.transpose(-2, -1)
    return y if bias is None else y + bias


def _same(x: Any, y: Any) -> Any:
    if not is_complex((x, y)):
        return NotImplemented
    return (part(x, 0) == part(y, 0)) & (part(x, 1) == part(y, 1))


def _either(test: Callable[[Tensor], Tensor], z: Tensor) -> Any:
    return test(part(z, 0)) | test(part(z, 1)) if z.is_complex() else NotImplemented


def _norm(z: Tensor, *rest: Any, **options: Any) -> Any:
    return torch.linalg.vector_norm(z.abs(), *rest, **options) if z.is_complex() else NotImplemented


def _copy(z: Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    """To another type: a real tensor becomes complex, a complex one keeps its parts."""
    if dtype is None or not (dtype.is_complex or z.is_complex()):
        return NotImplemented
    if not dtype.is_complex:
        return part(z, 0).to(dtype)
    return joined(*(part(z, place).to(dtype.to_real()) for place in (0, 1)))


def _filled(size: Any, value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    if not (dtype.is_complex if dtype is not None else is_complex(value)):
        return NotImplemented
    kind = (dtype or torch.complex64).to_real()
    return joined(*(torch.full(size, part(value, place), dtype=kind) for place in (0, 1)))


def _all(number: float, size: Any, **options: Any) -> Any:
    return _filled(size, number, **options) if options.get("dtype") is not None else NotImplemented


def makes_some(program: Any) -> bool:
    """Whether an exported program fills complex tensors with a number, of which the exporter makes real ones."""
    fillers = {_ATEN.full.default, _ATEN.zeros.default, _ATEN.ones.default, _ATEN.empty.memory_format}
    return any(node.target in fillers and node.meta["val"].is_complex() for node in program.graph.nodes)


def _filled_like(z: Tensor, value: Any, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    return _filled(list(z.shape), value, dtype=dtype or z.dtype)


def _all_like(number: float, z: Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Any:
    return _filled_like(z, number, dtype=dtype)


def _conjugated(z: Tensor) -> Any:
    return joined(part(z, 0), -part(z, 1)) if z.is_complex() else NotImplemented


_LINEAR: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "alias.default": (0,), "as_strided.default": (0,), "cat.default": (0,), "clone.default": (0,),
        "constant_pad_nd.default": (0, 2), "copy.default": (0, 1), "cumsum.default": (0,), "diagonal.default": (0,),
        "gather.default": (0,), "index_add.default": (0, 3),
        "index_put.default": (0, 2), "index_select.default": (0,), "lift_fresh_copy.default": (0,),
        "masked_fill.Scalar": (0, 2), "masked_fill.Tensor": (0, 2), "pad.default": (0, 3), "repeat.default": (0,),
        "repeat_interleave.self_int": (0,), "fill.Scalar": (0, 1), "fill.Tensor": (0, 1), "scatter.src": (0, 3),
        "scatter_add.default": (0, 3), "select_scatter.default": (0, 1),
        "slice_scatter.default": (0, 1), "split.Tensor": (0,), "split_with_sizes.default": (0,), "squeeze.dims": (0,),
        "squeeze.default": (0,), "tril.default": (0,), "triu.default": (0,), "unbind.int": (0,),
        "unfold.default": (0,), "where.self": (1, 2), "where.ScalarSelf": (1, 2),
        "where.ScalarOther": (1, 2),
    }
)  # fmt: skip
"""Which operands of these hold numbers."""


def _overload(name: str) -> Any:
    operator, _, overload = name.partition(".")
    return getattr(getattr(_ATEN, operator), overload)


COMPLEX: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        **{_overload(name): partial(linear, _overload(name), values) for name, values in _LINEAR.items()},
        _ATEN.unsqueeze.default: missing_ops.unsqueeze,
        _ATEN.expand.default: missing_ops.expand,
        _ATEN.select.int: missing_ops.select,
        _ATEN.index.Tensor: missing_ops.index,
        _ATEN.einsum.default: _einsum,
        _ATEN.addcmul.default: _addcmul,
        _ATEN.addcdiv.default: _addcdiv,
        _ATEN.tanh.default: functions.tanh,
        _ATEN.linear.default: _linear_layer,
        _ATEN.mul.Tensor: _times,
        _ATEN.mul.Scalar: _times,
        _ATEN.mm.default: _matrix_product,
        _ATEN.bmm.default: _matrix_product,
        _ATEN.mv.default: _matrix_product,
        _ATEN.dot.default: _matrix_product,
        _ATEN.matmul.default: _matrix_product,
        _ATEN.addmm.default: _addmm,
        _ATEN.div.Tensor: functions.over,
        _ATEN.div.Scalar: functions.over,
        _ATEN.reciprocal.default: functions.reciprocal,
        _ATEN.exp.default: missing_ops.exp,
        _ATEN.log.default: functions.log,
        _ATEN.sqrt.default: functions.sqrt,
        _ATEN.pow.Tensor_Scalar: functions.power,
        _ATEN.pow.Tensor_Tensor: functions.power,
        _ATEN.pow.Scalar: functions.power,
        _ATEN.cos.default: functions.cos,
        _ATEN.sin.default: functions.sin,
        _ATEN.sgn.default: functions.sgn,
        _ATEN.eq.Tensor: _same,
        _ATEN.eq.Scalar: _same,
        _ATEN.isnan.default: partial(_either, torch.isnan),
        _ATEN.isinf.default: partial(_either, torch.isinf),
        _ATEN.linalg_vector_norm.default: _norm,
        torch.ops.aten._to_copy.default: _copy,
        torch.ops.aten._conj.default: _conjugated,
        torch.ops.aten._conj_physical.default: _conjugated,
        _ATEN.conj_physical.default: _conjugated,
        _ATEN.full.default: _filled,
        _ATEN.full_like.default: _filled_like,
        _ATEN.zeros.default: partial(_all, 0.0),
        _ATEN.empty.memory_format: partial(_all, 0.0),
        _ATEN.ones.default: partial(_all, 1.0),
        _ATEN.zeros_like.default: partial(_all_like, 0.0),
        _ATEN.ones_like.default: partial(_all_like, 1.0),
        _ATEN.polar.default: missing_ops.polar,
        _ATEN.complex.default: joined,
    }
)
"""By overload; those that no complex operand meets stand aside."""

"""TorchScript's operators on lists, dicts, strings and shapes, done in Python whatever they are given.

torch.export sees none of them: sizes stay symbolic, lists and tuples vanish.  Signatures follow
torch/csrc/jit/runtime/register_prim_ops.cpp; a value where TorchScript has an int may be a
``SymInt`` here, and a bool the 0-d tensor that will hold it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from convertkit.converters.pytorch.routes.numbers import broadcast, greatest, least, range_length

# torch/headeronly/core/ScalarType.h, c10/core/MemoryFormat.h: TorchScript passes these as ints.
DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64),
    *(torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.qint8, torch.quint8, torch.qint32),
    torch.bfloat16,
)
MEMORY_FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


def _not(value: Any) -> Any:
    return torch.logical_not(value) if isinstance(value, torch.Tensor) else not value


def _bool(value: Any) -> Any:
    """A tensor's truth stays a tensor: what depends on it becomes a branch of the graph."""
    if isinstance(value, torch.Tensor):
        return value.reshape(()).to(torch.bool)
    return bool(value)


def _int(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.reshape(()).to(torch.int64).item()
    return value if isinstance(value, torch.SymInt) else int(value)


def _float(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.reshape(()).to(torch.float64).item()
    return torch.sym_float(value)


def _implicit(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _size(tensor: Any, dim: int | None = None) -> Any:
    if not isinstance(tensor, torch.Tensor):  # a number that a trace holds as a tensor
        return []
    return list(tensor.shape) if dim is None else tensor.shape[dim]


def _length(value: Any) -> Any:
    return value.shape[0] if isinstance(value, torch.Tensor) else len(value)


def _append(items: list[Any], value: Any) -> list[Any]:
    items.append(value)
    return items


def _extend(items: list[Any], more: list[Any]) -> None:
    items.extend(more)


def _set_item(items: Any, key: Any, value: Any) -> Any:
    items[key] = value
    return items


def _pop(items: Any, *key: Any) -> Any:
    return items.pop(*key)


def _get(items: Mapping[Any, Any], key: Any, default: Any = None) -> Any:
    return items.get(key, default)


def _contains(items: Any, key: Any) -> bool:
    return key in items


def _derive_index(index: Any, start: Any, step: Any) -> Any:
    return start + index * step


def _text(*parts: Any) -> str:
    return " ".join("…" if isinstance(part, torch.Tensor) else str(part) for part in parts)


def _nothing(*_: Any) -> None:
    return None


def _no(*_: Any) -> bool:
    return False


def _yes(*_: Any) -> bool:
    """Gradient mode and ``requires_grad``: with both on, modules take their plain path, not the fused one."""
    return True


def _tensor(data: Any, dtype: int | None = None, device: Any = None, requires_grad: bool = False) -> Any:
    kind = None if dtype is None else DTYPES[dtype]
    if isinstance(data, torch.Tensor):
        return data if kind is None else data.to(kind)
    if isinstance(data, torch.SymInt | torch.SymFloat):
        return torch.scalar_tensor(
            data, dtype=kind or (torch.int64 if isinstance(data, torch.SymInt) else torch.float32)
        )
    if isinstance(data, list) and any(isinstance(item, torch.Tensor | torch.SymInt) for item in data):
        return torch.stack([_tensor(item, dtype) for item in data])
    return torch.tensor(data, dtype=kind)


def _as_number(value: Any) -> Any:
    return value


ALWAYS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "aten::Bool": _bool,
        "aten::Int": _int,
        "aten::Float": _float,
        "aten::IntImplicit": _int,
        "aten::FloatImplicit": _float,
        "aten::ScalarImplicit": _implicit,
        "aten::item": _implicit,
        "aten::__not__": _not,
        "aten::__is__": operator.is_,
        "aten::__isnot__": operator.is_not,
        "aten::size": _size,
        "aten::dim": lambda tensor: tensor.dim() if isinstance(tensor, torch.Tensor) else 0,
        "aten::len": _length,
        "aten::numel": lambda tensor: tensor.numel() if isinstance(tensor, torch.Tensor) else 1,
        "aten::append": _append,
        "aten::extend": _extend,
        "aten::insert": lambda items, place, value: items.insert(place, value),
        "aten::pop": _pop,
        "aten::clear": lambda items: items.clear(),
        "aten::reverse": lambda items: items.reverse(),
        "aten::_set_item": _set_item,
        "aten::__getitem__": operator.getitem,
        "aten::__contains__": _contains,
        "aten::get": _get,
        "aten::keys": list,
        "aten::values": lambda items: list(items.values()),
        "aten::items": lambda items: list(items.items()),
        "aten::list": list,
        "aten::dict": dict,
        "aten::Delete": lambda items, key: items.pop(key),
        "aten::popitem": lambda items: items.popitem(),
        "aten::setdefault": lambda items, key, value: items.setdefault(key, value),
        "aten::update": lambda items, more: items.update(more),
        "aten::format": _text,
        "aten::percentFormat": _text,
        "aten::warn": _nothing,
        "prim::Print": _nothing,
        "prim::Uninitialized": _nothing,
        "prim::unchecked_cast": _as_number,
        "prim::unchecked_unwrap_optional": _as_number,
        "prim::IfThenElse": lambda condition, then, otherwise: then if condition else otherwise,
        "prim::StringIndex": operator.getitem,
        "prim::rangelist": lambda count: list(range(count)),
        "aten::Size": list,
        "aten::Complex": complex,
        "aten::_infer_size": broadcast,
        "aten::broadcast_shapes": broadcast,
        "aten::promote_types": lambda a, b: DTYPES.index(torch.promote_types(DTYPES[a], DTYPES[b])),
        "aten::can_cast": lambda a, b: torch.can_cast(DTYPES[a], DTYPES[b]),
        "aten::_get_tracing_state": _no,
        "aten::has_torch_function": _no,
        "aten::set_grad_enabled": _nothing,
        "aten::_assert_scalar": _nothing,
        "aten::sym_constrain_range": _nothing,
        "aten::sym_constrain_range_for_size": _nothing,
        "prim::NumToTensor": _as_number,
        "prim::data": _as_number,
        "aten::detach": _as_number,
        "prim::device": lambda tensor: tensor.device,
        "prim::type": lambda device: device.type,
        "prim::dtype": lambda tensor: DTYPES.index(tensor.dtype),
        "prim::layout": lambda tensor: 0,
        "prim::is_cuda": _no,
        "prim::is_nested": _no,
        "prim::is_quantized": _no,
        "prim::is_sparse": _no,
        "prim::is_mkldnn": _no,
        "prim::is_mps": _no,
        "prim::is_meta": _no,
        "prim::requires_grad": _yes,
        "aten::is_grad_enabled": _yes,
        "aten::is_autocast_enabled": _no,
        "aten::is_autocast_cpu_enabled": _no,
        "aten::is_scripting": _yes,
        "aten::is_floating_point": lambda tensor: tensor.is_floating_point(),
        "aten::is_complex": lambda tensor: tensor.is_complex(),
        "aten::tensor": _tensor,
        "aten::as_tensor": _tensor,
        "aten::__range_length": range_length,
        "aten::__derive_index": _derive_index,
        "prim::min": least,
        "prim::max": greatest,
    }
)
"""Operators that are done here whatever they are given."""

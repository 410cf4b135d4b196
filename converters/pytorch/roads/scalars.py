"""TorchScript's operators on numbers, lists, dicts, strings and shapes, done in Python.

torch.export sees none of them: sizes stay symbolic, lists and tuples vanish.  Signatures follow
torch/csrc/jit/runtime/register_prim_ops.cpp; a value where TorchScript has an int may be a
``SymInt`` here, and a bool the 0-d tensor that will hold it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from convertkit.errors import Unsupported

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


def _size(tensor: torch.Tensor, dim: int | None = None) -> Any:
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


def _list_slice(items: Any, start: int | None, end: int | None, step: int = 1) -> Any:
    return items[start:end:step]


def _divided(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return a // b
    if rounding_mode == "trunc":
        return a // b if (a >= 0) == (b >= 0) else -(-a // b)
    return torch.sym_float(a) / b


def _ceil(value: Any) -> Any:
    return math.ceil(value)


def _range_length(low: Any, high: Any, step: int) -> Any:
    if step == 0:
        raise Unsupported("range() with a step of 0")
    length = (high - low + step - 1) // step if step > 0 else (low - high - step - 1) // -step
    return torch.sym_max(length, 0) if isinstance(length, torch.SymInt) else max(length, 0)


def _derive_index(index: Any, start: Any, step: Any) -> Any:
    return start + index * step


def _least(*values: Any) -> Any:
    items = values[0] if len(values) == 1 else values
    least = items[0]
    for item in items[1:]:
        least = torch.sym_min(least, item)
    return least


def _greatest(*values: Any) -> Any:
    items = values[0] if len(values) == 1 else values
    greatest = items[0]
    for item in items[1:]:
        greatest = torch.sym_max(greatest, item)
    return greatest


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
        "aten::dim": lambda tensor: tensor.dim(),
        "aten::len": _length,
        "aten::numel": lambda tensor: tensor.numel(),
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
        "aten::format": _text,
        "aten::percentFormat": _text,
        "aten::warn": _nothing,
        "prim::Print": _nothing,
        "prim::Uninitialized": _nothing,
        "prim::unchecked_cast": _as_number,
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
        "aten::__range_length": _range_length,
        "aten::__derive_index": _derive_index,
        "prim::min": _least,
        "prim::max": _greatest,
    }
)
"""Operators that are done here whatever they are given."""

NUMERIC: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "aten::add": operator.add,
        "aten::add_": operator.iadd,
        "aten::sub": operator.sub,
        "aten::mul": operator.mul,
        "aten::div": _divided,
        "aten::floordiv": operator.floordiv,
        "aten::floor_divide": operator.floordiv,
        "aten::remainder": operator.mod,
        "aten::fmod": math.fmod,
        "aten::pow": operator.pow,
        "aten::neg": operator.neg,
        "aten::abs": abs,
        "aten::floor": math.floor,
        "aten::ceil": _ceil,
        "aten::round": round,
        "aten::sqrt": math.sqrt,
        "aten::log": math.log,
        "aten::exp": math.exp,
        "aten::eq": operator.eq,
        "aten::ne": operator.ne,
        "aten::lt": operator.lt,
        "aten::le": operator.le,
        "aten::gt": operator.gt,
        "aten::ge": operator.ge,
        "aten::__and__": lambda a, b: a and b,
        "aten::__or__": lambda a, b: a or b,
        "aten::__xor__": operator.xor,
        "aten::slice": _list_slice,
        "aten::copy": list,
        "aten::sum": sum,
        "aten::any": any,
        "aten::all": all,
        "aten::str": str,
        "aten::type_as": lambda value, other: value,
        "aten::to": lambda value, *_: value,
        "aten::contiguous": lambda value, *_: value,
    }
)
"""Operators that are done here where no tensor is involved: on sizes, lists and texts."""

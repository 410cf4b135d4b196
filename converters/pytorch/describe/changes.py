"""Which attributes a call changes where no input can stand for them: names for a refusal."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from convertkit.converters.pytorch.compat import modules

_DEEPEST = 4
_PLAIN = (str, bytes, int, float, complex, type(None))
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)


def changed_attributes(module: Any, run: Callable[[], object]) -> tuple[str, ...]:
    """Attributes of the module, its parts and their classes that hold something else after a call, with their types."""
    before = dict(_attributes(module))
    run()
    after = dict(_attributes(module))
    names = [name for name, (kind, marks) in after.items() if before.get(name, (kind, None))[1] != marks]
    return tuple(f"{name!r} ({after[name][0]})" for name in names)


def _attributes(module: Any) -> Iterator[tuple[str, tuple[str, object]]]:
    for prefix, each in module.named_modules():
        own = modules.attributes(each)
        for name, value in own.items():
            if name not in modules.OWN:
                yield ".".join(filter(None, (prefix, name))), (type(value).__name__, _mark(value, 0))
        for kind in type(each).__mro__:
            if kind is torch.nn.Module:
                break
            for name, value in vars(kind).items():
                if not name.startswith("__") and not callable(value) and name not in own:
                    yield f"{kind.__name__}.{name}", (type(value).__name__, _mark(value, 0))


def _mark(value: object, depth: int) -> object:
    """Something that is equal as long as what the value holds is."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        return (tuple(value.shape), str(value.dtype), _bytes(value))
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    if depth == _DEEPEST or isinstance(value, (torch.nn.Module, *_CODE)):
        return type(value).__name__
    if isinstance(value, Mapping):
        return tuple((_mark(key, depth + 1), _mark(item, depth + 1)) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return tuple(_mark(item, depth + 1) for item in value)
    own = vars(value) if hasattr(value, "__dict__") else {}
    return tuple((name, _mark(item, depth + 1)) for name, item in own.items())


def _bytes(value: torch.Tensor) -> bytes:
    return bytes(value.detach().cpu().resolve_conj().contiguous().flatten().view(torch.uint8).numpy())

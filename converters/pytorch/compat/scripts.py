"""TorchScript: graphs with what they call put in, methods, schemas (``torch._C``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch


def inlined(graph: Any) -> Any:
    """A copy of a graph in which every call of a method or function is replaced by what that does."""
    copy = graph.copy()
    torch._C._jit_pass_inline(copy)
    return copy


def method_graphs(module: Any) -> Iterator[Any]:
    """The graph of every method of a scripted or traced module, without those of its parts."""
    return (module._c._get_method(name).graph for name in module._c._method_names())


def set_devices(module: Any, names: Iterable[str], device: torch.device) -> None:
    """Let those attributes of a scripted module, none of its parts, that are devices be this one."""
    for name in names:
        if module._c.hasattr(name) and isinstance(module._c.getattr(name), torch.device):
            module._c.setattr(name, device)


def schema_of(node: Any) -> Any:
    """The schema of the operator that a node calls, with ``overload_name``; None for operators on Python's values."""
    text = node.schema()
    return None if text == "(no schema)" else torch._C.parse_schema(text)


def is_object(value: Any) -> bool:
    """Whether a value is an instance of a scripted class or module."""
    return isinstance(value, torch.ScriptObject | torch._C.ScriptModule)

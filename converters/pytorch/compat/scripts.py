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


_OPERANDS = {"aten::add": 3, "aten::sub": 3, "aten::mul": 2, "aten::div": 2}
"""Operators on two tensors, and how many inputs they have."""


def numbers_of_traces(graph: Any) -> None:
    """Python's floats beside tensors as the floats that they were, in place.

    A trace holds them as float64 tensors.  What executes it by default makes floats of them again (CanonicalizeOps of
    torch's JIT), so that a mask of bools times 10.0 is float32 as it was in Python; without that it is float64.
    """
    for node in _all_nodes(graph):
        inputs = list(node.inputs())
        if len(inputs) == _OPERANDS.get(node.kind()) and _is_float_constant(inputs[1]):
            number = graph.insertConstant(inputs[1].toIValue().item())
            number.node().moveBefore(node)
            node.replaceInput(1, number)


def _all_nodes(block: Any) -> list[Any]:
    return [each for node in block.nodes() for each in (node, *(x for b in node.blocks() for x in _all_nodes(b)))]


def _is_float_constant(value: Any) -> bool:
    held = value.toIValue() if value.node().kind() == "prim::Constant" else None
    return isinstance(held, torch.Tensor) and held.dim() == 0 and held.dtype == torch.float64


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

"""Overloads of operators, as ``torch.ops`` holds them and exported programs call them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _python_dispatch

TorchDispatchMode: Any = _python_dispatch.TorchDispatchMode
"""A context whose ``__torch_dispatch__`` sees every operator that runs."""


def is_overload(target: Any) -> bool:
    """Whether a node of a program calls an operator, not a function of Python."""
    return isinstance(target, torch._ops.OpOverload)


def name_of(overload: Any) -> str:
    """``aten::dropout``."""
    return str(overload._schema.name)


def arguments_of(overload: Any) -> Sequence[Any]:
    """Each with ``name``, ``type``, ``kwarg_only`` and, where it has one, ``default_value``."""
    arguments: Sequence[Any] = overload._schema.arguments
    return arguments


def changes_an_argument(overload: Any) -> bool:
    """Whether the operator works in place."""
    return bool(overload._schema.is_mutable)


def returns_a_view(overload: Any) -> bool:
    """Whether the first result shares its memory with an argument."""
    returned = overload._schema.returns
    return bool(returned) and returned[0].alias_info is not None


def without_writing(target: Any) -> Any:
    """The overload that a program without operators in place has: that of ``aten::clamp`` for ``aten::clamp_``.

    ``aten::floor_divide_.Tensor`` becomes ``aten::floor_divide``, which has no overload of that name.
    """
    if not is_overload(target) or not changes_an_argument(target):
        return target
    namespace, _, name = name_of(target).partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    return getattr(packet, target._overloadname, None) or getattr(packet, "default", target)

"""The call of a TorchScript node's operator: its overload, and the arguments as that takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from convertkit.converters.pytorch.compat import overloads, scripts
from convertkit.converters.pytorch.routes.numbers import NUMERIC, cast
from convertkit.converters.pytorch.routes.scalars import DTYPES, MEMORY_FORMATS
from convertkit.errors import Unsupported


def operator_of(node: Any) -> Any:
    """The ``torch.ops`` overload that a node calls; ``Unsupported`` where it is not registered here."""
    namespace, _, name = node.kind().partition("::")
    schema = scripts.schema_of(node)
    if schema is None:
        raise Unsupported(f"{node.kind()} is not a registered operator in this torch version")
    try:
        packet = getattr(getattr(torch.ops, namespace), name)
        return getattr(packet, schema.overload_name or "default")
    except AttributeError as error:
        raise Unsupported(f"{node.kind()} is not a registered operator in this torch version") from error


def bound(operator: Any, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as the overload takes them: dtypes for TorchScript's ints, tensors for numbers, keywords apart."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for argument, value in zip(overloads.arguments_of(operator), args, strict=True):
        converted = _converted(argument, value)
        if argument.kwarg_only:
            keywords[argument.name] = converted
        else:
            positional.append(converted)
    return positional, keywords


def _converted(argument: Any, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if argument.name == "dtype":
            return DTYPES[value]
        if argument.name == "memory_format":
            return MEMORY_FORMATS[value]
        if argument.name == "layout":
            return torch.strided
    kind = str(argument.type)
    if kind in ("Tensor", "Optional[Tensor]") and isinstance(value, int | float | torch.SymInt | torch.SymFloat):
        return as_tensor(value)
    if kind in ("int", "Optional[int]") and isinstance(value, torch.Tensor):
        return value.item()
    if kind == "List[int]" and isinstance(value, list | tuple):
        return [item.item() if isinstance(item, torch.Tensor) else item for item in value]
    if kind in ("List[Tensor]", "List[Optional[Tensor]]") and isinstance(value, list | tuple):
        return [as_tensor(item) if isinstance(item, int | float | torch.SymInt) else item for item in value]
    return value


def as_tensor(value: Any) -> Any:
    """A number as a tensor without dimensions, of the type that TorchScript gives it; tensors and None as they are."""
    if isinstance(value, torch.Tensor) or value is None:
        return value
    if isinstance(value, bool):
        return torch.tensor(value)
    kind = torch.float32 if isinstance(value, float | torch.SymFloat) else torch.int64
    return torch.scalar_tensor(value, dtype=kind)


def holds_tensor(value: Any) -> bool:
    """Whether a value is a tensor, or a list, tuple or dict that holds one."""
    if isinstance(value, dict):
        return any(holds_tensor(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(holds_tensor(item) for item in value)
    return isinstance(value, torch.Tensor)


def cast_number(operator: Any, args: Sequence[Any]) -> Any:
    """``aten::to`` of a number: its type alone can change."""
    given = dict(zip((each.name for each in overloads.arguments_of(operator)), args, strict=False))
    dtype, other = given.get("dtype"), given.get("other")
    if dtype is None:
        return args[0] if other is None else NUMERIC["aten::type_as"](args[0], other)
    return cast(args[0], DTYPES[dtype])

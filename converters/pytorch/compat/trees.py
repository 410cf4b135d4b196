"""Values in nested containers (``torch.utils._pytree``), as exported programs describe their arguments."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.utils import _pytree


def leaves(value: Any) -> list[Any]:
    """What lies in the containers, in order."""
    return list(_pytree.tree_leaves(value))


def leaves_of_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterable[Any]:
    """Those of positional arguments, then those of keywords."""
    return list(_pytree.arg_tree_leaves(*args, **kwargs))


def mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """The same containers, everything in them changed."""
    return _pytree.tree_map(change, value)


def with_tensors(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """The same containers, every tensor in them changed."""
    return _pytree.tree_map_only(torch.Tensor, change, value)


def unflattened(flat: list[Any], spec: Any) -> Any:
    """The value of which ``flat`` are the leaves; ``spec`` is a program's ``in_spec`` or ``out_spec``."""
    return _pytree.tree_unflatten(flat, spec)


def known_classes() -> Mapping[str, type]:
    """Classes of containers that can be read from a file, by the names under which files have them."""
    names: Mapping[str, type] = _pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE
    return names


def register(kind: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any], name: str) -> None:
    """Make a class of containers known under the ``name`` that files have for it."""
    _pytree.register_pytree_node(kind, flatten, unflatten, serialized_type_name=name)


NAMED_TUPLE = "collections.namedtuple"
"""What files call the type of every named tuple; its class is their context."""


def register_named_tuple(name: str, count: int) -> None:
    """Make a named tuple of so many fields known under its ``name`` in files, which hold no names of fields."""
    kind = namedtuple("Held", [str(place) for place in range(count)], rename=True)  # type: ignore[misc]
    _pytree._register_namedtuple(kind, serialized_type_name=name)

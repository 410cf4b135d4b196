"""What a model came with as its example inputs: shapes, dtypes and ranges, in the structure of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from convertkit.artifact import Array, Dim
from convertkit.converters.pytorch.model.leaves import Kind
from convertkit.converters.pytorch.model.leaves import Path as Way

_MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True)
class ExampleArray:
    """Shape (dynamic dimensions by name) and dtype of one array, and the half-open range of integers where known."""

    shape: tuple[Dim, ...]
    dtype: str
    value_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One array of a parameter, and the way to it through tuples, lists and dicts."""

    array: ExampleArray
    path: Way = ()
    kinds: tuple[Kind, ...] = ()


Example = tuple[Item, ...]
"""What one parameter was called with."""


def flattened(value: object, read: Callable[[object, Way], ExampleArray | None]) -> Example | None:
    """The arrays in a value of nested tuples, lists and dicts; None where ``read`` cannot read one of them."""
    found: list[Item] = []
    waiting: list[tuple[object, Way, tuple[Kind, ...]]] = [(value, (), ())]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return tuple(found)
        each, path, kinds = waiting.pop()
        if isinstance(each, Mapping):
            inner: list[tuple[int | str, object]] = [(str(key), item) for key, item in each.items()]
            kind: Kind = "dict"
        elif isinstance(each, tuple | list):
            inner, kind = list(enumerate(each)), "tuple" if isinstance(each, tuple) else "list"
        else:
            array = read(each, path)
            if array is None:
                return None
            found.append(Item(array, path, kinds))
            continue
        waiting += [(item, (*path, key), (*kinds, kind)) for key, item in reversed(inner)]
    return None  # a pickle of a few bytes may hold one list in another more often than there is time


def integer_range(values: Array) -> tuple[float, float] | None:
    """The half-open range of integers that vary, None where nothing can be said."""
    if values.dtype.kind not in "iu" or values.size == 0 or values.min() == values.max():
        return None
    return float(values.min()), float(values.max()) + 1

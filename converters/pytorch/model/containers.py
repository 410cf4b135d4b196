"""Containers of other packages in an exported program: stood in for, so that the program is read without the package.

A program's file names the class of every container that goes in or comes out, and torch reads it only where that class
is registered as a pytree node.  Results of transformers' models are such classes.  Nothing is imported: the class that
stands in is a mapping from the field names that the file holds.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from convertkit.converters.pytorch.compat import trees


class StandIn(dict[str, Any]):
    """What a container of an unknown class holds, by field."""


def define_unknown(path: str) -> bool:
    """Register a :class:`StandIn`, or a named tuple, for each unknown class of a program; False where there is none."""
    with zipfile.ZipFile(path) as archive:
        contents = [json.loads(archive.read(name)) for name in archive.namelist() if name.endswith(".json")]
    known = trees.known_classes()
    unknown = {name: count for name, count in _classes(contents) if name not in known}
    for name, count in sorted(unknown.items()):
        if count is None:
            _define(name)
        else:
            trees.register_named_tuple(name, count)
    return bool(unknown)


def as_exported(value: Any, spec: Any) -> Any:
    """An argument with mappings in the classes that the program was exported with."""
    if not _stands_in(spec):
        return value
    children = value.values() if isinstance(value, Mapping) else value
    items = [as_exported(each, child) for each, child in zip(children, spec.children(), strict=True)]
    if not isinstance(value, Mapping):
        return type(value)(items)
    kind: type[dict[str, Any]] = spec.type if issubclass(spec.type, StandIn) else dict
    return kind(zip(value, items, strict=True))


def _stands_in(spec: Any) -> bool:
    if spec.is_leaf():
        return False
    return issubclass(spec.type, StandIn) or any(_stands_in(child) for child in spec.children())


def _classes(contents: Sequence[Any]) -> Iterator[tuple[str, int | None]]:
    """The classes in all trees of containers, those of named tuples with how many fields they have.

    Trees lie as JSON in texts of JSON in programs of older versions.
    """
    waiting = [(each, False) for each in contents]
    while waiting:
        value, inside = waiting.pop()
        if isinstance(value, str) and inside and value[:1] in ("[", "{"):
            waiting.append((json.loads(value), True))
        elif isinstance(value, list):
            waiting += [(each, inside) for each in value]
        elif isinstance(value, dict):
            if inside and isinstance(value.get("type"), str) and "children_spec" in value:
                named = value["type"] == trees.NAMED_TUPLE and isinstance(value.get("context"), str)
                yield (value["context"], len(value["children_spec"])) if named else (value["type"], None)
            waiting += [(each, inside or key in ("in_spec", "out_spec")) for key, each in value.items()]


def _define(name: str) -> None:
    def flattened(held: StandIn) -> tuple[list[Any], Any]:
        return list(held.values()), list(held)

    def made(values: Any, context: Any) -> StandIn:
        items = list(values)
        return kind(zip(_fields(context, len(items)), items, strict=True))

    kind: type[StandIn] = type(name.rpartition(".")[2], (StandIn,), {})
    trees.register(kind, flattened, made, name)


def _fields(context: Any, count: int) -> list[str]:
    """Field names out of what a class noted of itself: a list of names, or one of names and of what was None."""
    for names in (context, context[0] if isinstance(context, list) and context else None):
        if isinstance(names, list) and len(names) == count and all(isinstance(each, str) for each in names):
            return names
    return [str(place) for place in range(count)]

"""Operator handlers for TFLite builtins: the signature is the schema.

Positional parameters after the builder are the operator's inputs, keyword-only parameters the
fields of its options table.  ``Registry.reads`` compares the two when the handler's module is
imported, so no option can be forgotten.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from convertkit.converters.tflite import schema

Handler = Callable[..., object]
H = typing.TypeVar("H", bound=Handler)

_PYTHON_TYPE = {"f32": float, "bool": bool, "str": str, "[f32]": tuple[float, ...]}


@dataclass(frozen=True, slots=True)
class Entry:
    """A handler and how to call it.

    ``required`` and ``accepted`` count inputs (``accepted`` None: any number).  ``stored`` handlers
    get and give tensors as the file stores them, integers not dequantized.  ``moves`` says that the
    kernel copies or compares integers and never looks at scales: where those of its inputs and outputs
    differ, it is the integers that stay.
    """

    handler: Handler
    options: str
    required: int
    accepted: int | None
    stored: bool
    moves: bool


class Registry:
    """Handlers by builtin operator; modules make one each, the importer composes them with ``|``."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def reads(self, builtin: str, options: str = "", *, stored: bool = False, moves: bool = False) -> Callable[[H], H]:
        """Register the decorated function for ``builtin``, whose options are the table ``options``.

        Raises ``TypeError`` where signature and table disagree.
        """

        def register(handler: H) -> H:
            _check(handler, builtin, options)
            required, accepted = _arity(handler)
            self._add(builtin, Entry(handler, options, required, accepted, stored, moves))
            return handler

        return register

    def reads_custom(self, name: str) -> Callable[[H], H]:
        """Register the decorated function for the custom operator ``name``; it reads its own options."""

        def register(handler: H) -> H:
            required, accepted = _arity(handler)
            self._add(f"CUSTOM:{name}", Entry(handler, "", required, accepted, False, False))
            return handler

        return register

    def find(self, builtin: str) -> Entry | None:
        return self._entries.get(builtin)

    def __or__(self, other: Registry) -> Registry:
        union = Registry()
        for registry in (self, other):
            for builtin, entry in registry._entries.items():
                union._add(builtin, entry)
        return union

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def _add(self, builtin: str, entry: Entry) -> None:
        if builtin in self._entries:
            raise RuntimeError(f"{builtin} is handled by {self._entries[builtin].handler.__qualname__} already")
        self._entries[builtin] = entry


def visible(options: str) -> tuple[schema.Field, ...]:
    """Fields of an options table that say what is computed."""
    if not options:
        return ()
    return tuple(field for field in schema.OPTIONS[options].fields if field.name not in schema.HINTS)


def _check(handler: Handler, builtin: str, options: str) -> None:
    if builtin not in schema.OPERATORS:
        raise TypeError(f"{handler.__name__}: TFLite has no builtin {builtin}")
    hints = typing.get_type_hints(handler)
    parameters = inspect.signature(handler).parameters.values()
    names = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    fields = {field.name: field for field in visible(options)}
    if names != set(fields):
        raise TypeError(f"{handler.__name__}: options {sorted(names)}, {options or builtin} has {sorted(fields)}")
    for name, field in fields.items():
        want = _PYTHON_TYPE.get(field.kind, tuple[int, ...] if field.kind.startswith("[") else int)
        if hints[name] != want:
            raise TypeError(f"{handler.__name__}: {name} is {hints[name]}, {options} says {want}")


def _arity(handler: Handler) -> tuple[int, int | None]:
    inputs = [p for p in inspect.signature(handler).parameters.values() if p.kind is not p.KEYWORD_ONLY][1:]
    plain = [p for p in inputs if p.kind is p.POSITIONAL_OR_KEYWORD]
    required = sum(p.default is p.empty for p in plain)
    return required, None if len(plain) < len(inputs) else len(plain)

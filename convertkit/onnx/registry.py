"""Operator handlers: the signature is the schema.

A handler's positional parameters after the builder are the node's inputs, its keyword-only
parameters the node's attributes.  They are compared with the operator's ONNX schema before a handler
is handed out the first time (and all of them by a test), so a forgotten attribute, a wrong default or
a wrong arity never reaches a model; at import, comparing some 300 takes half of what importing them
does.  Lookup goes by meaning: the model's opset resolves to the schema version in
force, and only a handler registered for exactly that version (or for several, one ``lowers`` line
each) is found.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import defs

Handler = Callable[..., object]
H = typing.TypeVar("H", bound=Handler)

_AttrType = defs.OpSchema.AttrType
_PYTHON_TYPE: Mapping[object, object] = {
    _AttrType.INT: int,
    _AttrType.FLOAT: float,
    _AttrType.STRING: str,
    _AttrType.INTS: tuple[int, ...],
    _AttrType.FLOATS: tuple[float, ...],
    _AttrType.STRINGS: tuple[str, ...],
}


@dataclass(frozen=True, slots=True)
class Key:
    """An operator as one schema version defines it; ``domain`` is empty for ONNX's own."""

    op: str
    since: int
    domain: str = ""


class Registry:
    """Handlers by operator and by the opset version that introduced their semantics.

    Registries are plain values: modules make one each, a target composes them.
    """

    def __init__(self, parts: Iterable[Registry] = ()) -> None:
        self._handlers: dict[Key, Handler] = {}
        self._unchecked: set[Key] = set()
        for part in parts:
            for key, handler in part._handlers.items():
                self._add(key, handler)
            self._unchecked |= part._unchecked

    def lowers(self, op: str, *, since: int | tuple[int, ...], domain: str = "") -> Callable[[H], H]:
        """Register the decorated function for ``op`` as opset ``since`` (or each of several) defines it."""

        def register(handler: H) -> H:
            for version in (since,) if isinstance(since, int) else since:
                key = Key(op, version, domain)
                self._add(key, handler)
                self._unchecked.add(key)
            return handler

        return register

    def lowers_custom(self, op: str, *, domain: str) -> Callable[[H], H]:
        """Register the decorated function for an operator that has no ONNX schema (our own domains)."""

        def register(handler: H) -> H:
            self._add(Key(op, 1, domain), handler)
            return handler

        return register

    def find(self, op: str, opset: int, domain: str = "") -> Handler | None:
        """The handler whose semantics hold for ``op`` at ``opset``, None where there is none.

        Raises ``TypeError`` where the handler's signature and the schema disagree.
        """
        try:
            since = defs.get_schema(op, opset, domain).since_version
        except defs.SchemaError:
            since = 1
        key = Key(op, since, domain)
        if key in self._unchecked:
            self._check(key)
        return self._handlers.get(key)

    def check(self) -> None:
        """Raise ``TypeError`` where the signature of any handler and its schema disagree."""
        for key in sorted(self._unchecked, key=lambda key: (key.domain, key.op, key.since)):
            self._check(key)

    def versions(self, op: str, domain: str = "") -> tuple[int, ...]:
        """Schema versions of ``op`` that have a handler, ascending."""
        return tuple(sorted(key.since for key in self._handlers if (key.op, key.domain) == (op, domain)))

    def __iter__(self) -> Iterator[Key]:
        return iter(self._handlers)

    def _add(self, key: Key, handler: Handler) -> None:
        if key in self._handlers:
            raise RuntimeError(f"{key} is handled by {self._handlers[key].__qualname__} already")
        self._handlers[key] = handler

    def _check(self, key: Key) -> None:
        check_signature(self._handlers[key], defs.get_schema(key.op, key.since, key.domain))
        self._unchecked.discard(key)


def check_signature(handler: Handler, schema: defs.OpSchema) -> None:
    """Raise ``TypeError`` where ``handler`` and ``schema`` disagree on inputs, attributes or defaults."""
    parameters = list(inspect.signature(handler).parameters.values())[1:]  # the builder comes first
    inputs = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    attributes = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    variadic = any(p.kind is p.VAR_POSITIONAL for p in inputs)
    title = f"{schema.name}-{schema.since_version}"
    if not variadic and len(inputs) != len(schema.inputs):
        raise TypeError(f"{handler.__name__}: {len(inputs)} inputs, {title} has {len(schema.inputs)}")
    hints = typing.get_type_hints(handler)
    for name, spec in schema.attributes.items():
        if name not in attributes:
            raise TypeError(f"{handler.__name__}: missing attribute {name!r} of {title}")
        _check_attribute(handler.__name__, attributes[name], hints[name], spec)
    if extra := set(attributes) - set(schema.attributes):
        raise TypeError(f"{handler.__name__}: {title} has no attribute {sorted(extra)}")


def _check_attribute(where: str, parameter: inspect.Parameter, hint: object, spec: defs.OpSchema.Attribute) -> None:
    want = _PYTHON_TYPE.get(spec.type)
    if want is not None and hint != want and set(typing.get_args(hint)) != {want, types.NoneType}:
        raise TypeError(f"{where}: {parameter.name} is {hint}, the schema says {want}")
    if not spec.default_value.type:
        return
    default = attribute_value(spec.default_value)
    ours = parameter.default
    # The schema's default is a float32; Python's 0.01 is not.
    if default != (float(np.float32(ours)) if isinstance(ours, float) else ours):
        raise TypeError(f"{where}: {parameter.name} defaults to {ours}, the schema says {default}")


def attribute_value(attribute: onnx.AttributeProto) -> object:
    """An attribute as a plain Python value: str for bytes, tuple for lists."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | tuple):
        return tuple(item.decode() if isinstance(item, bytes) else item for item in value)
    return value

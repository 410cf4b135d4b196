"""Handlers by operator name; the operator is the annotation of a handler's second parameter.

    @translates
    def transpose(b: Builder, op: hlo.TransposeOp, x: Tensor) -> Tensor: ...

Operands come as :class:`Tensor`; a handler that annotates one as ``Complex`` or ``Operand`` takes
complex numbers.  ``pointwise`` handlers also run on whole tensors inside reducer regions, and
``partwise`` handlers only move data, so that complex operands go through them part by part.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Handler = Callable[..., Any]
H = typing.TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True)
class Entry:
    """A handler and how it may be used."""

    handler: Handler
    pointwise: bool = False
    partwise: bool = False
    takes_complex: bool = False


class Handlers:
    """A table of handlers; modules make one each, the importer composes them with ``|``."""

    def __init__(self) -> None:
        self._real: dict[str, Entry] = {}
        self._complex: dict[str, Entry] = {}

    def translates(self, handler: H) -> H:
        """Register for the operator that the second parameter names."""
        return self._register(handler, pointwise=False, partwise=False)

    def pointwise(self, handler: H) -> H:
        """Register an elementwise operator, which reducer regions may contain."""
        return self._register(handler, pointwise=True, partwise=False)

    def partwise(self, handler: H) -> H:
        """Register an operator that only moves data."""
        return self._register(handler, pointwise=False, partwise=True)

    def complex(self, handler: H) -> H:
        """Register for complex operands or results; pointwise."""
        self._add(self._complex, handler, Entry(handler, pointwise=True, takes_complex=True))
        return handler

    def find(self, name: str, is_complex: bool) -> Entry | None:
        """The handler for an operator; for complex values, one that takes them or goes by parts."""
        if not is_complex:
            return self._real.get(name)
        special = self._complex.get(name)
        if special is not None:
            return special
        plain = self._real.get(name)
        return plain if plain is not None and plain.partwise else None

    def names(self) -> tuple[str, ...]:
        """Every operator that has a handler, sorted."""
        return tuple(sorted({*self._real, *self._complex}))

    def __or__(self, other: Handlers) -> Handlers:
        union = Handlers()
        for handlers in (self, other):
            for mine, theirs in ((union._real, handlers._real), (union._complex, handlers._complex)):
                for name, entry in theirs.items():
                    if name in mine:
                        raise RuntimeError(f"{name} has two handlers")
                    mine[name] = entry
        return union

    def _register(self, handler: H, *, pointwise: bool, partwise: bool) -> H:
        self._add(self._real, handler, Entry(handler, pointwise, partwise))
        return handler

    def _add(self, table: dict[str, Entry], handler: Handler, entry: Entry) -> None:
        kinds = typing.get_type_hints(handler)
        second = list(kinds.values())[1]
        for kind in typing.get_args(second) or (second,):
            name = kind.OPERATION_NAME
            if name in table:
                raise RuntimeError(f"{name} is handled by {table[name].handler.__name__} already")
            table[name] = entry

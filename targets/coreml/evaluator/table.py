"""Functions by the MIL operation that they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from convertkit.artifact import Array

Result = Array | tuple[Array, ...]
Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


class Table:
    """Functions by operation; keyword arguments are the operation's own, arrays all (lists of them where it has some).

    A function sees float16 as float32.  What it returns is rounded to the type that the file gives each result: so a
    program of float16 rounds where one operation ends and the next one begins, and sums keep their bits inside of one.
    """

    def __init__(self, parts: Iterable[Table] = ()) -> None:
        self._functions: dict[str, Function] = {}
        for part in parts:
            for name in part:
                self._functions[name] = part[name]

    def computes(self, *names: str) -> Callable[[F], F]:
        """Register the decorated function for these operations."""

        def register(function: F) -> F:
            for name in names:
                self._functions[name] = function
            return function

        return register

    def add(self, name: str, function: Function) -> None:
        """Register one function."""
        self._functions[name] = function

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

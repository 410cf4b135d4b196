"""Python's own parser, for text that is read and not executed, from any thread."""

from __future__ import annotations

import ast
import threading
from typing import Literal

_PARSING = threading.Lock()


def parsed(text: str | bytes, mode: Literal["exec", "eval"] = "exec") -> ast.AST:
    """The syntax tree of ``text``; ``SyntaxError`` or ``ValueError`` where it is not Python.

    One at a time: CPython before 3.13 counts how deep a tree is for all threads together, and ends in a ``SystemError``
    where another thread parses while a callback of its garbage collector runs, as Dask registers one.
    """
    with _PARSING:
        return ast.parse(text, mode=mode)

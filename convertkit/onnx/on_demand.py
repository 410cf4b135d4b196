"""Modules that a library imports at its top and needs in some cases only.

While :func:`put_off` lasts, stand-ins take their place, which import the real ones at the first use.  Whoever else
imports those, before or after, gets the real ones.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any


class _StandIn(ModuleType):
    """Hands out functions that import the module when they are called; once ``is_live``, the module's attributes."""

    is_live = False

    def __getattr__(self, name: str) -> Any:
        return _attribute(self.__name__, name) if self.is_live else partial(_called, self.__name__, name)


@contextmanager
def put_off(*names: str) -> Iterator[None]:
    """Let the block import modules that nobody has imported so far, packages before what is in them, by name only."""
    if any(name in sys.modules for name in names):
        yield
        return
    stand_ins = {name: _StandIn(name) for name in names}
    sys.modules.update(stand_ins)
    for name, stand_in in stand_ins.items():
        package, _, own = name.rpartition(".")
        if package:
            setattr(sys.modules[package], own, stand_in)  # as an import does; the real one takes the place
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]
            stand_in.is_live = True


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _called(module: str, name: str, *arguments: object) -> Any:
    return _attribute(module, name)(*arguments)

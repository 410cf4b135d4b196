"""Modules that a library imports at its top and needs in few cases only, loaded when they are first used.

onnx_ir imports sympy, which takes longer than all of onnx_ir and computes sizes that few models have.  onnxscript
imports ONNX's reference evaluator, whose 200 modules, one for each operator, compute constants that few models have.

This is for processes of our own: the command line and the workers.  A program that imports convertkit has the import
system that it had.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

SELDOM_USED = ("sympy", "onnx_ir._symbolic_shapes", "onnx.reference", "onnx.reference.ops")
"""``_symbolic_shapes`` of onnx_ir puts functions of sympy into a table as soon as it is loaded."""
_LOADING = threading.RLock()


@contextmanager
def on_demand(names: Sequence[str] = SELDOM_USED) -> Iterator[None]:
    """Load these modules at their first use, where they are imported within the block and were not before.

    A module of the block stays one that loads when it is used; it is the real one, not another in its place.
    """
    finder = _Finder(frozenset(names))
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Module(ModuleType):
    """A module that is loaded by whoever first asks for something in it; other threads wait for that.

    As ``importlib.util.LazyLoader`` does, which does not wait before Python 3.12.4, and loads a package as soon as a
    module in it is imported.
    """

    def __getattribute__(self, name: str) -> Any:
        if not (name.startswith("__") and name.endswith("__")):
            with _LOADING:
                spec = ModuleType.__getattribute__(self, "__spec__")
                if isinstance(spec.loader, _Loader):
                    spec.loader.load(self)
        return ModuleType.__getattribute__(self, name)


class _Loader:
    """Puts off what ``real`` does."""

    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""

    def load(self, module: ModuleType) -> None:
        """Execute the module; what it raises is raised again at the next use."""
        spec = module.__spec__
        assert spec is not None
        spec.loader = module.__loader__ = self._real
        try:
            self._real.exec_module(module)
        except BaseException:
            spec.loader = cast("Loader", self)
            raise
        module.__class__ = ModuleType


class _Finder:
    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = cast("Loader", _Loader(spec.loader))
        return spec

"""Notes when torch works, in every process that finds this folder on its path: for ``bench/pytorch_overhead.py``.

Python imports this by its name when it starts.  While ``TORCH_CLOCK`` names a folder, each process appends a line to
its own file there for every outermost piece of torch's work: begin and end on the system's monotonic clock, which all
processes share, and what it was.  torch's work is importing its modules and its operators for ONNX, reading a model,
capturing and exporting one, and computing one.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_ENTRANCES = {
    "torch": ("load", "nn.Module.__call__"),
    "torch.jit": ("load", "script", "trace"),
    "torch.export": ("load", "export", "ExportedProgram.module", "ExportedProgram.run_decompositions"),
    "torch.onnx": ("export",),
}
"""What other code enters torch by, of the modules that define it."""
_OWN = ("torch", "onnxscript.function_libs")
_depth = threading.local()


@contextmanager
def _noted(what: str) -> Iterator[None]:
    depth = getattr(_depth, "value", 0)
    _depth.value = depth + 1
    begun = time.monotonic()
    try:
        yield
    finally:
        _depth.value = depth
        if not depth:
            line = f"{begun} {time.monotonic()} {what}\n"
            with (Path(os.environ["TORCH_CLOCK"]) / str(os.getpid())).open("a") as file:
                file.write(line)


def _clocked(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _noted(what):
            return function(*args, **kwargs)

    return called


class _Clocked(Loader):
    """Executes a module on the clock, then puts the clock on what it is entered by."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        with _noted("import"):
            self._loader.exec_module(module)
        for path in _ENTRANCES.get(module.__name__, ()):
            owner: Any = module
            *way, name = path.split(".")
            for step in way:
                owner = getattr(owner, step)
            setattr(owner, name, _clocked(getattr(owner, name), path))


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(fullname == own or fullname.startswith(f"{own}.") for own in _OWN):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Clocked(spec.loader)
        return spec


if "TORCH_CLOCK" in os.environ:
    sys.meta_path.insert(0, _Finder())

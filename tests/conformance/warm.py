"""Engines that take seconds to import, in the process that each case is a fork of."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Self

from convertkit.workers.process import Reply

_MODULES = {
    "executorch": ("convertkit.targets.executorch.stage", "convertkit.targets.executorch.runner"),
    "ncnn": ("convertkit.targets.ncnn.runner",),
}
_HEAVY = {
    "executorch": ("convertkit.targets.executorch.service", "convertkit.targets.executorch.module"),
    "ncnn": ("convertkit.targets.ncnn.service",),
}


class Here:
    """What a ``Worker`` is to those who call it, in this process: a case is isolated already."""

    def __init__(self, service: str, **_: Any) -> None:
        module, _, name = service.partition(":")
        self._service = getattr(importlib.import_module(module), name)()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was started."""

    def call(
        self, method: str, params: Mapping[str, Any] | None = None, arrays: Mapping[str, Any] | None = None
    ) -> Reply:
        """Run a method of the service."""
        return getattr(self._service, method)(params or {}, arrays or {})


def load(target: str) -> None:
    """Import what the target's worker imports."""
    for name in _HEAVY.get(target, ()):
        importlib.import_module(name)


def keep(target: str) -> None:
    """Let the target work here where its imports are heavy."""
    for name in _MODULES.get(target, ()):
        importlib.import_module(name).Worker = Here

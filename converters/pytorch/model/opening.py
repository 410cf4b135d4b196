"""A model that is being loaded; imports next to nothing, as it is there before the framework."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convertkit.recipe import InputSpec
from convertkit.workers.process import Reply, Worker


@dataclass(frozen=True, slots=True)
class Model:
    """Which model the worker is to load, and what the user said about it."""

    source: str
    kind: str
    factory: str | None
    inputs: tuple[InputSpec, ...]
    foreign: tuple[str, ...] = ()
    """Classes and functions that the file names beside its weights."""

    def params(self) -> dict[str, Any]:
        """The same as JSON."""
        inputs = [
            {"name": each.name, "shape": each.shape, "dtype": each.dtype, "range": each.value_range}
            for each in self.inputs
        ]
        return {"path": self.source, "kind": self.kind, "model": self.factory, "inputs": inputs}


@dataclass(frozen=True, slots=True)
class Opening:
    """A model that a worker is loading; ``loaded`` waits for it and returns seconds by what they were spent on."""

    model: Model
    worker: Worker
    loaded: Callable[[], Reply]

"""The first thing that happens to a PyTorch model: safe to read or refused, then on its way into a worker.

Importing torch takes a second.  The worker does it while the parent imports what it needs itself, so
this module imports next to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convertkit.converters.pytorch.read.safety import check
from convertkit.converters.pytorch.read.sniff import Found, examine
from convertkit.errors import UsageError
from convertkit.recipe import ExportOptions, InputSpec
from convertkit.workers.launching import TORCH_ENVIRONMENT
from convertkit.workers.process import Reply, Worker

SERVICE = "convertkit.converters.pytorch.service:TorchService"


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
    begun: float
    """``time.perf_counter()`` when it began."""


def begin(source: str, options: ExportOptions) -> Opening:
    """Recognise the file, refuse what is damaged or hostile, and start a worker that loads it."""
    begun = time.perf_counter()
    worker = Worker(SERVICE, timeout_s=options.timeout_s, env=TORCH_ENVIRONMENT, framework="torch")
    worker.start()  # it imports torch, and hears of the file once that is known to be harmless
    try:
        found = examine(Path(source)) or Found("torch-factory")
        if options.model is not None and found.kind == "torch-factory":
            raise UsageError(f"--model does nothing for {source}, which makes the module itself; leave it out")
        if options.model is not None and found.kind == "pickled-module":
            found = replace(found, kind="state-dict")  # its tensors are all that is asked of it
        if found.kind != "torch-factory":
            check(Path(source), found, trust_pickle="pickle" in options.trust)
        model = Model(source, found.kind, options.model, options.inputs, found.foreign)
        return Opening(model, worker, worker.begin("open", model.params()), begun)
    except BaseException:
        worker.__exit__(None, None, None)
        raise

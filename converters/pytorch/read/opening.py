"""The first thing that happens to a PyTorch model: safe to read or refused, then on its way into a worker.

Importing torch takes a second.  The worker does it while the parent imports what it needs itself, so
this module imports next to nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from convertkit.converters.pytorch.model.opening import Model, Opening
from convertkit.converters.pytorch.read.safety import check
from convertkit.converters.pytorch.read.sniff import Found, examine
from convertkit.errors import UsageError
from convertkit.recipe import ExportOptions
from convertkit.workers.launching import TORCH_ENVIRONMENT
from convertkit.workers.process import Worker

SERVICE = "convertkit.converters.pytorch.service:TorchService"


def begin(source: str, options: ExportOptions) -> Opening:
    """Recognise the file, refuse what is damaged or hostile, and start a worker that loads it."""
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
        return Opening(model, worker, worker.begin("open", model.params()))
    except BaseException:
        worker.__exit__(None, None, None)
        raise

"""What the worker process does: everything that needs torch.

The process that serves calls imports torch and computes nothing until conversion is over: a process
whose threads have computed must not be forked, and every attempt runs in a fork.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch import probing, routes
from convertkit.converters.pytorch.leaves import from_json
from convertkit.converters.pytorch.loading import brief, load
from convertkit.converters.pytorch.subject import Subject
from convertkit.errors import ConvertKitError, SourceError, Unsupported
from convertkit.worker import Reply


class TorchService:
    """Methods that the parent calls; ``params`` always says which model is meant."""

    def __init__(self) -> None:
        self._loaded: Subject | None = None

    def describe(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """The model's interface, found by loading it and running it on generated inputs."""
        return Reply(probing.describe(_load(params), Path(params["path"]), params))

    def prepare(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Import what torch.export's road needs, once for all forks to come."""
        routes.prepare()
        return Reply()

    def attempt(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Try one road to ONNX; the error of a road that fails is a value, for the report."""
        subject = _load(params)
        try:
            return Reply(routes.attempt(subject, params, arrays))
        except Unsupported as error:
            return Reply({"failed": str(error), "refusal": {"reason": error.reason, "location": error.location}})
        except ConvertKitError as error:
            return Reply({"failed": str(error)})
        except Exception as error:  # noqa: BLE001 - exporters fail in every way there is; the next road may work
            return Reply({"failed": f"{type(error).__name__}: {brief(error)}"})

    def reference(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """What the model computes for ``params["count"]`` feeds, whose arrays are named ``<place>/<input>``."""
        subject, leaves = _load(params), from_json(params["leaves"])
        results: dict[str, Array] = {}
        for place in range(int(params["count"])):
            feed = {leaf.name: arrays[f"{place}/{leaf.name}"] for leaf in leaves}
            computed = _computed(subject, leaves, feed)
            results.update({f"{place}/{name}": value for name, value in computed.items()})
        return Reply(None, results)

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """One call of the reference runner; the model stays loaded."""
        if self._loaded is None or params["fresh"]:
            self._loaded = _load(params)
        return Reply(None, _computed(self._loaded, from_json(params["leaves"]), arrays))


def _load(params: Mapping[str, Any]) -> Subject:
    return load(params["path"], params["kind"], params["model"])


def _computed(subject: Subject, leaves: Any, feed: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return subject.compute(leaves, feed)
    except (RuntimeError, ValueError, TypeError, IndexError, torch.jit.Error) as error:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in feed.items())
        raise SourceError(f"the model fails on {shapes}: {brief(error)}") from error

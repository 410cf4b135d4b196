"""What the worker process does: everything that needs torch.

The process that serves calls imports torch and computes nothing until conversion is over: a process
whose threads have computed must not be forked, and every attempt runs in a fork.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch import exporting, probing, routes
from convertkit.converters.pytorch.leaves import Leaf, from_json
from convertkit.converters.pytorch.loading import brief, load
from convertkit.converters.pytorch.operators import refusal
from convertkit.converters.pytorch.state import Session, slots_from_json
from convertkit.converters.pytorch.subject import Subject
from convertkit.errors import ConvertKitError, SourceError, Unsupported
from convertkit.worker import Reply


class TorchService:
    """Methods that the parent calls; ``params`` always says which model is meant."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def describe(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """The model's interface, found by loading it and running it on generated inputs."""
        described, state = probing.describe(_load(params), Path(params["path"]), params["inputs"])
        return Reply(described.as_json(), state)

    def prepare(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Import what torch.export's road needs, once for all forks to come."""
        exporting.prepare()
        return Reply()

    def attempt(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Try one road to ONNX; the error of a road that fails is a value, for the report."""
        subject = _load(params)
        try:
            routes.attempt(subject, params, arrays)
        except Unsupported as error:
            told = {"unknown": _fields(error)} if error.subject and error.ways_out else {}
            return Reply({"failed": str(error), "location": error.location, **told})
        except ConvertKitError as error:
            return Reply({"failed": str(error)})
        except Exception as error:  # noqa: BLE001 - exporters fail in every way there is; the next road may work
            unknown = refusal(error)
            if unknown is not None:
                return Reply({"failed": str(unknown), "unknown": _fields(unknown)})
            return Reply({"failed": f"{type(error).__name__}: {brief(error)}"})
        return Reply({})

    def reference(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """What the model computes for ``params["count"]`` feeds, whose arrays are named ``<place>/<input>``."""
        session, leaves = _session(params), from_json(params["leaves"])
        results: dict[str, Array] = {}
        for place in range(int(params["count"])):
            feed = {leaf.name: arrays[key] for leaf in leaves if (key := f"{place}/{leaf.name}") in arrays}
            computed = _computed(session, leaves, feed)
            results.update({f"{place}/{name}": value for name, value in computed.items()})
        return Reply(None, results)

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """One call of the reference runner; the model stays loaded."""
        if self._session is None or params["fresh"]:
            self._session = _session(params)
        return Reply(None, _computed(self._session, from_json(params["leaves"]), arrays))


def _fields(refusal: Unsupported) -> dict[str, Any]:
    """A refusal as JSON, to be raised again in the parent when no road is left."""
    return {
        "reason": refusal.reason,
        "subject": refusal.subject,
        "location": refusal.location,
        "ways_out": refusal.ways_out,
    }


def _load(params: Mapping[str, Any]) -> Subject:
    return load(params["path"], params["kind"], params["model"])


def _session(params: Mapping[str, Any]) -> Session:
    return Session(_load(params), slots_from_json(params["slots"]))


def _computed(session: Session, leaves: Sequence[Leaf], feed: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return session.run(leaves, feed)
    except (RuntimeError, ValueError, TypeError, IndexError, torch.jit.Error) as error:
        shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in feed.items())
        raise SourceError(f"the model fails on {shapes}: {brief(error)}") from error

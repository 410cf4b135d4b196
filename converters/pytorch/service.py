"""What the worker process does: everything that needs torch.

The process that serves calls imports torch and loads the model on one thread, and computes nothing until
conversion is over: a process whose threads have computed must not be forked, and every attempt runs in a fork.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import numpy as np
import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch.describe import probing
from convertkit.converters.pytorch.describe.capture import drawn
from convertkit.converters.pytorch.describe.prober import told
from convertkit.converters.pytorch.load.load import load
from convertkit.converters.pytorch.load.registered_operators import refusal
from convertkit.converters.pytorch.model.failures import brief, innermost
from convertkit.converters.pytorch.model.leaves import Leaf, from_json
from convertkit.converters.pytorch.model.state import Session, slots_from_json
from convertkit.converters.pytorch.model.subject import Subject
from convertkit.converters.pytorch.routes import exporting, routes
from convertkit.errors import ConvertKitError, SourceError, Unsupported, full_disk
from convertkit.stage import Feed
from convertkit.workers.process import Reply


class TorchService:
    """Methods that the parent calls; ``params`` always says which model is meant."""

    def __init__(self) -> None:
        self.import_seconds = 0.0
        self._session: Session | None = None
        self._subject: Subject | None = None
        self._prepared = False
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)

    def open(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Load the model once, for all forks to come; returns the seconds that it and torch's import took."""
        begun = time.perf_counter()
        if params["kind"] == "pt2":
            self._prepare()  # reading a program needs most of what exporting it needs
        self._subject = _load(params)
        return Reply({"import": self.import_seconds, "load": time.perf_counter() - begun})

    def _loaded(self, params: Mapping[str, Any]) -> Subject:
        """The model, for a call that computes: the one that was opened, or its twin."""
        torch.set_num_threads(self._threads)
        if self._subject is None or params["kind"] == "torchscript-twin":
            return _load(params)
        return self._subject

    def _fresh_session(self, params: Mapping[str, Any]) -> Session:
        """A session that begins where the model begins: one that keeps state is loaded again after its first use."""
        subject = self._loaded(params)
        if params["slots"]:
            self._subject = None
        return Session(subject, slots_from_json(params["slots"]))

    def describe(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """The model's interface, found by running it on generated inputs, and the start values of its state."""
        subject = self._loaded(params)
        described, state = probing.describe(subject, Path(params["path"]), params["inputs"], params["seed"])
        return Reply({**described.as_json(), "rebatched": subject.exported_batch > 0}, state)

    def prepare(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Import what ``params["route"]`` needs, once for all forks to come."""
        if params["route"] not in routes.LIGHT:
            self._prepare()
        return Reply()

    def _prepare(self) -> None:
        if not self._prepared:
            exporting.prepare()
            self._prepared = True

    def attempt(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Try one route to ONNX; the error of a route that fails is a value, for the report."""
        subject = self._loaded(params)
        begun = time.perf_counter()
        try:
            routes.attempt(subject, params, arrays)
        except Unsupported as error:
            told = {"unknown": _fields(error)} if error.subject and error.ways_out else {}
            return Reply({"failed": str(error), "location": error.location, **told})
        except ConvertKitError as error:
            return Reply({"failed": str(error)})
        except Exception as error:  # exporters fail in every way there is; the next route may work
            if (full := full_disk(error)) is not None:
                raise full from error
            unknown = refusal(error)
            if unknown is not None:
                return Reply({"failed": str(unknown), "unknown": _fields(unknown)})
            cause = innermost(error)
            return Reply({"failed": f"{type(cause).__name__}: {brief(cause)}"})
        return Reply({"seconds": time.perf_counter() - begun})

    def reference(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """What the model computes for ``params["count"]`` feeds, whose arrays are named ``<place>/<input>``.

        The last ``params["trials"]`` of them it may refuse: then there is nothing for them.
        """
        session, leaves = self._fresh_session(params), from_json(params["leaves"])
        feeds = [
            {leaf.name: arrays[key] for leaf in leaves if (key := f"{place}/{leaf.name}") in arrays}
            for place in range(int(params["count"]))
        ]
        return Reply(None, _all_computed(session, leaves, feeds, int(params["trials"])))

    def steady(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """Raise ``Unsupported`` where one feed gives another result in each call."""
        leaves = from_json(params["leaves"])
        first, second = (_computed(self._fresh_session(params), leaves, arrays) for _ in range(2))
        if not all(
            np.array_equal(value, second[name], equal_nan=value.dtype.kind in "fc") for name, value in first.items()
        ):
            fresh = _load(params)
            raise drawn(fresh, lambda: _computed(Session(fresh, ()), leaves, arrays))
        return Reply()

    def run(self, params: Mapping[str, Any], arrays: Mapping[str, Array]) -> Reply:
        """One call of the reference runner; the model stays loaded."""
        if self._session is None or (params["fresh"] and params["slots"]):
            self._session = self._fresh_session(params)
        return Reply(None, _computed(self._session, from_json(params["leaves"]), arrays))


def _fields(refusal: Unsupported) -> dict[str, Any]:
    """A refusal as JSON, to be raised again in the parent when no route is left."""
    return {
        "reason": refusal.reason,
        "subject": refusal.subject,
        "location": refusal.location,
        "ways_out": refusal.ways_out,
    }


def _load(params: Mapping[str, Any]) -> Subject:
    return load(params["path"], params["kind"], params["model"])


def _all_computed(session: Session, leaves: Sequence[Leaf], feeds: Sequence[Feed], trials: int) -> dict[str, Array]:
    """What the model computes for several feeds, as ``<place>/<output>``.

    Nothing for those of the last ``trials`` that it refuses.
    """
    results: dict[str, Array] = {}
    for place, feed in enumerate(feeds):
        try:
            outputs = _computed(session, leaves, feed)
        except SourceError:
            if place < len(feeds) - trials:
                raise
            continue
        results.update({f"{place}/{name}": value for name, value in outputs.items()})
    return results


def _computed(session: Session, leaves: Sequence[Leaf], feed: Mapping[str, Array]) -> dict[str, Array]:
    with told(feed):
        return session.run(leaves, feed)

"""Which road from PyTorch to ONNX works for this model: tried in order, accepted by numbers alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.pytorch.interface import settle_interface
from convertkit.converters.pytorch.leaves import Leaf, from_json, to_json
from convertkit.errors import ConvertKitError, ParityError, Unsupported
from convertkit.onnx.runner import OnnxRunner
from convertkit.parity.feeds import generated_feed
from convertkit.recipe import InputSpec
from convertkit.stage import FLOAT32, Feed, Outputs
from convertkit.worker import Worker

_ROUTES = {
    "torchscript": ("legacy",),
}
_CHECK_SEED = 0x7C5
"""Mixed into the seed of the feeds that choose a road: the parity proof uses other ones."""
_FEEDS_PER_SIZE = 3


@dataclass(frozen=True, slots=True)
class Model:
    """Which model the worker is to load, and what the user said about it."""

    source: str
    kind: str
    factory: str | None
    inputs: tuple[InputSpec, ...]

    def params(self) -> dict[str, Any]:
        """The same as JSON."""
        inputs = [
            {"name": each.name, "shape": each.shape, "dtype": each.dtype, "range": each.value_range}
            for each in self.inputs
        ]
        return {"path": self.source, "kind": self.kind, "model": self.factory, "inputs": inputs}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One road that was tried; ``failure`` is empty for the one that was accepted."""

    route: str
    dynamic: bool
    seconds: float
    failure: str = ""
    mismatch: bool = False
    location: str = ""

    def as_json(self) -> dict[str, object]:
        """For the report."""
        return {
            "route": self.route,
            "dynamic": self.dynamic,
            "seconds": round(self.seconds, 3),
            "outcome": self.failure or "accepted",
        }


@dataclass(frozen=True, slots=True)
class Accepted:
    """An ONNX file that computes what the model computes, and the interface that this settled."""

    path: Path
    route: str
    leaves: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    notes: tuple[str, ...]
    initial_state: Path | None = None


class Ladder:
    """Tries roads for one model until one matches it."""

    def __init__(self, worker: Worker, model: Model, workdir: Path, seed: int) -> None:
        self._worker = worker
        self._model = model
        self._workdir = workdir
        self._seed = seed
        self._attempts: list[Attempt] = []

    def climb(self) -> Accepted:
        """The first road whose result matches, with a free batch before a fixed one.

        Raises ``ParityError`` where roads led to ONNX and none of it matches, ``Unsupported`` where none led there.
        """
        described = self._worker.call("describe", self._model.params(), isolated=True).value
        leaves, fixed = from_json(described["leaves"]), from_json(described["fixed"])
        notes = tuple(described["notes"])
        outputs = tuple(described["outputs"])
        accepted = self._first_match(leaves, outputs, described["sizes"], notes)
        if accepted is None and leaves != fixed:
            why = next((each.failure for each in reversed(self._attempts)), "")
            note = f"the batch is fixed: no road to ONNX keeps it free ({why})"
            accepted = self._first_match(fixed, outputs, [{}], (*notes, note))
        if accepted is None:
            raise self._defeat()
        return accepted

    def _first_match(
        self,
        leaves: tuple[Leaf, ...],
        outputs: tuple[str, ...],
        sizes: Sequence[Mapping[str, int]],
        notes: tuple[str, ...],
    ) -> Accepted | None:
        feeds = list(self._feeds(leaves, sizes))
        references: list[Outputs] | None = None
        for route in _ROUTES[self._model.kind]:
            place = self._workdir / f"attempt-{len(self._attempts)}"
            place.mkdir()
            begun = time.perf_counter()
            params = {
                **self._model.params(),
                "route": route,
                "leaves": to_json(leaves),
                "outputs": outputs,
                "target": str(place / "model.onnx"),
            }
            reply = self._called(params, feeds[0])
            dynamic = any(isinstance(dim, str) for leaf in leaves for dim in leaf.shape)
            seconds = time.perf_counter() - begun
            if "failed" in reply:
                location = reply.get("refusal", {}).get("location", "")
                self._attempts.append(Attempt(route, dynamic, seconds, reply["failed"], location=location))
                continue
            references = references or self._references(leaves, feeds)
            path = place / "model.onnx"
            departure = self._departure(path, leaves, outputs, feeds, references)
            self._attempts.append(Attempt(route, dynamic, seconds, departure, mismatch=bool(departure)))
            if not departure:
                return Accepted(path, route, leaves, outputs, tuple(self._attempts), notes)
        return None

    def _called(self, params: Mapping[str, Any], feed: Feed) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = self._worker.call("attempt", params, feed, isolated=True).value
        except ConvertKitError as error:
            return {"failed": str(error)}
        return reply

    def _feeds(self, leaves: Sequence[Leaf], sizes: Sequence[Mapping[str, int]]) -> Iterator[Feed]:
        rng = np.random.default_rng([_CHECK_SEED, self._seed])
        specs = [leaf.spec() for leaf in leaves]
        for size in sizes:
            for kind in range(_FEEDS_PER_SIZE):
                yield generated_feed(specs, size, rng, kind)

    def _references(self, leaves: Sequence[Leaf], feeds: Sequence[Feed]) -> list[Outputs]:
        arrays = {f"{place}/{name}": value for place, feed in enumerate(feeds) for name, value in feed.items()}
        params = {**self._model.params(), "leaves": to_json(leaves), "count": len(feeds)}
        found = self._worker.call("reference", params, arrays, isolated=True).arrays
        results: list[Outputs] = [{} for _ in feeds]
        for key, value in found.items():
            place, _, name = key.partition("/")
            results[int(place)][name] = value
        return results

    def _departure(
        self,
        path: Path,
        leaves: Sequence[Leaf],
        outputs: Sequence[str],
        feeds: Sequence[Feed],
        references: Sequence[Outputs],
    ) -> str:
        """How what a road made departs from the model, empty where it does not."""
        try:
            artifact = settle_interface(path, leaves, outputs)
            with OnnxRunner(artifact) as runner:
                return next(
                    filter(None, (_difference(runner.run(f), r, f) for f, r in zip(feeds, references, strict=True))), ""
                )
        except ConvertKitError as error:
            return str(error)

    def _defeat(self) -> ConvertKitError:
        told = "\n".join(
            f"  tried {each.route}{'' if each.dynamic else ' (fixed batch)'}: {each.failure}" for each in self._attempts
        )
        mismatch = next((each for each in self._attempts if each.mismatch), None)
        if mismatch is not None:
            return ParityError(f"no road from this model to ONNX computes what it computes\n{told}")
        location = next((each.location for each in self._attempts if each.location), "")
        return Unsupported(f"no road from this model to ONNX works\n{told}", location=location)


def _difference(got: Outputs, reference: Outputs, feed: Feed) -> str:
    shapes = ", ".join(f"{name} {list(value.shape)}" for name, value in feed.items())
    for name, expected in reference.items():
        value = got[name]
        if value.shape != expected.shape:
            return f"output {name} has the shape {list(value.shape)}, the model gives {list(expected.shape)} (for {shapes})"
        if value.dtype != expected.dtype:
            return f"output {name} is {value.dtype}, the model gives {expected.dtype}"
        if not _close(value, expected):
            error = np.max(np.abs(value.astype(np.float64) - expected.astype(np.float64)))
            return f"output {name} departs by {error:.3g} (for {shapes})"
    return ""


def _close(value: Array, expected: Array) -> bool:
    if expected.size == 0 or np.array_equal(value, expected):
        return True
    if expected.dtype.kind not in "fcV":
        return False
    a, b = value.astype(np.complex128), expected.astype(np.complex128)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return False
    finite = np.isfinite(b)
    scale = np.max(np.abs(b[finite]), initial=1e-30)
    return bool(np.max(np.abs(a[finite] - b[finite]), initial=0.0) <= (FLOAT32.relative or 0.0) * scale)

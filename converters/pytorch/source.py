"""An opened PyTorch model: converted in a worker, proven against itself there before it counts as converted."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from convertkit.artifact import Artifact, sha256_of
from convertkit.converters.pytorch.model.leaves import to_json
from convertkit.converters.pytorch.read.opening import Model, Opening
from convertkit.converters.pytorch.read.safety import few
from convertkit.converters.pytorch.routes.ladder import MADE_BY, Accepted, Ladder
from convertkit.errors import SourceError
from convertkit.parity.feeds import is_brief
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions
from convertkit.references import module_file
from convertkit.stage import Feed, Outputs, Runner, Stage, Tolerance
from convertkit.workers.process import Worker


class TorchSource:
    """A PyTorch model and the worker that holds torch; use :meth:`opened`."""

    def __init__(self, artifact: Artifact, opening: Opening, accepted: Accepted, seconds: float) -> None:
        self.artifact = artifact
        self.notes: tuple[str, ...] = accepted.notes
        self.implied_sizes = accepted.implied_sizes
        self._worker = opening.worker
        self._model = opening.model
        self._accepted = accepted
        self._seconds = seconds

    @classmethod
    def opened(cls, opening: Opening, options: ExportOptions, workdir: Path, progress: Progress) -> TorchSource:
        """Convert.

        The interface, above all whether the batch is free, is settled by a conversion that was checked;
        so the conversion happens here, and the stage hands over its result.
        """
        model = opening.model
        try:
            workdir.mkdir(parents=True, exist_ok=True)
            path = _path(model)
            digest = sha256_of(path)  # while the worker imports torch
            ladder = Ladder(
                opening,
                workdir,
                options.seed,
                foresees=False,
                announce=lambda made: None,
                brief=is_brief(Artifact(path, model.kind, (), (), digest).size_bytes),
                progress=progress,
            )
            accepted = ladder.climb()
            if model.kind == "pickled-module":
                trusted = f"--trust pickle: code stored in {Path(model.source).name} was executed"
                accepted = replace(accepted, notes=(trusted, *accepted.notes))
            elif model.foreign:
                unread = f"of {Path(model.source).name} the tensors alone were read; no {few(model.foreign)} was made"
                accepted = replace(accepted, notes=(unread, *accepted.notes))
            made = accepted.artifact
            inputs = tuple(leaf.spec() for leaf in accepted.leaves)
            artifact = Artifact(path, model.kind, inputs, made.outputs, digest, "", made.initial_state)
        except BaseException:
            opening.worker.__exit__(None, None, None)
            raise
        return cls(artifact, opening, accepted, time.perf_counter() - opening.begun)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def runner(self) -> Runner:
        return TorchRunner(self._worker, self._model, self._accepted, self.artifact)

    def stage(self) -> Stage:
        return TorchStage(self._accepted, self._seconds)


class TorchStage:
    """PyTorch → canonical ONNX."""

    name, version = MADE_BY.split()
    accepts = frozenset(
        {"torchscript", "pt2", "state-dict", "safetensors", "sharded", "pickled-module", "torch-factory"}
    )
    produces = "onnx"

    def __init__(self, accepted: Accepted, prior_seconds: float) -> None:
        self._accepted = accepted
        self.tolerance: Tolerance = accepted.tolerance
        self.prior_seconds = prior_seconds
        """What opening the source took: torch's import, loading, the roads that were tried, their checks."""

    @property
    def options(self) -> Mapping[str, object]:
        """The road taken, how each that was tried ended, and what torch itself took."""
        attempts = self._accepted.attempts
        export = sum(each.torch_seconds for each in attempts)
        torch = {name: round(value, 3) for name, value in {**self._accepted.seconds, "export": export}.items()}
        return {
            "route": self._accepted.route,
            "attempts": [each.as_json() for each in attempts],
            "torch_seconds": torch,
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        made = self._accepted.artifact
        for file in made.path.parent.glob(f"{made.path.name}*"):  # the weights of a large model lie beside it
            os.link(file, workdir / file.name)
        return replace(made, path=workdir / made.path.name)


class TorchRunner:
    """Runs the source model itself, in the worker."""

    def __init__(self, worker: Worker, model: Model, accepted: Accepted, artifact: Artifact) -> None:
        self._worker = worker
        self._params = {**model.params(), "leaves": to_json(accepted.leaves), "slots": accepted.slots}
        self._artifact = artifact
        self._foreseen = list(accepted.foreseen)
        self._fresh = True

    def __enter__(self) -> Self:
        self._fresh = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed; ``SourceError`` where the model itself fails on it."""
        for place, (known, outputs) in enumerate(self._foreseen):
            if _same(known, feed):
                del self._foreseen[place]
                return dict(outputs)
        arrays = {spec.name: feed[spec.name] for spec in self._artifact.inputs if spec.name in feed}
        reply = self._worker.call("run", {**self._params, "fresh": self._fresh}, arrays)
        self._fresh = False
        return {spec.name: reply.arrays[spec.name] for spec in self._artifact.outputs}


def _path(model: Model) -> Path:
    """The file or folder that stands for the model in reports."""
    path = Path(model.source)
    if model.kind == "torch-factory":
        file = module_file(model.source.partition(":")[0])
        if file is None:
            raise SourceError(f"{model.source}: its module has no file")
        return file
    if model.kind == "sharded" and path.is_file():
        return path.parent  # the index alone says nothing of the weights
    return path


def _same(a: Feed, b: Feed) -> bool:
    return a.keys() == b.keys() and all(
        value.dtype == b[name].dtype and np.array_equal(value, b[name], equal_nan=value.dtype.kind in "fc")
        for name, value in a.items()
    )

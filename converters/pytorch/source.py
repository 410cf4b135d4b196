"""An opened PyTorch model: converted in a worker, proven against itself there before it counts as converted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from convertkit.artifact import Artifact, TensorSpec, sha256_of
from convertkit.converters.pytorch.ladder import Accepted, Ladder, Model
from convertkit.converters.pytorch.leaves import to_json
from convertkit.converters.pytorch.safety import check
from convertkit.converters.pytorch.sniff import Found, examine
from convertkit.errors import SourceError
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_model
from convertkit.onnx.save import save_model
from convertkit.onnx.specs import interface
from convertkit.recipe import ExportOptions
from convertkit.references import module_file
from convertkit.stage import FLOAT32, Feed, Outputs, Runner, Stage, Tolerance
from convertkit.worker import Worker

SERVICE = "convertkit.converters.pytorch.service:TorchService"


class TorchSource:
    """A PyTorch model and the worker that holds torch; use :meth:`opened`."""

    def __init__(self, artifact: Artifact, worker: Worker, model: Model, accepted: Accepted) -> None:
        self.artifact = artifact
        self.notes: tuple[str, ...] = accepted.notes
        self._worker = worker
        self._model = model
        self._accepted = accepted

    @classmethod
    def opened(cls, source: str, options: ExportOptions, workdir: Path) -> TorchSource:
        """Recognise, check, convert.

        The interface, above all whether the batch is free, is settled by a conversion that was checked;
        so the conversion happens here and the stage makes its result canonical.
        """
        found = examine(Path(source)) or Found("torch-factory")
        if found.kind != "torch-factory":
            check(Path(source), found, trust_pickle="pickle" in options.trust)
        workdir.mkdir(parents=True, exist_ok=True)
        worker = Worker(SERVICE, timeout_s=options.timeout_s)
        try:
            model = Model(source, found.kind, options.model, options.inputs)
            accepted = Ladder(worker, model, workdir, options.seed).climb()
            if found.kind == "pickled-module":
                trusted = f"--trust pickle: code stored in {Path(source).name} was executed"
                accepted = replace(accepted, notes=(trusted, *accepted.notes))
            artifact = _artifact(source, found.kind, accepted)
        except BaseException:
            worker.__exit__(None, None, None)
            raise
        return cls(artifact, worker, model, accepted)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.__exit__(kind, error, trace)

    def runner(self) -> Runner:
        return TorchRunner(self._worker, self._model, self._accepted, self.artifact)

    def stage(self) -> Stage:
        return TorchStage(self._accepted)


class TorchStage:
    """PyTorch → canonical ONNX."""

    name = "pytorch-to-onnx"
    version = "1"
    accepts = frozenset({"torchscript", "pt2", "state-dict", "safetensors", "pickled-module", "torch-factory"})
    produces = "onnx"
    tolerance: Tolerance = FLOAT32

    def __init__(self, accepted: Accepted) -> None:
        self._accepted = accepted

    @property
    def options(self) -> Mapping[str, object]:
        """The road taken and, for each that was tried, how it ended and its seconds in torch."""
        return {"route": self._accepted.route, "attempts": [each.as_json() for each in self._accepted.attempts]}

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        model = canonicalize(load_model(self._accepted.path))
        return save_model(
            model, workdir / "canonical.onnx", f"{self.name} {self.version}", self._accepted.initial_state
        )


class TorchRunner:
    """Runs the source model itself, in the worker."""

    def __init__(self, worker: Worker, model: Model, accepted: Accepted, artifact: Artifact) -> None:
        self._worker = worker
        self._params = {**model.params(), "leaves": to_json(accepted.leaves), "slots": accepted.slots}
        self._artifact = artifact
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
        arrays = {spec.name: feed[spec.name] for spec in self._artifact.inputs if spec.name in feed}
        reply = self._worker.call("run", {**self._params, "fresh": self._fresh}, arrays)
        self._fresh = False
        return {spec.name: reply.arrays[spec.name] for spec in self._artifact.outputs}


def _artifact(source: str, kind: str, accepted: Accepted) -> Artifact:
    path = Path(source)
    if kind == "torch-factory":
        file = module_file(source.partition(":")[0])
        if file is None:
            raise SourceError(f"{source}: its module has no file")
        path = file
    _, outputs = interface(load_model(accepted.path))
    inputs = tuple(leaf.spec() for leaf in accepted.leaves)
    return Artifact(
        path, kind, inputs, _ordered(outputs, accepted.outputs), sha256_of(path), "", accepted.initial_state
    )


def _ordered(outputs: Sequence[TensorSpec], names: Sequence[str]) -> tuple[TensorSpec, ...]:
    found: dict[str, Any] = {spec.name: spec for spec in outputs}
    return tuple(found[name] for name in names)

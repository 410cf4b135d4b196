"""An opened PyTorch model, and its conversion: both ask the worker that has loaded it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from convertkit.artifact import Artifact, sha256_of
from convertkit.converters.pytorch.model.interface import Interface
from convertkit.converters.pytorch.model.opening import Model, Opening
from convertkit.converters.pytorch.model.remote import RemoteModel
from convertkit.converters.pytorch.read.safety import few
from convertkit.converters.pytorch.routes.canonical import MADE_BY
from convertkit.converters.pytorch.routes.conversion import Accepted, Judging, check_twin, convert
from convertkit.errors import SourceError
from convertkit.parity.feeds import is_brief
from convertkit.progress import Progress
from convertkit.recipe import ExportOptions
from convertkit.references import module_file
from convertkit.stage import FLOAT32, Feed, Outputs, Runner, Settled, Stage, Tolerance


class TorchSource:
    """A PyTorch model and the worker that holds it, at the first of its ``interfaces``; use :meth:`opened`."""

    def __init__(
        self, artifact: Artifact, notes: tuple[str, ...], interfaces: tuple[Interface, ...], stage: TorchStage
    ) -> None:
        self.artifact = artifact
        self.notes = notes
        self.implied_sizes = interfaces[0].implied_sizes(interfaces[-1])
        self.known_sizes = interfaces[0].known_sizes
        self._interfaces = interfaces
        self._stage = stage

    @classmethod
    def opened(cls, opening: Opening, options: ExportOptions, workdir: Path, progress: Progress) -> TorchSource:
        """The model as running it describes it; nothing is converted yet."""
        remote, model = RemoteModel(opening), opening.model
        try:
            path = _path(model)
            digest = sha256_of(path)  # while the worker imports torch
            seconds = remote.loaded()
            progress.status("running the model to find its inputs and outputs")
            interfaces = remote.described(options.seed, workdir)
        except BaseException:
            remote.close()
            raise
        first = interfaces[0]
        artifact = Artifact(path, model.kind, first.inputs, first.outputs, digest, "", first.initial_state)
        judging = Judging(options.seed, edges=_runs_edges(options), brief=is_brief(artifact.size_bytes))
        stage = TorchStage(remote, interfaces, judging, seconds, progress)
        return cls(artifact, (*trust_notes(model), *first.notes), interfaces, stage)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage.remote.close()

    def settled(self, settled: Settled) -> TorchSource:
        """The same source as its conversion has left it; the worker is still closed by this one."""
        kept = [place for place, each in enumerate(self._interfaces) if each.inputs == settled.artifact.inputs]
        return TorchSource(settled.artifact, settled.notes, self._interfaces[kept[0] :], self._stage)

    def runner(self) -> Runner:
        return TorchRunner(self._stage.remote, self._interfaces[0], self.artifact)

    def stage(self) -> Stage:
        return self._stage


class TorchStage:
    """PyTorch → canonical ONNX.  It converts once: run again, it gives what it has made."""

    name, version = MADE_BY.split()
    accepts = frozenset(
        {"torchscript", "pt2", "state-dict", "safetensors", "sharded", "pickled-module", "torch-factory"}
    )
    produces = "onnx"

    def __init__(
        self,
        remote: RemoteModel,
        interfaces: tuple[Interface, ...],
        judging: Judging,
        seconds: Mapping[str, float],
        progress: Progress,
    ) -> None:
        self.remote = remote
        self.settled: Settled | None = None
        self._interfaces = interfaces
        self._judging = judging
        self._seconds = seconds
        self._progress = progress
        self._accepted: Accepted | None = None

    @property
    def tolerance(self) -> Tolerance:
        """That of the accepted route: what it rounds to is known once it is taken."""
        return FLOAT32 if self._accepted is None else self._accepted.tolerance

    @property
    def options(self) -> Mapping[str, object]:
        """The route taken, how each that was tried ended, and what torch itself took."""
        if self._accepted is None:
            return {}
        attempts = self._accepted.attempts
        export = sum(each.torch_seconds for each in attempts)
        torch = {name: round(value, 3) for name, value in {**self._seconds, "export": export}.items()}
        return {
            "route": self._accepted.route,
            "attempts": [each.as_json() for each in attempts],
            "torch_seconds": torch,
        }

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        tries = workdir / "attempts"
        accepted = self._accepted or self._converted(tries)
        made = _linked(accepted.artifact, workdir)
        self._accepted = replace(accepted, artifact=made)
        shutil.rmtree(tries, ignore_errors=True)
        interface = accepted.interface
        notes = (*trust_notes(self.remote.model), *interface.notes, *accepted.narrowed_notes(self._interfaces[0]))
        left = replace(source, inputs=interface.inputs, outputs=made.outputs, initial_state=made.initial_state)
        self.settled = Settled(left, notes)
        return made

    def _converted(self, workdir: Path) -> Accepted:
        accepted = convert(self.remote, self._interfaces, workdir, self._judging, self._progress)
        if self.remote.model.kind == "torchscript" and self.remote.model.factory is not None:
            check_twin(self.remote, accepted, self._interfaces[0].sizes, self._judging.seed)
        return accepted


class TorchRunner:
    """Runs the source model itself, in the worker."""

    def __init__(self, remote: RemoteModel, interface: Interface, artifact: Artifact) -> None:
        self._remote = remote
        self._interface = interface
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
        outputs = self._remote.run(self._interface, arrays, fresh=self._fresh)
        self._fresh = False
        return {spec.name: outputs[spec.name] for spec in self._artifact.outputs}


def trust_notes(model: Model) -> tuple[str, ...]:
    """What was executed of a file, or left unread, because it holds more than tensors."""
    name = Path(model.source).name
    if model.kind == "pickled-module":
        return (f"--trust pickle: code stored in {name} was executed",)
    return (f"of {name} the tensors alone were read; no {few(model.foreign)} was made",) if model.foreign else ()


def _linked(made: Artifact, folder: Path) -> Artifact:
    """The artifact in another folder, with the weights of a large model, which lie beside it, and its state's start."""
    state = made.initial_state
    for file in (*made.path.parent.glob(f"{made.path.name}*"), *filter(None, [state])):
        os.link(file, folder / file.name)
    return replace(made, path=folder / made.path.name, initial_state=state and folder / state.name)


def _runs_edges(options: ExportOptions) -> bool:
    """Whether the proof will run edge inputs of generated feeds, at sizes that are known already."""
    return options.calib is None and not options.static


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

"""From a PyTorch model to ONNX: routes tried one after the other, accepted by numbers alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convertkit.artifact import Artifact
from convertkit.converters.pytorch.model.check_inputs import check_feeds
from convertkit.converters.pytorch.model.interface import Interface
from convertkit.converters.pytorch.model.leaves import counted
from convertkit.converters.pytorch.model.remote import RemoteModel
from convertkit.converters.pytorch.routes.attempts import Attempt, defeat, doing, failed
from convertkit.converters.pytorch.routes.canonical import canonical
from convertkit.converters.pytorch.routes.judge import Inputs, Judge
from convertkit.errors import ConvertKitError, ParityError
from convertkit.parity.replay import compare_recordings
from convertkit.parity.values import Recording
from convertkit.progress import Progress
from convertkit.stage import Tolerance
from convertkit.twins import Twins

ROUTES: Mapping[str, tuple[str, ...]] = {
    "torchscript": ("torchscript-exporter", "replay"),
    "pt2": ("program", "torch.export"),
    "eager": ("torch.export", "script", "script-replay", "trace-replay", "trace"),
}
FOR_STATE: Mapping[str, tuple[str, ...]] = {
    "torchscript": ("replay",),
    "pt2": ("torch.export",),
    "eager": ("torch.export", "script-replay"),
}


@dataclass(frozen=True, slots=True)
class Judging:
    """How routes are judged: the seed of the inputs, whether edge inputs are among them, and few or all of those."""

    seed: int
    edges: bool
    brief: bool


@dataclass(frozen=True, slots=True)
class Accepted:
    """Canonical ONNX that computes what the model computes, the interface it has, and all that was tried."""

    artifact: Artifact
    tolerance: Tolerance
    interface: Interface
    attempts: tuple[Attempt, ...]

    @property
    def route(self) -> str:
        return self.attempts[-1].route

    def narrowed_notes(self, wanted: Interface) -> tuple[str, ...]:
        """Why its batch is fixed where ``wanted`` has it dynamic; nothing where it is as wanted."""
        if self.interface == wanted:
            return ()
        why = next((each.failure for each in reversed(self.attempts) if each.dynamic), "")
        return (f"the batch is fixed: no route to ONNX keeps it dynamic ({why})",)


def convert(
    remote: RemoteModel, interfaces: Sequence[Interface], workdir: Path, judging: Judging, progress: Progress
) -> Accepted:
    """The first route whose result matches the model, at the first of ``interfaces`` for which there is one.

    Raises ``ParityError`` where routes led to ONNX and none of it matches, ``Unsupported`` where none led there.
    """
    attempts: list[Attempt] = []
    with Twins() as twins:
        for interface in interfaces:
            inputs = Inputs.of(interface, judging.seed, edges=judging.edges, brief=judging.brief)
            judge = Judge(remote, interface, inputs, twins)
            for route in routes_for(remote.model.kind, interface):
                folder = workdir / f"attempt-{len(attempts)}"
                attempt, made = _attempted(remote, route, interface, judge, folder, progress)
                attempts.append(attempt)
                if made is not None and not attempt.failure:
                    return Accepted(*made, interface, tuple(attempts))
    raise defeat(attempts, interfaces[-1].unset, counted(interfaces[-1].leaves))


def routes_for(kind: str, interface: Interface) -> Sequence[str]:
    """The routes for a model, likeliest first.

    A program whose batch is a number there is not what the module with other batches computes: it comes last.
    """
    routes = (FOR_STATE if interface.slots else ROUTES)[kind if kind in ROUTES else "eager"]
    return routes[::-1] if interface.rebatched else routes


def _attempted(
    remote: RemoteModel, route: str, interface: Interface, judge: Judge, folder: Path, progress: Progress
) -> tuple[Attempt, tuple[Artifact, Tolerance] | None]:
    """How taking one route ended, and the ONNX that it led to, if any."""
    folder.mkdir(parents=True)
    progress.status(doing(route, dynamic=interface.is_dynamic))
    begun = time.perf_counter()
    reply = remote.exported(route, interface, judge.inputs.example, folder / "exported.onnx")
    attempt = Attempt(route, interface.is_dynamic, time.perf_counter() - begun, reply.get("seconds", 0.0))
    if "failed" in reply:
        return failed(attempt, reply), None
    judge.ask()  # the worker computes while we simplify
    progress.status("simplifying the exported model")
    try:
        made = canonical(folder / "exported.onnx", interface)
    except ConvertKitError as error:
        return replace(attempt, failure=str(error)), None
    progress.status("checking the exported model on varied inputs")
    return judge.judged(attempt, *made), made


def check_twin(remote: RemoteModel, accepted: Accepted, sizes: Sequence[Mapping[str, int]], seed: int) -> None:
    """Raise ``ParityError`` where an archive gives other results than the module that it was made from.

    A trace may have kept one path of several.
    """
    feeds = check_feeds(accepted.interface.leaves, sizes, seed)
    archive, twin = (
        Recording(title, accepted.artifact, feeds, remote.computing(accepted.interface, feeds, kind=kind)())
        for title, kind in (("the archive", "torchscript"), ("its module", "torchscript-twin"))
    )
    if failures := compare_recordings(twin, archive, accepted.tolerance).failures:
        model = remote.model
        raise ParityError(
            f"{Path(model.source).name} differs from {model.factory} on varied inputs: {failures[0]}; "
            "a trace keeps one path of Python branches and loops that depend on data\n"
            "  try   torch.jit.script(model), torch.cond or torch.while_loop"
        )

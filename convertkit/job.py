"""The main job: one source, one or more targets, proof at every step, complete folders or none."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convertkit import delivery, plugins
from convertkit.ahead import Ahead
from convertkit.artifact import Artifact
from convertkit.errors import UsageError
from convertkit.options import relevance
from convertkit.progress import Progress, Silent
from convertkit.quiet import quiet_libraries
from convertkit.recipe import ExportOptions
from convertkit.stage import Converter, Feed, Foresee, ForeseeingConverter, Outputs, Source, Target

if TYPE_CHECKING:
    from convertkit.early import Early
    from convertkit.roads import Finished, OnStep


@dataclass(frozen=True, slots=True)
class Result:
    """A delivered export: ``path`` is its folder, ``artifact`` the model in it, ``report`` report.json."""

    path: Path
    artifact: Artifact
    report: Mapping[str, Any]

    def run(self, feed: Feed) -> Outputs:
        """Execute the artifact on one feed, in the source's layout and dtype."""
        with plugins.runner(self.artifact) as runner:
            return runner.run(feed)


def export_all(
    options: ExportOptions, progress: Progress | None = None, on_step: OnStep | None = None
) -> tuple[Result, ...]:
    """Export to every target of ``options``; all folders are delivered, or none.

    Raises a ``ConvertKitError``.  After a ``ParityError`` only ``<folder>.failed`` is left.
    """
    targets = _targets(options)
    relevance.check_request(options, targets)
    folders = _folders(options)
    for folder in folders.values():
        delivery.check_free(folder, force=options.force)
    converter = plugins.converter_for(options.source)
    relevance.check_source(options, converter)
    root = Path(options.output) if options.output else next(iter(folders.values()))
    with quiet_libraries(verbose=options.verbose), delivery.workspace(root) as workdir, ExitStack() as stack:
        ahead = stack.enter_context(Ahead())
        early: list[Early | None] = []

        def foresee(artifact: Artifact, source_sha256: str) -> None:
            if not early:
                from convertkit.early import begun

                told = progress or Silent()
                early.append(begun(options, targets, artifact, source_sha256, workdir, told, ahead))

        source = stack.enter_context(_opened(converter, options, workdir / "source", foresee))
        from convertkit import roads  # a second of imports, done while a worker imports its framework

        begun_early = early[0] if early else None
        run = roads.Run(options, source, workdir, progress or Silent(), on_step, ahead, begun_early)
        run.warn_of_calibration()
        finished = [roads.finish(run, target) for target in targets]
        return _delivered(options, root, folders, finished, workdir)


def _opened(converter: Converter, options: ExportOptions, workdir: Path, foresee: Foresee) -> Source:
    if isinstance(converter, ForeseeingConverter):
        return converter.open_foreseen(options.source, options, workdir, foresee)
    return converter.open(options.source, options, workdir)


def _targets(options: ExportOptions) -> list[Target]:
    targets = [plugins.target(name) for name in options.targets]
    if not targets:
        raise UsageError(f"no target is named; there are: {', '.join(plugins.target_names())}")
    known = [each.name for each in plugins.passes()]
    if unknown := [name for name in options.passes if name not in known]:
        raise UsageError(f"--pass {unknown[0]}: no such pass; there are: {', '.join(known)}")
    for target in targets:
        if options.precision not in target.precisions:
            raise UsageError(
                f"target {target.name} does not deliver {options.precision}; it has: {', '.join(target.precisions)}"
            )
    return targets


def _folders(options: ExportOptions) -> dict[str, Path]:
    """Output folder by target: DIR, DIR/<target> where there are several, or ``<stem>-<target>``."""
    if options.output is None:
        stem = Path(options.source.rpartition(":")[2] or options.source).stem
        return {name: Path(f"{stem}-{name}") for name in options.targets}
    if len(options.targets) == 1:
        return {options.targets[0]: Path(options.output)}
    return {name: Path(options.output) / name for name in options.targets}


def _delivered(
    options: ExportOptions, root: Path, folders: Mapping[str, Path], finished: Sequence[Finished], workdir: Path
) -> tuple[Result, ...]:
    failed = [each for each in finished if each.failure is not None]
    if failed:
        for each in failed:
            _leave_failed(each, folders[each.target])
        assert failed[0].failure is not None
        raise failed[0].failure
    if options.output is not None and len(finished) > 1:
        delivery.deliver(workdir / "finished", root, force=options.force)
    else:
        for each in finished:
            delivery.deliver(each.folder, folders[each.target], force=options.force)
    return tuple(_result(each, folders[each.target]) for each in finished)


def _leave_failed(failed: Finished, folder: Path) -> None:
    place = folder.with_name(folder.name + ".failed")
    place.parent.mkdir(parents=True, exist_ok=True)
    delivery.deliver(failed.folder, place, force=True)


def _result(finished: Finished, folder: Path) -> Result:
    artifact = finished.artifact
    state = artifact.initial_state
    moved = dataclasses.replace(
        artifact,
        path=folder / artifact.path.name,
        initial_state=None if state is None else folder / state.name,
    )
    return Result(folder, moved, finished.report)

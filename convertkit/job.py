"""The main job: one source, one or more targets, proof at every step, a folder for each that is complete or absent."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convertkit import delivery, plugins
from convertkit.cached import VARIABLE
from convertkit.errors import ConvertKitError, TargetsFailed, Unsupported, UsageError
from convertkit.options import relevance
from convertkit.progress import Progress, Silent
from convertkit.quiet import quiet_libraries
from convertkit.recipe import ExportOptions
from convertkit.result import Result
from convertkit.stage import Target
from convertkit.steps.describe import Describe
from convertkit.steps.device import with_measured
from convertkit.target_options import chosen, flag
from convertkit.tasks.executor import Executor
from convertkit.tasks.local import Local
from convertkit.tasks.resources import Resources
from convertkit.tasks.scheduler import Scheduler
from convertkit.tasks.store import Store

if TYPE_CHECKING:
    from convertkit.steps.finish import Finished
    from convertkit.steps.session import OnStep


_CACHE_BYTES = 10 << 30
"""Beyond it, what was used least recently goes."""
_MEMORY_SHARE = 0.75
"""Of this machine's memory, for what tasks hold at once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one target: what was delivered, or the error, with the report and its folder if there is one."""

    target: str
    result: Result | None = None
    error: ConvertKitError | None = None
    report: Mapping[str, Any] | None = None
    left: Path | None = None


OnOutcome = Callable[[Outcome], None]


def export_all(
    options: ExportOptions, progress: Progress | None = None, on_step: OnStep | None = None
) -> tuple[Result, ...]:
    """Export to every target of ``options``, and return what was delivered.

    Raises a ``ConvertKitError``: ``TargetsFailed`` where several were asked for and failed in ways of their own, or
    others were delivered.  After a ``ParityError`` only
    ``<folder>.failed`` is left.
    """
    outcomes = list[Outcome]()
    run(options, progress, on_step, outcomes.append)
    failed = failure(outcomes)
    if failed is not None:
        raise failed
    return tuple(each.result for each in outcomes if each.result is not None)


def failure(outcomes: Sequence[Outcome]) -> ConvertKitError | None:
    """The error that ends an export with these outcomes; None where every target was delivered."""
    errors = {each.target: each.error for each in outcomes if each.error is not None}
    delivered = {each.target: str(each.result.path) for each in outcomes if each.result is not None}
    shared = not delivered and len({str(error) for error in errors.values()}) == 1
    if not errors:
        return None
    if not shared:
        return TargetsFailed(errors, delivered)
    error = next(iter(errors.values()))
    return error.without_ways(errors) if isinstance(error, Unsupported) else error


def run(options: ExportOptions, progress: Progress | None, on_step: OnStep | None, on_outcome: OnOutcome) -> None:
    """Export to every target, and tell what became of each as soon as it is delivered or has failed.

    What fails before there is an ONNX model fails for all of them and is raised, like the only target's failure.
    """
    targets = targets_of(options)
    relevance.check_request(options, targets)
    folders = _folders(options)
    protected = precious(options)
    for folder in folders.values():
        delivery.check_free(folder, force=options.force, precious=protected)
    relevance.check_source(options, plugins.converter_for(options.source))
    root = Path(options.output) if options.output else next(iter(folders.values()))
    told = progress or Silent()
    with (
        quiet_libraries(verbose=options.verbose),
        delivery.workspace(root) as work,
        scheduled(options, work.path, told) as (scheduler, resources, store),
    ):
        describe = Describe(options, kept=store.is_shared)
        scheduler.hold(describe)
        scheduler.submit(describe)
        if not scheduler.was_cached(describe):
            from convertkit.steps.ahead import get_ready

            get_ready()
        from convertkit.steps.session import Place, Session

        options = with_measured(options, targets, scheduler, describe)
        place = Place(scheduler, resources, told, on_step, work.path / "finished", store.is_shared)
        scheduler.course.expect_parts(place.part(each.name) for each in targets)
        session = Session(options, describe, place)
        session.warn_of_calibration()
        session.begin(targets)
        for target in targets:
            folder = folders[target.name]
            try:
                finished = session.to_target(target)
            except ConvertKitError as error:
                if len(targets) == 1 or not session.has_onnx:
                    raise
                on_outcome(Outcome(target.name, error=error))
                continue
            on_outcome(_delivered(finished, folder, work, options, protected))


@contextmanager
def scheduled(options: ExportOptions, work: Path, told: Progress) -> Iterator[tuple[Scheduler, Resources, Store]]:
    """What runs tasks as ``options`` say (jobs, cache, scheduler), with temporary files below ``work``."""
    with ExitStack() as stack:
        resources = stack.enter_context(Resources(work))
        cache = options.cache if options.cache is not None else os.environ.get(VARIABLE)
        store = stack.enter_context(_store(cache, work, told))
        executor, jobs = _executor(options)
        yield stack.enter_context(Scheduler(executor, store, resources, told, jobs, _memory_bytes())), resources, store


def _store(cache: str | None, work: Path, progress: Progress) -> Store:
    """What was made by earlier exports, where there is a ``cache``; else a store for this one alone."""
    if not cache:
        return Store.temporary(work / "tasks")
    return Store.at(Path(cache), _CACHE_BYTES, spare=work, warn=progress.warn)


def _executor(options: ExportOptions) -> tuple[Executor, int]:
    """Where tasks run, and how many at once."""
    if options.scheduler is None:
        return Local(options.jobs), options.jobs
    from convertkit.tasks.dask import Dask

    cluster = Dask(options.scheduler)
    return cluster, max(options.jobs, cluster.jobs)


def _memory_bytes() -> int:
    return int(_MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def precious(options: ExportOptions) -> dict[str, str]:
    """Paths that the export reads, and what to call them."""
    read = {delivery.SOURCE: options.source, "the data": options.calib, "the labelled data": options.eval}
    read["the labels"] = options.label_file
    for part in [part for name in options.targets for part in plugins.parts_of(plugins.target(name), options)]:
        given = chosen(part, options).items()
        read |= {flag(part.name, key): str(value) for key, value in given if isinstance(value, Path)}
    return {path: title for title, path in read.items() if isinstance(path, str)}


def targets_of(options: ExportOptions) -> list[Target]:
    """The targets that are asked for; ``UsageError`` where one is not known, or does not deliver the precision."""
    targets = [plugins.target(name) for name in options.targets]
    if not targets:
        raise UsageError(f"no target is named; there are: {', '.join(plugins.target_names())}")
    known = [each.name for each in plugins.passes()]
    if unknown := [name for name in options.passes if name not in known]:
        raise UsageError(f"--pass {unknown[0]}: no such pass; there are: {', '.join(known)}")
    for target in targets:
        relevance.check_precision(options, target)
    return targets


def _folders(options: ExportOptions) -> dict[str, Path]:
    """Output folder by target: DIR, DIR/<target> where there are several, or ``<stem>-<target>``."""
    if options.output is None:
        source = Path(options.source.rpartition(":")[2] or options.source)
        stem = (source if source.stem.strip(".") else source.resolve()).stem  # "." and ".." have a name of their own
        return {name: Path(f"{stem}-{name}") for name in options.targets}
    if len(options.targets) == 1:
        return {options.targets[0]: Path(options.output)}
    return {name: Path(options.output) / name for name in options.targets}


def _delivered(
    finished: Finished, folder: Path, work: delivery.Workspace, options: ExportOptions, precious: Mapping[str, str]
) -> Outcome:
    if finished.failure is not None:
        left = delivery.leave_failed(finished.folder, folder, work, precious)
        return Outcome(finished.target, error=finished.failure, report=finished.report, left=left)
    delivery.deliver(finished.folder, folder, work, force=options.force)
    return Outcome(finished.target, _result(finished, folder), report=finished.report)


def _result(finished: Finished, folder: Path) -> Result:
    artifact = finished.artifact
    state = artifact.initial_state
    moved = dataclasses.replace(
        artifact,
        path=folder / artifact.path.name,
        initial_state=None if state is None else folder / state.name,
    )
    return Result(folder, moved, finished.report)

"""``convertkit run``: every cell of a recipe made in one graph, judged, and published together or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from convertkit import delivery, job, plugins
from convertkit.errors import CellsFailed, UsageError
from convertkit.options import relevance
from convertkit.progress import Progress, Silent
from convertkit.quiet import quiet_libraries, visible_stderr
from convertkit.recipe import THIS, ExportOptions
from convertkit.release import folder, making, signing
from convertkit.release.cells import Cell, cells_of, chosen
from convertkit.release.judging import Baseline, judged
from convertkit.release.recipe import Recipe
from convertkit.release.result import CellResult, Release

OnCell = Callable[[CellResult], None]
OnRelease = Callable[[Release], None]


@dataclass(frozen=True, slots=True)
class Running:
    """How a recipe is run; None for ``output`` is what the recipe says, for ``cache`` what the environment says."""

    output: str | None = None
    only: tuple[str, ...] = ()
    force: bool = False
    jobs: int = 2
    cache: str | None = None
    scheduler: str | None = None
    verbose: bool = False
    sign: str | None = None
    """A private key in PEM."""

    @property
    def options(self) -> ExportOptions:
        """The same as options of an export, which name no source."""
        return ExportOptions("", jobs=self.jobs, cache=self.cache, scheduler=self.scheduler, verbose=self.verbose)


def run(
    recipe: Recipe,
    running: Running,
    progress: Progress | None = None,
    on_cell: OnCell | None = None,
    on_release: OnRelease = lambda release: None,
) -> Release:
    """Make every cell that is asked for, judge it, and publish the release if all required cells pass.

    Else what there is lies in ``<release>.failed``, and the value says so: :func:`failure` is its error.
    ``on_release`` is told as soon as either lies there.  Raises a ``ConvertKitError`` for what is wrong before any
    work.
    """
    cells = chosen(cells_of(recipe), running.only)
    output = Path(running.output).expanduser() if running.output else recipe.output
    check(cells)
    if running.sign is not None:
        signing.check_key(Path(running.sign).expanduser())
    precious = _precious(recipe, cells)
    delivery.check_free(output, force=running.force, precious=precious)
    baseline = None if recipe.baseline is None else Baseline.at(recipe.baseline)
    told = progress or Silent()
    tell = _Told(on_cell, baseline)
    with (
        quiet_libraries(verbose=running.verbose),
        delivery.workspace(output) as work,
        job.scheduled(running.options, work.path, told) as (scheduler, resources, store),
    ):
        graph = making.Graph(scheduler, resources, store, work.path, told, running.jobs, running.verbose)
        made = making.make(cells, graph, recipe.golden, tell.made)
        results = [tell.judged(each) for each in made]
        finished = work.path / "release"
        release = folder.write(finished, recipe, running.only, output, made, results)
        if running.sign is not None:
            signing.sign(finished, Path(running.sign).expanduser())
        if release.passed:
            delivery.deliver(finished, output, work, force=running.force)
            release = replace(release, path=output)
        else:
            release = replace(release, path=delivery.leave_failed(finished, output, work, precious))
        on_release(release)
        return release


def failure(release: Release) -> CellsFailed | None:
    """The error that ends a run with this release; None where it was published."""
    if release.passed:
        return None
    failed = [each for each in release.cells if each.required and not each.passed]
    return CellsFailed({each.name: (each.error, each.code) for each in failed}, len(release.cells), str(release.path))


def check(cells: Sequence[Cell]) -> None:
    """Raise a ``ConvertKitError`` for what cannot work or would do nothing, before any source is opened."""
    for cell in cells:
        job.targets_of(cell.options)
        relevance.check_request(cell.options, [plugins.target(cell.target)])
        if THIS in cell.options.device:
            raise UsageError(
                f"{cell.name}: the device {THIS} is measured anew on each machine, and a release is the same on all; "
                "name a device, or export by itself"
            )
    for cell in {each.model.name: each for each in cells}.values():
        relevance.check_source(cell.options, plugins.converter_for(cell.options.source))


def _precious(recipe: Recipe, cells: Sequence[Cell]) -> Mapping[str, str]:
    """Paths that the run reads, and what to call them."""
    found = {str(recipe.baseline): "the baseline"} if recipe.baseline is not None else {}
    for cell in cells:
        found |= job.precious(cell.options)
        if cell.model.license_file is not None:
            found[cell.model.license_file] = "the licence"
    return found


class _Told:
    """Judges each cell once and tells of it: at once, or at the end where the baseline's latency is to be measured."""

    def __init__(self, on_cell: OnCell | None, baseline: Baseline | None) -> None:
        self._on_cell = on_cell
        self._baseline = baseline
        self._guard = threading.Lock()
        self._results: dict[str, CellResult] = {}

    def made(self, made: making.MadeCell) -> None:
        """A cell is there; others are still being made."""
        if self._baseline is None:
            self.judged(made)

    def judged(self, made: making.MadeCell) -> CellResult:
        """The cell's result."""
        if made.cell.name not in self._results:
            result = judged(made, self._baseline)
            if self._on_cell is not None:
                with self._guard, visible_stderr():
                    self._on_cell(result)
            self._results[made.cell.name] = result
        return self._results[made.cell.name]

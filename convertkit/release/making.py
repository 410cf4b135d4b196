"""Making the cells of a release in one graph of tasks: what they share is made once."""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convertkit import plugins
from convertkit.defects import told
from convertkit.errors import ConvertKitError
from convertkit.progress import Progress
from convertkit.quiet import visible_stderr
from convertkit.recipe import ExportOptions
from convertkit.release import golden, memory
from convertkit.release.cells import Cell
from convertkit.release.keys import Keys
from convertkit.report.jsonable import jsonable
from convertkit.result import REPORT, load, read_json
from convertkit.steps import live
from convertkit.steps.describe import Describe
from convertkit.tasks.resources import Resources
from convertkit.tasks.scheduler import Scheduler
from convertkit.tasks.store import Store

if TYPE_CHECKING:
    from convertkit.steps.session import Session


@dataclass(frozen=True, slots=True)
class Kept:
    """A finished cell as a cache holds it: ``folder`` has what is delivered in ``cell``, and golden vectors.

    ``within`` is what its outputs may differ by when those are replayed, ``memory_bytes`` its peak where that is asked.
    """

    folder: Path
    seconds: float
    within: Mapping[str, float]
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class MadeCell:
    """What became of a cell before its gates: ``folder`` is complete, or holds the report of a failure.

    ``golden`` is the file with its golden vectors, and ``within`` what each output may differ by when they are
    replayed.  ``memory_bytes`` is its peak where a gate asks for it.  ``cached`` says that an earlier run has made it.
    """

    cell: Cell
    folder: Path | None = None
    golden: Path | None = None
    within: Mapping[str, float] | None = None
    error: ConvertKitError | None = None
    seconds: float = 0.0
    cached: bool = False
    memory_bytes: int | None = None

    @property
    def report(self) -> Mapping[str, Any] | None:
        """report.json, where a step has run."""
        return None if self.folder is None else read_json(self.folder / REPORT)


@dataclass(frozen=True, slots=True)
class Graph:
    """What runs tasks, and where cells are put."""

    scheduler: Scheduler
    resources: Resources
    store: Store
    work: Path
    progress: Progress
    jobs: int
    verbose: bool = False
    """Whether tracebacks of internal errors are shown."""


OnCell = Callable[[MadeCell], None]


def make(cells: Sequence[Cell], graph: Graph, samples: int, on_cell: OnCell) -> list[MadeCell]:
    """Every cell, in order; ``on_cell`` is told of each as soon as it is there, in the thread that made it.

    A cell that fails is a result like any other.  With one job they are made one after the other.
    """
    maker = _Maker(cells, graph, samples, on_cell)
    kept = {cell.name: maker.kept(cell) for cell in cells}  # one after the other: threads only wait for each other here
    with ThreadPoolExecutor(1 if graph.jobs == 1 else 2 * graph.jobs, "cell") as threads:
        try:
            futures = {cell.name: threads.submit(maker.cell, cell) for cell in cells if kept[cell.name] is None}
            return [kept[cell.name] or futures[cell.name].result() for cell in cells]
        except BaseException as error:  # nothing more is begun
            threads.shutdown(wait=False, cancel_futures=True)
            if not isinstance(error, Exception):  # Ctrl-C
                graph.scheduler.interrupt()
            graph.scheduler.close()
            raise


class _Maker:
    def __init__(self, cells: Sequence[Cell], graph: Graph, samples: int, on_cell: OnCell) -> None:
        self._graph = graph
        self._samples = samples
        self._keys = Keys(samples)
        self._on_cell = on_cell
        self._guard = threading.Lock()
        self._left = [cell.model.name for cell in cells]
        groups: list[_Group] = []
        self._group_of: dict[str, _Group] = {}
        for cell in cells:
            shared = _shared(cell)
            group = next((each for each in groups if each.shared == shared and each.takes(cell)), None)
            if group is None:
                groups.append(group := _Group(graph, graph.work / "finished" / str(len(groups)), shared))
            self._group_of[cell.name] = group
            group.cells.append(cell)
        graph.scheduler.course.expect_parts(map(self._part, cells))

    def kept(self, cell: Cell) -> MadeCell | None:
        """The cell as an earlier run has made it; None where it is to be made, which tells what is wrong with it."""
        store = self._graph.store
        try:
            key = self._key(cell) if store.is_shared else None
        except Exception:  # told where the cell is made, which meets it again
            if self._graph.scheduler.is_stopping:
                raise
            return None
        if key is None or (kept := store.lookup(key, Kept)) is None:
            return None
        vectors = _if_there(kept.folder / golden.FILE)
        made = MadeCell(cell, kept.folder / "cell", vectors, kept.within, None, kept.seconds, True, kept.memory_bytes)
        self._finish(cell, made)
        return made

    def cell(self, cell: Cell) -> MadeCell:
        """Make it; the model's source is closed behind its last cell."""
        began = time.perf_counter()
        try:
            made = self._made(cell)
        except ConvertKitError as error:
            made = MadeCell(cell, error=error, seconds=time.perf_counter() - began)
        except Exception as error:  # one cell's; the others go on
            if self._graph.scheduler.is_stopping:
                raise
            internal = ConvertKitError(told(error, self._shown(cell, error)))
            made = MadeCell(cell, error=internal, seconds=time.perf_counter() - began)
        self._finish(cell, made)
        return made

    def _finish(self, cell: Cell, made: MadeCell) -> None:
        self._graph.scheduler.course.part_begun(self._part(cell), has_tasks=False)  # where none came to be known
        self._on_cell(made)
        self._close_behind(cell)

    def _shown(self, cell: Cell, error: Exception) -> str:
        """Where the error comes from, told at once with ``--verbose``; else how to see that."""
        if not self._graph.verbose:
            return " (--verbose shows where)"
        with visible_stderr():
            self._graph.progress.warn(f"{cell.name}: {''.join(traceback.format_exception(error)).rstrip()}")
        return ""

    def _made(self, cell: Cell) -> MadeCell:
        store, began = self._graph.store, time.perf_counter()
        key = self._key(cell) if store.is_shared else None
        made = self._group_of[cell.name].made(cell, self._samples)
        if key is None or made.error is not None or made.folder is None:
            return dataclasses.replace(made, seconds=time.perf_counter() - began)
        folder = store.folder(key)
        shutil.copytree(made.folder, folder / "cell")
        if made.golden is not None:
            shutil.copyfile(made.golden, folder / golden.FILE)
        kept = Kept(folder, time.perf_counter() - began, made.within or {}, made.memory_bytes)
        store.commit(key, folder, kept, Kept, title_of(cell))
        return dataclasses.replace(made, seconds=kept.seconds)

    def _key(self, cell: Cell) -> str | None:
        with self._guard:
            return self._keys.of(cell)

    def _part(self, cell: Cell) -> Hashable:
        return self._group_of[cell.name].outbox, cell.target

    def _close_behind(self, cell: Cell) -> None:
        with self._guard:
            self._left.remove(cell.model.name)
            is_last = cell.model.name not in self._left
        if is_last:
            live.close_source(cell.options, self._graph.resources)


def title_of(cell: Cell) -> str:
    """What a cache calls a finished cell."""
    return f"cell {cell.name}"


def _if_there(path: Path) -> Path | None:
    return path if path.is_file() else None


def _shared(cell: Cell) -> str:
    """Cells of a group differ by their targets alone, and share a session."""
    apart = ("targets", "target_options")
    options = {each.name: jsonable(getattr(cell.options, each.name)) for each in fields(ExportOptions)}
    return f"{cell.model.name} {sorted((name, repr(value)) for name, value in options.items() if name not in apart)}"


def _of_parts(cell: Cell) -> dict[str, Mapping[str, object]]:
    """What is given for the options of the cell's target and of those that it packages, by their names."""
    parts = plugins.parts_of(plugins.target(cell.target), cell.options)
    return {part.name: cell.options.target_options.get(part.name, {}) for part in parts}


class _Group:
    """Cells that share a session, which the first of them begins."""

    def __init__(self, graph: Graph, outbox: Path, shared: str) -> None:
        self.cells: list[Cell] = []
        self.shared = shared
        self._graph = graph
        self.outbox = outbox
        self._guard = threading.Lock()
        self._session: Session | None = None
        self._error: ConvertKitError | None = None

    def takes(self, cell: Cell) -> bool:
        """Whether a cell can share the session: for a target that both make, the same options are given."""
        known = {name: given for each in self.cells for name, given in _of_parts(each).items()}
        return all(known.get(name, given) == given for name, given in _of_parts(cell).items())

    def made(self, cell: Cell, samples: int) -> MadeCell:
        """The cell's finished folder, and its golden vectors beside it."""
        session = self._begun()
        finished = session.to_target(plugins.target(cell.target))
        if finished.failure is not None:
            return MadeCell(cell, finished.folder, error=finished.failure)
        file = self.outbox / f"{cell.target}-{golden.FILE}"
        vectors = golden.write(session.recording(cell.target), samples, file)
        result = load(finished.folder)
        within = None if vectors is None else golden.bounds(result, golden.read(vectors))
        peak = memory.peak_memory(result, vectors) if memory.GATE in cell.gates else None
        return MadeCell(cell, finished.folder, vectors, within, memory_bytes=peak)

    def _begun(self) -> Session:
        with self._guard:
            if self._error is not None:
                raise self._error
            if self._session is None:
                try:
                    self._session = self._new()
                except ConvertKitError as error:
                    self._error = error
                    raise
            return self._session

    def _new(self) -> Session:
        graph, options = self._graph, self._options()
        describe = Describe(options, kept=graph.store.is_shared)
        graph.scheduler.hold(describe)
        graph.scheduler.submit(describe)
        from convertkit.steps.session import Place, Session

        place = Place(graph.scheduler, graph.resources, graph.progress, None, self.outbox, graph.store.is_shared)
        session = Session(options, describe, place)
        session.warn_of_calibration()
        return session.begin([plugins.target(cell.target) for cell in self.cells])

    def _options(self) -> ExportOptions:
        options = self.cells[0].options
        targets = tuple(cell.target for cell in self.cells)
        given = {name: each for cell in self.cells for name, each in cell.options.target_options.items()}
        return dataclasses.replace(options, targets=targets, target_options=given)

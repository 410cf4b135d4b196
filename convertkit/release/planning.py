"""What a run would do: its cells, which of them a cache holds, and how long the others took before."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from convertkit.cached import VARIABLE
from convertkit.looking.tables import Shown, Table
from convertkit.release.cells import Cell, cells_of, chosen
from convertkit.release.keys import Keys
from convertkit.release.making import Kept, title_of
from convertkit.release.recipe import Recipe
from convertkit.release.run import Running, check
from convertkit.tasks.cache import CacheFolder
from convertkit.tasks.store import Store


@dataclass(frozen=True, slots=True)
class Planned:
    """A cell that is to be made; ``seconds`` is what it took when it was made last, None where nobody knows."""

    name: str
    folder: str
    required: bool
    gates: tuple[str, ...]
    cached: bool
    seconds: float | None


@dataclass(frozen=True, slots=True, repr=False)
class Plan(Shown):
    """A run before it begins: ``output`` is where the release will lie, ``jobs`` how many things are done at once."""

    output: Path
    jobs: int
    cells: tuple[Planned, ...]

    @property
    def seconds(self) -> float | None:
        """How long it will take, from what its cells took; None where that is not known of all that are to be made."""
        times = [each.seconds for each in self.cells if not each.cached]
        known = [each for each in times if each is not None]
        return sum(known) / self.jobs if len(known) == len(times) else None

    @property
    def headline(self) -> str:
        """The plan in a line."""
        cached = sum(each.cached for each in self.cells)
        about = "" if self.seconds is None else f", about {self.seconds:.0f} s"
        return f"{len(self.cells)} cells, {cached} cached{about}: {self.output}"

    def tables(self) -> tuple[Table, ...]:
        """A row for each cell."""
        rows = tuple((each.name, _state(each), ", ".join(each.gates)) for each in self.cells)
        return (Table("", ("cell", "", "gates"), rows),)

    def as_json(self) -> dict[str, object]:
        """The plan as ``--json`` prints it."""
        from convertkit.report.jsonable import jsonable

        return {"output": str(self.output), "seconds": self.seconds, "cells": jsonable(self.cells)}


def _state(cell: Planned) -> str:
    if cell.cached:
        return "cached"
    return "to be made" if cell.seconds is None else f"to be made, took {cell.seconds:.1f} s"


def plan(recipe: Recipe, running: Running) -> Plan:
    """What :func:`convertkit.release.run.run` would do; nothing is written but by whom entries of a cache are used."""
    cells = chosen(cells_of(recipe), running.only)
    check(cells)
    output = Path(running.output).expanduser() if running.output else recipe.output
    named = running.cache if running.cache is not None else os.environ.get(VARIABLE)
    place = Path(named).expanduser().resolve() if named else None
    if place is None or not CacheFolder(place).exists():
        return Plan(output, running.jobs, tuple(_planned(cell, False, None) for cell in cells))
    with Store.at(place, 1 << 62) as store:
        times = _times(store, {title_of(cell) for cell in cells})
        keys = Keys(recipe.golden)
        found = [(key := keys.of(cell)) is not None and store.contains(key) for cell in cells]
        planned = tuple(_planned(cell, hit, times.get(title_of(cell))) for cell, hit in zip(cells, found, strict=True))
    return Plan(output, running.jobs, planned)


def _planned(cell: Cell, cached: bool, seconds: float | None) -> Planned:
    return Planned(cell.name, cell.folder, cell.required, tuple(cell.gates), cached, seconds)


def _times(store: Store, titles: set[str]) -> dict[str, float]:
    """Seconds by the title of a cell, of the result that was used last."""
    found: dict[str, float] = {}
    for entry in store.entries():
        if entry.title in titles and (kept := store.lookup(entry.key, Kept)) is not None:
            found[entry.title] = kept.seconds
    return found

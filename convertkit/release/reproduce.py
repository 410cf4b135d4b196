"""Building a release again from what it has recorded, and comparing byte by byte."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from convertkit.errors import IntegrityError, SourceError, Untrusted, UsageError
from convertkit.looking.tables import Shown, Table
from convertkit.options.recipe_files import Written
from convertkit.progress import Progress
from convertkit.release import provenance
from convertkit.release.cells import cells_of, from_written
from convertkit.release.names import PROVENANCE, RELEASE
from convertkit.release.reading import absolute
from convertkit.release.recipe import Recipe
from convertkit.release.run import OnCell, Running, run
from convertkit.report.jsonable import jsonable
from convertkit.result import read_json
from convertkit.telemetry import without_telemetry

_OF_PLACE = ("root",)
"""What release.json says of where it lies."""


@dataclass(frozen=True, slots=True, repr=False)
class Reproduction(Shown):
    """What was built again: ``same`` files are equal byte by byte, ``different`` are not, or are in one of the two.

    ``versions`` are the libraries that have another version now, as ``old → new``.
    """

    path: Path
    same: tuple[str, ...]
    different: tuple[str, ...]
    versions: Mapping[str, str]

    @property
    def passed(self) -> bool:
        """Whether all is the same."""
        return not self.different

    @property
    def headline(self) -> str:
        """The verdict in a line."""
        if self.passed:
            return f"{self.path}: reproduced, {len(self.same)} files have the same bytes"
        return f"{self.path}: NOT reproduced, {len(self.different)} files differ, {len(self.same)} have the same bytes"

    def tables(self) -> tuple[Table, ...]:
        """Files that differ, and libraries that have another version now."""
        return (
            Table("other bytes", ("",), tuple((name,) for name in self.different)),
            Table("other versions", ("", ""), tuple(self.versions.items())),
        )

    def as_json(self) -> dict[str, Any]:
        """The result as ``--json`` prints it."""
        return {**jsonable(self), "path": str(self.path), "passed": self.passed}


@without_telemetry()
def reproduce(
    folder: str | PathLike[str],
    root: str | PathLike[str] | None = None,
    *,
    jobs: int = 2,
    cache: str | None = "",
    scheduler: str | None = None,
    run_code: bool = False,
    progress: Progress | None = None,
    on_cell: OnCell | None = None,
) -> Reproduction:
    """Build a release again from the recipe in it, and compare all that the same recipe writes with the same bytes.

    Args:
        folder: the release.
        root: the folder that its recipe lay in, to which its paths are relative; where the release says, without one.
        jobs: how many things are done at once.
        cache: a folder with results of earlier runs; none without one, since what is taken from there is not built.
        scheduler: address of a Dask cluster.
        run_code: let the release's recipe execute code: of ``trust`` and ``model``, of ``pkg.mod:callable``.
        progress: told of what is being done.
        on_cell: told of each cell.

    """
    path = Path(fspath(folder)).expanduser()
    if not (path / RELEASE).is_file():
        raise SourceError(f"{path} is not a release: it has no {RELEASE}")
    release = read_json(path / RELEASE)
    place = Path(fspath(root)).expanduser() if root is not None else path / str(release["root"])
    place = place.resolve()
    recipe = replace(_recipe(release, place), baseline=None)
    for model in recipe.models:
        if ":" not in model.source and not Path(model.source).exists():
            raise UsageError(
                f"{model.source} does not exist, the source of {model.name}\n"
                "  try   --root with the folder that the recipe lay in"
            )
    if not run_code and (name := _code_in(recipe)):
        raise Untrusted(
            f"the recipe of {path} executes code ({name})\n"
            "  try   --run-code, where you trust whoever has written the release"
        )
    with tempfile.TemporaryDirectory(prefix="convertkit-") as work:
        running = Running(str(Path(work) / "release"), tuple(release["only"]), False, jobs, cache, scheduler)
        made = run(replace(recipe, version=release["version"]), running, progress, on_cell)
        return _compared(path, release, made.path)


def _code_in(recipe: Recipe) -> str:
    """The first cell that executes code of somebody's, with the option that says so; empty where none does."""
    for cell in cells_of(recipe):
        options = cell.options
        named = {"source": options.source, "calib": options.calib, "eval": options.eval, "metric": options.metric}
        if options.trust or options.model is not None:
            return f"{cell.name}: {'trust' if options.trust else 'model'}"
        for name, value in named.items():
            if isinstance(value, str) and ":" in value and not Path(value).exists():
                return f"{cell.name}: {name} = {value}"
    return ""


def _recipe(release: Mapping[str, Any], root: Path) -> Recipe:
    name = str(release["name"])
    return from_written(Written(absolute(release["recipe"], root), name, {}), root, name)


def _compared(path: Path, release: Mapping[str, Any], made: Path) -> Reproduction:
    built = read_json(made / RELEASE)
    names = sorted({*release["files"], *built["files"]})
    same = [name for name in names if _bytes(path / name) == _bytes(made / name) is not None]
    different = [name for name in names if name not in same]
    if not different and _content(release) != _content(built):
        different.append(RELEASE)
    return Reproduction(path, tuple(same), tuple(different), _versions(path, made))


def _bytes(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _content(release: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in release.items() if key not in _OF_PLACE}


def _versions(path: Path, made: Path) -> dict[str, str]:
    old, new = (provenance.packages(read_json(each / PROVENANCE)) for each in (path, made))
    names = sorted({*old, *new})
    return {
        name: f"{old.get(name, 'none')} → {new.get(name, 'none')}" for name in names if old.get(name) != new.get(name)
    }


def failure(found: Reproduction) -> IntegrityError | None:
    """The error that ends a reproduction with other bytes; None where all are the same."""
    if found.passed:
        return None
    moved = "".join(f"\n  {name} is another version: {versions}" for name, versions in found.versions.items())
    more = f" and {len(found.different) - 5} more" if len(found.different) > 5 else ""
    return IntegrityError(f"{found.path} is not reproduced: {', '.join(found.different[:5])}{more} differ{moved}")

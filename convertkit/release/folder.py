"""The folder of a release: artifacts, golden vectors, and what says how it was made and what was found."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from convertkit import __version__
from convertkit.artifact import files_of, sha256_of
from convertkit.errors import DeliveryError
from convertkit.release import golden, page
from convertkit.release.bom import bom
from convertkit.release.making import MadeCell
from convertkit.release.names import BOM, LICENSES, PAGE, PROVENANCE, RELEASE, RESULTS, SCHEMA, SUMS
from convertkit.release.provenance import statement
from convertkit.release.reading import relative
from convertkit.release.recipe import Recipe
from convertkit.release.result import CellResult, Release
from convertkit.report.jsonable import dumps
from convertkit.result import read_json

_MEASURED = ("report.json", "report.html", PAGE, RESULTS, SUMS)
"""Files that hold times or machines, which another run writes in other words."""


def write(
    folder: Path,
    recipe: Recipe,
    only: Sequence[str],
    output: Path,
    made: Sequence[MadeCell],
    results: Sequence[CellResult],
) -> Release:
    """Write the new ``folder``, which will be ``output``, and say what it holds."""
    folder.mkdir(parents=True)
    passed = all(each.passed for each in results if each.required)
    cells = [_cell(folder, each, result) for each, result in zip(made, results, strict=True)]
    licenses = _licenses(folder, made)
    described = {
        "schema": SCHEMA,
        "convertkit": __version__,
        "name": recipe.name,
        "version": recipe.version,
        "passed": passed,
        "only": list(only),
        "root": os.path.relpath(recipe.root.resolve(), output.resolve()),
        "recipe": relative(recipe.written.tables, recipe.root),
        "models": _models(made, cells, licenses),
        "cells": cells,
    }
    (folder / BOM).write_text(
        dumps(bom(folder, recipe.name, recipe.version, described["models"], cells)), encoding="utf-8"
    )
    made_by = statement(described["recipe"], only, described["models"], cells)
    (folder / PROVENANCE).write_text(dumps(made_by), encoding="utf-8")
    described["files"] = {name: _file(folder / name) for name in steady_files(folder)}
    (folder / RELEASE).write_text(dumps(described), encoding="utf-8")
    _write_results(folder, recipe, passed, results)
    (folder / PAGE).write_text(page.render(recipe.name, recipe.version, passed, results), encoding="utf-8")
    write_sums(folder, {name: each["sha256"] for name, each in described["files"].items()})
    return Release(folder, recipe.name, passed, tuple(results))


def steady_files(folder: Path) -> list[str]:
    """Files that the same recipe writes with the same bytes, by their places in the folder; not release.json itself."""
    names = (file.relative_to(folder).as_posix() for file in files_of(folder))
    return sorted(name for name in names if Path(name).name not in _MEASURED and name != RELEASE)


def write_sums(folder: Path, known: Mapping[str, str] = MappingProxyType({})) -> None:
    """``SHA256SUMS`` of every file, as ``sha256sum --check`` reads it; ``known`` digests are not made again."""
    names = sorted(file.relative_to(folder).as_posix() for file in files_of(folder))
    lines = [f"{known.get(name) or sha256_of(folder / name)}  {name}\n" for name in names if name != SUMS]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def _file(path: Path) -> dict[str, Any]:
    return {"sha256": sha256_of(path), "bytes": path.stat().st_size}


def _write_results(folder: Path, recipe: Recipe, passed: bool, results: Sequence[CellResult]) -> None:
    found = {
        "schema": SCHEMA,
        "name": recipe.name,
        "version": recipe.version,
        "passed": passed,
        "baseline": recipe.baseline is not None,
        "cells": [each.as_json() for each in results],
    }
    (folder / RESULTS).write_text(dumps(found), encoding="utf-8")


def _cell(folder: Path, made: MadeCell, result: CellResult) -> dict[str, Any]:
    """Put a cell into the release, and say what it is: only what does not change from run to run."""
    cell = made.cell
    described: dict[str, Any] = {
        "name": cell.name,
        "model": cell.model.name,
        "target": cell.target,
        "precision": cell.precision,
        "required": cell.required,
        "passed": result.passed,
        "folder": result.folder,
        "artifact": None,
        "golden": None,
        "gates": dict(cell.gates),
    }
    if made.folder is None:
        return described
    shutil.copytree(made.folder, folder / cell.folder)
    if made.error is not None or result.artifact is None:
        return described
    manifest = read_json(folder / cell.folder / "manifest.json")
    artifact = _file(folder / result.artifact)
    if artifact["sha256"] != result.sha256:
        raise DeliveryError(f"{result.artifact} changed while it was copied into the release")
    return {
        **described,
        "artifact": {"file": result.artifact, **artifact},
        "golden": _golden(folder, made),
        "source": manifest["source"]["sha256"],
    }


def _golden(folder: Path, made: MadeCell) -> dict[str, Any] | None:
    """The cell's golden vectors, which cells of a model share where they are the same; None where there are none."""
    if made.golden is None:
        return None
    digest = sha256_of(made.golden)
    place = folder / made.cell.model.name
    files = (place / (golden.FILE if number == 1 else f"golden-{number}.npz") for number in itertools.count(1))
    file = next(each for each in files if not each.exists() or sha256_of(each) == digest)
    if not file.exists():
        shutil.copyfile(made.golden, file)
    samples = golden.count(file)
    return {"file": file.relative_to(folder).as_posix(), "samples": samples, "within": dict(made.within or {})}


def _models(made: Sequence[MadeCell], cells: Sequence[Mapping[str, Any]], licenses: Mapping[str, str]) -> list[Any]:
    found: dict[str, dict[str, Any]] = {}
    for each, described in zip(made, cells, strict=True):
        model = each.cell.model
        entry = found.setdefault(
            model.name,
            {
                "name": model.name,
                "source": {"file": Path(model.source).name, "sha256": None},
                "license": model.license,
                "license_file": licenses.get(model.name),
            },
        )
        if described.get("source"):
            entry["source"]["sha256"] = described["source"]
    return list(found.values())


def _licenses(folder: Path, made: Sequence[MadeCell]) -> dict[str, str]:
    """Copy the licence texts of models that name one."""
    found: dict[str, str] = {}
    for model in {each.cell.model.name: each.cell.model for each in made}.values():
        if model.license_file is not None:
            name = f"{LICENSES}/{model.name}.txt"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(model.license_file, folder / name)
            found[model.name] = name
    return found

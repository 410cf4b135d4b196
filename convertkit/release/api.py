"""``convertkit.run``: the command of that name as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path

from convertkit.release.cells import load
from convertkit.release.result import Release, line
from convertkit.release.run import Running, failure
from convertkit.release.run import run as run_recipe
from convertkit.watching import LOGGER, watched


def run(
    recipe: str | PathLike[str],
    *,
    output: str | PathLike[str] | None = None,
    only: str | Sequence[str] = (),
    force: bool = False,
    jobs: int = 2,
    cache: str | PathLike[str] | None = None,
    no_cache: bool = False,
    scheduler: str | None = None,
    sign: str | PathLike[str] | None = None,
    verbose: bool = False,
    progress: bool | Callable[[str, int, int | None], object] | None = None,
) -> Release:
    """Make the release that a recipe describes, and return what was published.

    Raises ``CellsFailed`` where a required cell has failed and nothing was published; ``results.json`` in
    ``<output>.failed`` then says of each cell what became of it.  Cells go to the logger ``convertkit`` as well.

    Args:
        recipe: a TOML file with ``[models.NAME]``.
        output: the folder of the release; the recipe's without one.
        only: patterns ``MODEL:TARGET:PRECISION`` of the cells to make, as ``"vision/*:tflite"``.
        force: replace what an earlier run wrote into the folder.
        jobs: how many things are done at once.
        cache: a folder that keeps what was made; without one, the environment variable ``CONVERTKIT_CACHE`` says.
        no_cache: make everything anew.
        scheduler: address of a Dask cluster, ``tcp://HOST:PORT``.
        sign: a private key in PEM, which signs ``SHA256SUMS``.
        verbose: let libraries log and warn.
        progress: as in ``export``.

    """
    running = Running(
        output=None if output is None else fspath(output),
        only=(only,) if isinstance(only, str) else tuple(only),
        force=force,
        jobs=jobs,
        cache="" if no_cache else None if cache is None else fspath(cache),
        scheduler=scheduler,
        verbose=verbose,
        sign=None if sign is None else fspath(sign),
    )
    with watched(progress, verbose=verbose) as (told, _):
        release = run_recipe(load(Path(fspath(recipe))), running, told, lambda cell: LOGGER.info("%s", line(cell)))
    if (failed := failure(release)) is not None:
        raise failed
    return release

"""``convertkit run``."""

from __future__ import annotations

from pathlib import Path

import click

from convertkit.commands import EXIT_CODES
from convertkit.commands.ending import Session, quiet_logs


@click.command("run", epilog=EXIT_CODES)
@click.argument("recipe", required=False, type=click.Path())
@click.option("--output", "-o", type=click.Path(), metavar="DIR", help="Folder of the release [default: the recipe's].")
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="Only cells MODEL:TARGET:PRECISION, as 'vision/*:tflite'."
)
@click.option("--force", is_flag=True, help="Replace what an earlier run wrote into the folder.")
@click.option(
    "--jobs", "-j", type=click.IntRange(1, 1024), default=2, metavar="N", help="Do so many things at once [default: 2]."
)
@click.option(
    "--cache", type=click.Path(), metavar="DIR", help="Keep what was made there; CONVERTKIT_CACHE does so, too."
)
@click.option("--no-cache", is_flag=True, help="Make everything anew.")
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Run on the workers of a Dask cluster.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in every case.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing but errors and the release's folder.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, and show tracebacks of internal errors.")
@click.pass_obj
def command(session: Session, /, recipe: str | None, as_json: bool, quiet: bool, **flags: object) -> None:
    """Make the release that RECIPE, a TOML file, describes.

    Every model for every target in every precision, each verified and held against its gates.  The release's folder
    holds all of it, or nothing: what there is of a release that failed lies in <DIR>.failed.
    """
    if recipe is None:
        raise click.UsageError("name a RECIPE, a TOML file with [models.NAME]")
    session.quiet = quiet
    from convertkit.release import telling
    from convertkit.release.cells import load
    from convertkit.release.run import Running, failure, run
    from convertkit.story import Story

    verbose = bool(flags["verbose"])
    quiet_logs(verbose)
    running = Running(
        output=None if flags["output"] is None else str(flags["output"]),
        only=tuple(flags["only"]),  # type: ignore[arg-type]
        force=bool(flags["force"]),
        jobs=int(flags["jobs"]),  # type: ignore[call-overload]
        cache="" if flags["no_cache"] else None if flags["cache"] is None else str(flags["cache"]),
        scheduler=None if flags["scheduler"] is None else str(flags["scheduler"]),
        verbose=verbose,
    )
    found = load(Path(recipe))
    with Story(verbose=verbose, quiet=quiet) as story:
        release = run(found, running, story, lambda result: story.say(telling.line(result), failed=not result.passed))
    session.found = {"release": telling.as_json(release)}
    if not as_json and release.passed:
        click.echo("\n".join(() if quiet else telling.table(release)), nl=not quiet)
        click.echo(str(release.path))
    if (failed := failure(release)) is not None:
        raise failed

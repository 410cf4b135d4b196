"""``convertkit run``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from convertkit.commands import EXIT_CODES
from convertkit.commands.ending import Session, quiet_logs

if TYPE_CHECKING:
    from convertkit.release.result import Release


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
@click.option("--sign", type=click.Path(), metavar="KEY.pem", help="Sign SHA256SUMS with this private key, by openssl.")
@click.option("--junit", type=click.Path(), metavar="FILE.xml", help="Write a test case for each cell.")
@click.option("--summary", type=click.Path(), metavar="FILE.md", help="Add a table to a file [default: GitHub's].")
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
    from convertkit.release.cells import load
    from convertkit.release.result import line
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
        sign=None if flags["sign"] is None else str(flags["sign"]),
    )
    found = load(Path(recipe))
    with Story(verbose=verbose, quiet=quiet) as story:
        release = run(found, running, story, lambda cell: story.say(line(cell), failed=not cell.passed))
    session.found = {"release": release.as_json()}
    _write_for_ci(release, flags["junit"], flags["summary"])
    if (failed := failure(release)) is not None:
        raise failed
    if not as_json:
        click.echo("\n".join((() if quiet else tuple(release.tables()[0].lines())) + (str(release.path),)))


def _write_for_ci(release: Release, junit: object, summary: object) -> None:
    """JUnit XML and Markdown, where they are asked for or GitHub has a place for them."""
    from convertkit.delivery.disk import disk_errors
    from convertkit.release import ci

    for each in (junit, summary):
        if each is not None:
            Path(str(each)).parent.mkdir(parents=True, exist_ok=True)
    if junit is not None:
        with disk_errors(Path(str(junit))):
            Path(str(junit)).write_text(ci.junit(release), encoding="utf-8")
    if place := summary or os.environ.get(ci.SUMMARY_VARIABLE):
        with disk_errors(Path(str(place))), Path(str(place)).open("a", encoding="utf-8") as stream:
            stream.write(ci.markdown(release))

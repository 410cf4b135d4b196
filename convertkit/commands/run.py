"""``convertkit run``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, paths, story, story_flags, told_of_cells

if TYPE_CHECKING:
    from collections.abc import Mapping

    from convertkit.release.recipe import Recipe
    from convertkit.release.result import Release
    from convertkit.release.run import Running

_EXAMPLES = examples(
    ("everything that the recipe says, keeping what is made for the next run", "run release.toml --cache .cache"),
    ("what would be made", "run release.toml --dry-run"),
    ("the TFLite artifacts of some models, with results for a pipeline", "run r.toml --only 'vision/*:tflite' --json"),
)


@click.command("run", epilog=_EXAMPLES)
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
@click.option("--dry-run", is_flag=True, help="Say what would be made, what is cached, and how long it took before.")
@click.option("--print-python", is_flag=True, help="Print the same as Python, an export for each cell.")
@click.option("--schema", "wants_schema", is_flag=True, help="Print the JSON schema of recipes, for editors.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in every case.")
@story_flags("Say nothing but errors and the release's folder.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, and show tracebacks of internal errors.")
@click.pass_obj
def command(session: Session, /, recipe: str | None, as_json: bool, quiet: bool, log_json: bool, **flags: Any) -> None:
    """Make the release that RECIPE, a TOML file, describes.

    Every model for every target in every precision, each verified and held against its gates.  The release's folder
    holds all of it, or nothing: what there is of a release that failed lies in <DIR>.failed.
    """
    if flags["wants_schema"]:
        _print_schema(session, as_json=as_json)
        return
    if recipe is None:
        raise click.UsageError("name a RECIPE, a TOML file with [models.NAME]")
    session.quiet = quiet
    from convertkit.release.cells import load

    quiet_logs(flags["verbose"])
    read, running = load(Path(*paths(recipe))), _running(flags)
    if flags["print_python"]:
        _print_python(session, read, running, as_json=as_json)
    elif flags["dry_run"]:
        from convertkit.release.planning import plan

        session.found = {"plan": (planned := plan(read, running)).as_json()}
        if not as_json:
            click.echo("\n".join(planned.lines()))
    else:
        _run(session, read, running, flags, as_json=as_json)


def _running(flags: Mapping[str, Any]) -> Running:
    from convertkit.release.run import Running

    return Running(
        output=flags["output"],
        only=tuple(flags["only"]),
        force=flags["force"],
        jobs=flags["jobs"],
        cache="" if flags["no_cache"] else flags["cache"],
        scheduler=flags["scheduler"],
        verbose=flags["verbose"],
        sign=flags["sign"],
    )


def _run(session: Session, recipe: Recipe, running: Running, flags: Mapping[str, Any], *, as_json: bool) -> None:
    from convertkit.release.run import failure, run

    with story(session, verbose=running.verbose) as console:
        release = run(recipe, running, console, told_of_cells(console), session.released)
    _write_for_ci(release, flags["junit"], flags["summary"])
    if (failed := failure(release)) is not None:
        raise failed
    if not as_json:
        rows = () if session.quiet else tuple(release.tables()[0].lines())
        click.echo("\n".join((*rows, str(release.path))))


def _print_schema(session: Session, *, as_json: bool) -> None:
    from convertkit.release.recipe_schema import recipe_schema
    from convertkit.report.jsonable import dumps

    session.found = {"recipe_schema": recipe_schema()} if as_json else None
    if not as_json:
        click.echo(dumps(recipe_schema()), nl=False)


def _print_python(session: Session, recipe: Recipe, running: Running, *, as_json: bool) -> None:
    from convertkit.release.cells import cells_of, chosen
    from convertkit.release.script import script

    text = script(chosen(cells_of(recipe), running.only))
    session.found = {"python": text} if as_json else None
    if not as_json:
        click.echo(text, nl=False)


def _write_for_ci(release: Release, junit: str | None, summary: str | None) -> None:
    """JUnit XML and Markdown, where they are asked for or GitHub has a place for them."""
    from convertkit.delivery.disk import disk_errors
    from convertkit.release import ci

    if junit is not None:
        with disk_errors(Path(junit)):
            Path(junit).parent.mkdir(parents=True, exist_ok=True)
            Path(junit).write_text(ci.junit(release), encoding="utf-8")
    if place := summary or os.environ.get(ci.SUMMARY_VARIABLE):
        with disk_errors(Path(place)):
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            with Path(place).open("a", encoding="utf-8") as stream:
                stream.write(ci.markdown(release))

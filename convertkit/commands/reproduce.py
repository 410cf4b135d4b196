"""``convertkit reproduce``."""

from __future__ import annotations

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths, show, story, story_flags, told_of_cells

_EXAMPLES = examples(
    ("a release that lies where it was made", "reproduce release"),
    ("one that was fetched, beside a checkout of its sources", "reproduce fetched/release --root checkout"),
)


@click.command("reproduce", epilog=_EXAMPLES)
@click.argument("release", type=click.Path())
@click.option("--root", type=click.Path(), metavar="DIR", help="Folder that its recipe lay in [default: as it says].")
@click.option("--jobs", "-j", type=click.IntRange(1, 1024), default=2, metavar="N", help="Do so many things at once.")
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Run on the workers of a Dask cluster.")
@click.option("--run-code", is_flag=True, help="Let its recipe execute code: trust, model, pkg.mod:callable.")
@json_flag
@story_flags("Say nothing of single cells.")
@click.pass_obj
def command(
    session: Session,
    /,
    release: str,
    root: str | None,
    jobs: int,
    scheduler: str | None,
    run_code: bool,
    as_json: bool,
    quiet: bool,
    log_json: bool,
) -> None:
    """Build RELEASE again from the recipe in it, and compare byte by byte.

    Artifacts, manifests, golden vectors, bill of materials and provenance have to be the same; reports and results
    hold times and are not compared.  Nothing is taken from a cache.
    """
    from convertkit.release.reproduce import failure, reproduce

    session.quiet = quiet
    quiet_logs(False)
    place = None if root is None else paths(root)[0]
    with story(session) as console:
        found = reproduce(
            paths(release)[0],
            place,
            jobs=jobs,
            scheduler=scheduler,
            run_code=run_code,
            progress=console,
            on_cell=told_of_cells(console),
        )
    show(session, found, as_json=as_json)
    if (failed := failure(found)) is not None:
        raise failed

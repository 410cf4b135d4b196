"""``convertkit cache``."""

from __future__ import annotations

import click

from convertkit.commands.ending import Session
from convertkit.commands.looks import examples

_place = click.option(
    "--cache", "place", metavar="DIR", type=click.Path(), help="The folder [default: $CONVERTKIT_CACHE]."
)


_SHOWING = examples(("by what made it", "cache show --cache DIR"))
_PRUNING = examples(
    ("what was not used for a month", "cache prune --cache DIR --older 30"),
    ("the least recently used, until so much is left", "cache prune --cache DIR --to 2GB"),
)


@click.group("cache")
def command() -> None:
    """Show what the folder of --cache holds, or make it smaller.

    An export makes again what is missing: nothing is lost but time.
    """


@command.command(
    "show", short_help="List what it holds.", epilog=examples(("by what made it", "cache show --cache DIR"))
)
@_place
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def show_cache(session: Session, /, place: str | None, as_json: bool) -> None:
    """List what the cache holds, by what made it."""
    from convertkit import cached

    cache = cached.folder(place)
    if as_json:
        session.found = {"cache": cached.as_json(cache)}
    else:
        click.echo("\n".join(cached.lines(cache)))


@command.command("prune", short_help="Remove what is old, or too much.", epilog=_PRUNING)
@_place
@click.option("--older", metavar="DAYS", type=click.FloatRange(min=0), help="What was not used for so many days.")
@click.option("--to", metavar="SIZE", help="The least recently used, until so much is left, such as 2GB.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def prune_cache(session: Session, /, place: str | None, older: float | None, to: str | None, as_json: bool) -> None:
    """Remove results that no running export uses, and what killed exports have left."""
    from convertkit import cached

    cache = cached.folder(place)
    removed = cached.pruned(cache, older, to)
    if as_json:
        session.found = {"cache": cached.as_json(cache, removed)}
    else:
        click.echo(cached.told(cache.root, removed, "removed from"))

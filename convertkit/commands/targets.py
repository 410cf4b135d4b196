"""``convertkit targets``."""

from __future__ import annotations

import click

from convertkit.commands.ending import Session
from convertkit.commands.looks import examples


@click.command("targets", epilog=examples(("what is installed, and what adds the rest", "targets")))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def command(session: Session, /, as_json: bool) -> None:
    """List targets with their precisions, and the sources that can be read.

    Each is installed, or the command that adds it is shown.
    """
    from convertkit import listing

    if as_json:
        session.found = {name: [each.as_json() for each in entries] for name, entries in listing.everything().items()}
    else:
        listing.print_everything()

"""``convertkit doctor``."""

from __future__ import annotations

import click

from convertkit.commands.ending import Session
from convertkit.commands.looks import examples, json_flag, show

_EXAMPLES = examples(("what is here, and what is wrong with it", "doctor"), ("for a bug report", "doctor --json"))


@click.command("doctor", epilog=_EXAMPLES)
@json_flag
@click.pass_obj
def command(session: Session, /, as_json: bool) -> None:
    """Look at this environment: versions, what does not go together, what each missing extra would add.

    Exit code 1 where there is a problem; a missing extra is not a problem.
    """
    from convertkit.looking.doctor import doctor

    found = doctor()
    show(session, found, as_json=as_json)
    if (failed := found.failure) is not None:
        raise failed

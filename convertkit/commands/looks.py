"""What the commands that look at models share: examples below their help, and how they show what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from convertkit.commands import EXIT_CODES

if TYPE_CHECKING:
    from convertkit.commands.ending import Session
    from convertkit.looking.tables import Shown


def examples(*rows: tuple[str, str]) -> str:
    """The end of a command's help: examples, each with what it is for, and the exit codes."""
    shown = "\n".join(
        f"  # {what}\n  convertkit {command}" if what else f"  convertkit {command}" for what, command in rows
    )
    return f"\b\nExamples:\n{shown}\n\n{EXIT_CODES}"


def show(session: Session, found: Shown, *, as_json: bool) -> None:
    """Print what was found, or leave it to the one object of ``--json``, below the command's own name."""
    if as_json:
        session.found = {session.command: found.as_json()}
    else:
        click.echo("\n".join(found.lines()))


def json_flag(function: click.decorators.FC) -> click.decorators.FC:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in every case.")(function)


def paths(*given: str) -> tuple[str, ...]:
    """Paths whose ``~`` no shell has replaced."""
    from os.path import expanduser

    return tuple(expanduser(each) if each.startswith("~") else each for each in given)

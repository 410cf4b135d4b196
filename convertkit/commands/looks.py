"""What the commands that look at models share: examples below their help, and how they show what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from convertkit.commands import EXIT_CODES
from convertkit.options.declared import LOG_JSON

if TYPE_CHECKING:
    from collections.abc import Callable

    from convertkit.commands.ending import Session
    from convertkit.console import ConsoleProgress
    from convertkit.event_log import EventLog
    from convertkit.looking.tables import Shown
    from convertkit.release.result import CellResult
    from convertkit.release.run import OnCell


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


def story_flags(quiet: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """``--quiet``, with what it leaves, and ``--log-json``: how a long command tells what it does."""

    def declare(function: click.decorators.FC) -> click.decorators.FC:
        function = click.option("--log-json", is_flag=True, help=LOG_JSON)(function)
        return click.option("--quiet", "-q", is_flag=True, help=quiet)(function)

    return declare


def story(session: Session, *, verbose: bool = False) -> ConsoleProgress | EventLog:
    """What a long command tells its progress: stderr, for people or as JSON."""
    if session.log is not None:
        return session.log
    from convertkit.console import ConsoleProgress

    return ConsoleProgress(verbose=verbose, quiet=session.quiet)


def told_of_cells(console: ConsoleProgress | EventLog) -> OnCell:
    """What tells of each cell of a release."""
    from convertkit.release.result import line

    def on_cell(cell: CellResult) -> None:
        told = {"cell": cell.name, "required": cell.required, "cached": cell.cached, "seconds": cell.seconds}
        console.say(line(cell), failed=not cell.passed, of=told)

    return on_cell


def json_flag(function: click.decorators.FC) -> click.decorators.FC:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in every case.")(function)


def paths(*given: str) -> tuple[str, ...]:
    """Paths whose ``~`` no shell has replaced."""
    from os.path import expanduser

    return tuple(expanduser(each) if each.startswith("~") else each for each in given)

"""The command line: parses flags, shows progress, prints results; everything else is elsewhere.

stdout is the result, stderr is progress and messages.  Nothing heavy is imported until a command runs, so that
``--help`` and tab completion answer at once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from convertkit import __version__
from convertkit.colour import painted
from convertkit.commands import COMMANDS, EXIT_CODES, LOGGING
from convertkit.commands.ending import Ending, Session, print_results
from convertkit.defects import told
from convertkit.errors import ConvertKitError
from convertkit.leaving import leave
from convertkit.on_demand import on_demand
from convertkit.stopping import Stopping
from convertkit.telemetry import without_telemetry

if TYPE_CHECKING:
    from convertkit.event_log import EventLog

_OTHER_NAMES = {
    "convert": "export",
    "quantize": "export",
    "list": "targets",
    "info": "inspect",
    "show": "inspect",
    "compare": "diff",
    "validate": "verify",
    "benchmark": "bench",
    "debug": "bisect",
}
"""Commands of other tools, and ours."""
_INTERRUPTED = "Interrupted"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``convertkit`` command; every failure is one sentence and its exit code.

    Without ``arguments`` it is the process's own command, which SIGTERM ends as Ctrl-C does.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    session = Session(_named(words), as_json="--json" in words, log=_log(words))
    stopping = Stopping()
    with on_demand(), without_telemetry():
        ending = _ended(words, session, stopping, listens=arguments is None)
    print_results(session, ending)
    if ending is not None:
        if arguments is None and ending.kind == _INTERRUPTED:
            leave(ending.code)
        sys.exit(ending.code)


def tell_crash(sentence: str) -> None:
    """Tell of a signal that ended the process which ran the command, on stdout too with ``--json``."""
    words = sys.argv[1:]
    session = Session(_named(words), as_json="--json" in words)
    print_results(session, _told(Ending(1, "WorkerError", sentence), session))


def _log(words: Sequence[str]) -> EventLog | None:
    """Where ``--log-json`` wants the command's progress; it is there before flags are read, which may be wrong."""
    if "--log-json" not in words or _named(words) not in LOGGING:
        return None
    from convertkit.event_log import EventLog

    return EventLog(_named(words), quiet=bool({"--quiet", "-q"} & set(words)))


def _ended(words: list[str], session: Session, stopping: Stopping, *, listens: bool) -> Ending | None:
    """Run the command; how it failed, told on stderr already, None where it did not.

    Where a signal came, it was stopped whatever else it ended with: an import that is cut off is an ``ImportError``.
    """
    error: BaseException | None = None
    try:
        if listens:
            stopping.listen()
        cli.main(args=words, prog_name="convertkit", standalone_mode=False, obj=session)
        stopping.over()
    except (Exception, KeyboardInterrupt) as raised:  # noqa: BLE001 - the border of the tool: everything is told
        stopping.over()
        error = raised
    if stopping.number is not None:
        return _stopped(stopping.number, session)
    return None if error is None else _failed(error, words, session)


def _failed(error: BaseException, words: list[str], session: Session) -> Ending:
    match error:
        case click.exceptions.Abort(__cause__=EOFError() as end):  # click takes the early end of any file for Ctrl-D
            return _internal(end, words, session)
        case click.exceptions.Abort() | KeyboardInterrupt():
            return _stopped(signal.SIGINT, session)
        case click.ClickException():
            if session.log is None:
                error.show()
            return Ending(error.exit_code, "UsageError", error.format_message())
        case ConvertKitError():
            return _told(Ending(error.exit_code, type(error).__name__, str(error)), session)
        case MemoryError():
            return _told(Ending(1, "InternalError", "out of memory; nothing was written"), session)
    return _internal(error, words, session)


def _stopped(number: int, session: Session) -> Ending:
    said = f"stopped; {session.written()}"
    _say(said, session)
    return Ending(128 + number, _INTERRUPTED, said)


def _told(ending: Ending, session: Session) -> Ending:
    _say(f"{painted('convertkit:', 'error', sys.stderr)} {ending.message}", session)
    return ending


def _say(sentence: str, session: Session) -> None:
    """On stderr, except where its lines are JSON: their last one has it."""
    if session.log is None:
        click.echo(sentence, err=True)


def _internal(error: BaseException, words: Sequence[str], session: Session) -> Ending:
    """What nobody foresaw, as one sentence; as it is with ``--verbose``."""
    if {"--verbose", "-v"} & set(words):
        raise error
    return _told(Ending(1, "InternalError", told(error, " (--verbose shows where)")), session)


def _named(words: Sequence[str]) -> str:
    """The command among ``words``."""
    names = {each.name for each in COMMANDS}
    return next((word for word in words if word in names), "export")


class _Commands(click.Group):
    """Imports a command when it is called; answers other tools' commands with ours, and a model in the place of one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, as ``--help`` shows them."""
        return [each.name for each in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None where there is none."""
        return next((each.load() for each in COMMANDS if each.name == cmd_name), None)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each kind of command."""
        width = max(len(each.name) for each in COMMANDS)
        for section in dict.fromkeys(each.section for each in COMMANDS):
            with formatter.section(section):
                rows = [(each.name.ljust(width), each.summary) for each in COMMANDS if each.section == section]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; ``UsageError`` that names it where it is written in another way."""
        name = args[0]
        if self.get_command(ctx, name) is None:
            if name == "help":
                return "help", click.Command("help", callback=lambda: click.echo(self.get_help(ctx))), []
            if name in _OTHER_NAMES:
                raise click.UsageError(
                    f"There is no command {name!r}; did you mean 'convertkit {_OTHER_NAMES[name]}'?", ctx
                )
            if not name.startswith("-") and (Path(name).suffix or Path(name).exists()):
                raise click.UsageError(f"{name} is not a command; did you mean 'convertkit export {name} …'?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", "-V")
def cli() -> None:
    """Turn a trained model into an artifact that ships, and verify that it still computes the same thing."""

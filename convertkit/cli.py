"""The command line: parses flags, shows progress, prints results; everything else is elsewhere.

stdout is the result, stderr is the story.  Nothing heavy is imported until a command runs, so that
``--help`` and tab completion answer at once.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from convertkit import __version__
from convertkit.colour import painted
from convertkit.errors import ConvertKitError
from convertkit.options.declared import ExportCommand, export_flags

if TYPE_CHECKING:
    from convertkit.job import Outcome

_EXIT_CODES = """\b
Exit codes: 0 done · 1 failed · 2 usage · 3 verification or accuracy gate failed · 4 framework not installed"""
_OTHER_NAMES = {"convert": "export", "run": "export", "quantize": "export", "list": "targets", "doctor": "targets"}
"""Commands of other tools, and ours."""


@dataclass(slots=True)
class Session:
    """What a command has come to so far: :func:`main` tells it, however it ends."""

    as_json: bool = False
    quiet: bool = False
    began: bool = False
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a command ended before it was done: its exit code, the kind of error, and what it says."""

    code: int
    kind: str
    message: str


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``convertkit`` command; every failure is one sentence and its exit code.

    Without ``arguments`` it is the process's own command, which SIGTERM ends as Ctrl-C does.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    session = Session(as_json="--json" in words)
    if arguments is None:
        signal.signal(signal.SIGTERM, _terminate)
    ending = _ended(words, session)
    _print_results(session, ending, words)
    if ending is not None:
        sys.exit(ending.code)


def _ended(words: list[str], session: Session) -> Ending | None:
    """Run the command; how it failed, told on stderr already, None where it did not."""
    try:
        cli.main(args=words, prog_name="convertkit", standalone_mode=False, obj=session)
    except click.exceptions.Abort as stop:
        if isinstance(stop.__cause__, EOFError):  # click takes the early end of any file for Ctrl-D
            return _internal(stop.__cause__, words)
        number = signal.SIGTERM if isinstance(stop.__cause__, _Terminated) else signal.SIGINT
        done = ", ".join(str(each.result.path) for each in session.outcomes if each.result is not None)
        said = f"stopped; delivered before: {done}" if done else "stopped; nothing was written"
        click.echo(said, err=True)
        return Ending(128 + number, "Interrupted", said)
    except click.ClickException as error:
        error.show()
        return Ending(error.exit_code, "UsageError", error.format_message())
    except ConvertKitError as error:
        return _told(Ending(error.exit_code, type(error).__name__, str(error)))
    except MemoryError:
        return _told(Ending(1, "InternalError", "out of memory; nothing was written"))
    except Exception as error:  # noqa: BLE001 - the border of the tool: everything is told
        return _internal(error, words)
    return None


class _Terminated(KeyboardInterrupt):
    """SIGTERM: ends a run as Ctrl-C does, which clears what lies beside the output folder."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _told(ending: Ending) -> Ending:
    click.echo(f"{painted('convertkit:', 'error', sys.stderr)} {ending.message}", err=True)
    return ending


def _internal(error: BaseException, words: Sequence[str]) -> Ending:
    """What nobody foresaw, as one sentence; as it is with ``--verbose``."""
    if {"--verbose", "-v"} & set(words):
        raise error
    message = str(error).strip().splitlines()[0] if str(error).strip() else ""
    return _told(
        Ending(1, "InternalError", f"internal error, {type(error).__name__}: {message} (--verbose shows where)")
    )


class _Commands(click.Group):
    """Answers commands of other tools with ours, and a model in the place of a command."""

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


@click.group(cls=_Commands, epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", "-V")
def cli() -> None:
    """Turn a trained model into an artifact that ships, and verify that it still computes the same thing."""


@cli.command(cls=ExportCommand, epilog=_EXIT_CODES, short_help="Convert a model, verified at every step.")
@click.argument("source", required=False, type=click.Path())
@export_flags
@click.pass_obj
def export(session: Session, /, recipe: str | None, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Convert SOURCE for one or more targets.

    SOURCE is a PyTorch, TensorFlow/Keras, JAX or ONNX model (recognised by content), or
    pkg.mod:callable.  The output folder holds the artifact, report.html, report.json and
    manifest.json; it is complete or absent.
    """
    from convertkit.options.flags import merged, options_from, read_recipe
    from convertkit.story import Story

    session.began, session.quiet = True, quiet
    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != ()}
    values = merged({} if recipe is None else read_recipe(Path(recipe).expanduser()), given)
    if "source" not in values:
        raise click.UsageError("name a SOURCE model")
    options = options_from(values)
    _quiet_libraries(options.verbose)
    from convertkit import job

    with Story(verbose=options.verbose, quiet=quiet) as story:
        job.run(options, story, story.step, session.outcomes.append)
    if (failed := job.failure(session.outcomes)) is not None:
        raise failed


def _quiet_libraries(verbose: bool) -> None:
    """What libraries log and warn about is ours to judge, not the user's to read, except with ``--verbose``."""
    import logging
    import warnings

    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL)
    if not verbose:
        warnings.simplefilter("ignore")


def _print_results(session: Session, ending: Ending | None, words: Sequence[str]) -> None:
    """What was delivered, and where the reports of what failed lie; one object with ``--json``."""
    delivered = [each.result for each in session.outcomes if each.result is not None]
    if session.as_json and (session.began or ending is not None):
        _print_summary(session, ending, words)
    elif delivered:
        from convertkit import show

        show.print_results(delivered, quiet=session.quiet)
    for each in session.outcomes:
        if each.left is not None:
            click.echo(f"  see   {each.left / 'report.html'}", err=True)


def _print_summary(session: Session, ending: Ending | None, words: Sequence[str]) -> None:
    from convertkit.report.jsonable import dumps
    from convertkit.summary import described, summary

    command = next((word for word in words if word in cli.commands), "export")
    error = None if ending is None else described(ending.kind, ending.message)
    click.echo(dumps(summary(command, 0 if ending is None else ending.code, error, session.outcomes)), nl=False)


@cli.command("targets", short_help="List targets and sources: what is installed, and what adds the rest.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_targets(as_json: bool) -> None:
    """List targets with their precisions, and the sources that can be read.

    Each is installed, or the command that adds it is shown.
    """
    from convertkit import listing

    if as_json:
        found = {name: [each.as_json() for each in entries] for name, entries in listing.everything().items()}
        _print_found("targets", found)
        return
    listing.print_everything()


_place = click.option(
    "--cache", "place", metavar="DIR", type=click.Path(), help="The folder [default: $CONVERTKIT_CACHE]."
)


@cli.group("cache", short_help="Show what a cache of exports holds, or make it smaller.")
def cache_commands() -> None:
    """Show what the folder of --cache holds, or make it smaller.

    An export makes again what is missing: nothing is lost but time.
    """


@cache_commands.command("show", short_help="List what it holds.")
@_place
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_cache(place: str | None, as_json: bool) -> None:
    """List what the cache holds, by what made it."""
    from convertkit import cached

    cache = cached.folder(place)
    if as_json:
        _print_found("cache", {"cache": cached.as_json(cache)})
    else:
        click.echo("\n".join(cached.lines(cache)))


@cache_commands.command("prune", short_help="Remove what is old, or too much.")
@_place
@click.option("--older", metavar="DAYS", type=click.FloatRange(min=0), help="What was not used for so many days.")
@click.option("--to", metavar="SIZE", help="The least recently used, until so much is left, such as 2GB.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def prune_cache(place: str | None, older: float | None, to: str | None, as_json: bool) -> None:
    """Remove results that no running export uses, and what killed exports have left."""
    from convertkit import cached

    cache = cached.folder(place)
    removed = cached.pruned(cache, older, to)
    if as_json:
        _print_found("cache", {"cache": cached.as_json(cache, removed)})
    else:
        click.echo(cached.told(cache.root, removed, "removed from"))


def _print_found(command: str, found: Mapping[str, Any]) -> None:
    """What a command lists, as the one object of ``--json``."""
    from convertkit.report.jsonable import dumps
    from convertkit.summary import summary

    click.echo(dumps(summary(command, 0, None) | dict(found)), nl=False)

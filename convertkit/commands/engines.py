"""``convertkit engines``."""

from __future__ import annotations

import sys

import click

from convertkit.commands.ending import Session
from convertkit.commands.looks import examples

_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_LISTING = examples(("which there are", "engines list"))
_INSTALLING = examples(("asks first", "engines install NAME"), ("in a script", "engines install NAME --yes"))
_REMOVING = examples(("with all that it holds", "engines remove NAME"))


@click.group("engines")
def command() -> None:
    """Install engines: compilers and runtimes that need an environment of their own.

    A target names the engine that it needs. Environments lie in $CONVERTKIT_ENGINES, else in the user's cache folder.
    """


@command.command("list", short_help="List engines: what is installed, what each takes.", epilog=_LISTING)
@_json
@click.pass_obj
def list_engines(session: Session, /, as_json: bool) -> None:
    """List engines, with what installing each takes and its licence."""
    from convertkit.engines import told

    every = told.every()
    if as_json:
        session.found = {"engines": [told.as_json(each) for each in every]}
        return
    width = max((len(each.name) for each in every), default=0)
    click.echo("\n".join(line for each in every for line in told.lines(each, width)))


@command.command("install", short_help="Make an engine's environment.", epilog=_INSTALLING)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask: sizes and licence are accepted.")
@_json
@click.pass_obj
def install_engine(session: Session, /, name: str, yes: bool, as_json: bool) -> None:
    """Make the environment of the engine NAME, with the versions that convertkit pins.

    Sizes and licence are told before anything is fetched.
    """
    from convertkit import plugins
    from convertkit.engines import installing, told
    from convertkit.engines.environments import installed, place

    engine = plugins.engine(name)
    if installed(engine) is None:
        click.echo(f"{engine.name}: {engine.summary}\n{told.costs(engine)}\ninto {place(engine)}", err=True)
        _ask(yes)
    made = installing.install(engine)
    if as_json:
        session.found = {"engines": [told.as_json(engine)]}
    else:
        click.echo(f"{engine.name} is installed: {made.size_bytes / 1e6:.0f} MB in {made.folder}")


@command.command("remove", short_help="Remove an engine's environment.", epilog=_REMOVING)
@click.argument("name")
@_json
@click.pass_obj
def remove_engine(session: Session, /, name: str, as_json: bool) -> None:
    """Remove what was installed for the engine NAME, of older versions, too."""
    from convertkit import plugins
    from convertkit.engines import installing, told

    engine = plugins.engine(name)
    count = installing.remove(engine.name)
    if as_json:
        session.found = {"engines": [told.as_json(engine)]}
    else:
        click.echo(f"{engine.name} is removed" if count else f"{engine.name} was not installed")


def _ask(yes: bool) -> None:
    """Go on with a yes; ``UsageError`` where there is nobody to ask."""
    from convertkit.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nothing was installed: --yes accepts sizes and licence where nobody can be asked")
    click.confirm("Install it?", abort=True, err=True)

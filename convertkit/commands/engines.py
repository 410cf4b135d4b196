"""``convertkit engines``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from convertkit.commands.ending import Session
from convertkit.commands.looks import examples, story
from convertkit.errors import MissingTool

if TYPE_CHECKING:
    from convertkit.engines.told import Told

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
    from convertkit.emulation import engine as arm64
    from convertkit.engines import told

    every = sorted((*told.every(), arm64.told()), key=lambda each: each.name)
    if as_json:
        session.found = {"engines": [each.as_json for each in every]}
        return
    width = max(len(each.name) for each in every)
    click.echo("\n".join(line for each in every for line in each.lines(width)))


@command.command("install", short_help="Make an engine's environment.", epilog=_INSTALLING)
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask: sizes and licence are accepted.")
@_json
@click.pass_obj
def install_engine(session: Session, /, name: str, yes: bool, as_json: bool) -> None:
    """Make the environment of the engine NAME, with the versions that convertkit pins.

    Sizes and licence are told before anything is fetched.
    """
    from convertkit.emulation import engine as arm64

    if name == arm64.NAME:
        _install_arm64(session, yes)
        found = arm64.told()
    else:
        found = _install(name, yes)
    if as_json:
        session.found = {"engines": [found.as_json]}
    else:
        click.echo(f"{name} is installed: {(found.size_bytes or 0) / 1e6:.0f} MB in {found.folder}")


def _install(name: str, yes: bool) -> Told:
    from convertkit import plugins
    from convertkit.engines import installing, told
    from convertkit.engines.environments import installed

    engine = plugins.engine(name)
    if installed(engine) is None and not engine.hindrance:  # else nothing is fetched, and the reason is told
        click.echo(told.of(engine).before_installing, err=True)
        _ask(yes)
    installing.install(engine)
    return told.of(engine)


def _install_arm64(session: Session, yes: bool) -> None:
    """Not an environment of Python alone: a root for another processor."""
    from convertkit.emulation import engine as arm64
    from convertkit.emulation.setting_up import set_up

    found = arm64.told()
    if found.state == "installed":
        return
    if found.hindrance:
        raise MissingTool(found.hindrance)
    click.echo(found.before_installing, err=True)
    _ask(yes)
    with story(session) as console:
        set_up(console)


@command.command("remove", short_help="Remove an engine's environment.", epilog=_REMOVING)
@click.argument("name")
@_json
@click.pass_obj
def remove_engine(session: Session, /, name: str, as_json: bool) -> None:
    """Remove what was installed for the engine NAME, of older versions, too."""
    from convertkit import plugins
    from convertkit.emulation import engine as arm64
    from convertkit.engines import installing, told

    if name == arm64.NAME:
        count, found = arm64.remove(), arm64.told()
    else:
        engine = plugins.engine(name)
        count, found = installing.remove(engine.name), told.of(engine)
    if as_json:
        session.found = {"engines": [found.as_json]}
    else:
        click.echo(f"{name} is removed" if count else f"{name} was not installed")


def _ask(yes: bool) -> None:
    """Go on with a yes; ``UsageError`` where there is nobody to ask."""
    from convertkit.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("nothing was installed: --yes accepts sizes and licence where nobody can be asked")
    click.confirm("Install it?", abort=True, err=True)

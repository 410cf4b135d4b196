"""``convertkit init``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths
from convertkit.errors import DeliveryError
from convertkit.options.declared import OPENING, source_flags

_EXAMPLES = examples(
    ("a recipe with the model's inputs and the targets that are installed", "init model.onnx -o release.toml"),
    ("read it first", "init model.tflite"),
)


@click.command("init", epilog=_EXAMPLES)
@click.argument("source", metavar="MODEL", type=click.Path())
@click.option("--output", "-o", type=click.Path(), metavar="FILE.toml", help="Write it there [default: stdout].")
@source_flags(*OPENING)
@json_flag
@click.pass_obj
def command(session: Session, /, source: str, output: str | None, as_json: bool, **how: Any) -> None:
    """Write a commented recipe for MODEL, for convertkit run.

    It names the model's inputs, the targets that are installed, and what to add for integers and gates.  A file that
    is there is not replaced.
    """
    from convertkit.delivery.disk import disk_errors
    from convertkit.release.starting import starting_recipe

    quiet_logs(False)
    place = None if output is None else Path(*paths(output))
    if place is not None and place.exists():
        raise DeliveryError(f"{place} exists; name another file, or remove it")
    given = {name: value for name, value in how.items() if value not in (None, ())}
    text = starting_recipe(paths(source)[0], place, given)
    if as_json:
        session.found = {"init": {"recipe": text, "file": None if place is None else str(place)}}
    if place is None:
        if not as_json:
            click.echo(text, nl=False)
        return
    with disk_errors(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    if not as_json:
        click.echo(str(place))

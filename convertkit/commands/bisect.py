"""``convertkit bisect``."""

from __future__ import annotations

from typing import Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths, show, story, story_flags
from convertkit.options.declared import FEEDING, OPENING, source_flags

_EXAMPLES = examples(
    ("the node at which an export goes wrong, and the files to show it", "bisect model.pt release/model.tflite -o bug"),
    ("where an int8 model loses most, on real data", "bisect model.onnx int8/model.onnx --calib calib.npz --every"),
)


@click.command("bisect", epilog=_EXAMPLES)
@click.argument("first", metavar="A", type=click.Path())
@click.argument("second", metavar="B", type=click.Path())
@click.option(
    "--output", "-o", type=click.Path(), metavar="DIR", help="Write a minimal case: models, inputs, a script."
)
@click.option("--every", is_flag=True, help="Go on behind the first difference.")
@click.option("--budget", type=float, default=20.0, metavar="DB", help="What an int8 operator keeps [default: 20].")
@source_flags(*OPENING, *FEEDING)
@story_flags("Say nothing but what was found.")
@json_flag
@click.pass_obj
def command(
    session: Session, /, first: str, second: str, as_json: bool, quiet: bool, log_json: bool, **how: Any
) -> None:
    """Find the first value inside of B that differs from A.

    A and B are models of any formats, two stages of one model as a rule. Exit code 3 where there is one.
    """
    from convertkit.compare.bisection import bisect

    session.quiet = quiet
    quiet_logs(False)
    with story(session) as console:
        found = bisect(*paths(first, second), **how, progress=console)
    show(session, found, as_json=as_json)
    if (failed := found.failure) is not None:
        raise failed

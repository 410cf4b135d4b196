"""``convertkit diff``."""

from __future__ import annotations

from typing import Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths, show
from convertkit.options.declared import FEEDING, OPENING, source_flags

_EXAMPLES = examples(
    ("two versions of a model", "diff old/model.onnx new/model.onnx"),
    ("a source and what was made of it, with the time of a call", "diff model.onnx release/tflite --time"),
    ("the files alone, nothing is run", "diff a.tflite b.tflite --no-numerics"),
)


@click.command("diff", epilog=_EXAMPLES)
@click.argument("first", metavar="A", type=click.Path())
@click.argument("second", metavar="B", type=click.Path())
@click.option("--time", is_flag=True, help="Take calls of both in turns.")
@click.option("--no-numerics", "numerics", is_flag=True, default=True, flag_value=False, help="Run neither of them.")
@source_flags(*OPENING, *FEEDING)
@json_flag
@click.pass_obj
def command(session: Session, /, first: str, second: str, as_json: bool, **how: Any) -> None:
    """Show what differs between A and B: interface, sizes, operators, precision, numerics.

    Differences are the result, not a failure: the exit code is 0. `convertkit bisect` finds where numbers part.
    """
    from convertkit.compare.differences import diff

    quiet_logs(False)
    show(session, diff(*paths(first, second), **how), as_json=as_json)

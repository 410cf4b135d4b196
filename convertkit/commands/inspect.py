"""``convertkit inspect``."""

from __future__ import annotations

from typing import Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths, show
from convertkit.options.declared import OPENING, source_flags

_EXAMPLES = examples(
    ("interface, operators, parameters, multiply-adds, precision", "inspect model.tflite"),
    ("and how long a call takes, by node", "inspect release/model.onnx --time"),
    ("what accelerators in ONNX Runtime would take of it, by their lists", "inspect model.onnx --providers"),
    (
        "a state_dict, whose module this function makes",
        "inspect weights.pt --model nets.py:build --input x:1,9",
    ),
)


@click.command("inspect", epilog=_EXAMPLES)
@click.argument("source", metavar="MODEL", type=click.Path())
@click.option("--time", "timed", is_flag=True, help="Measure a call, and each node where the runtime tells.")
@click.option("--providers", is_flag=True, help="Tell what ONNX Runtime's execution providers would take.")
@source_flags(*OPENING)
@json_flag
@click.pass_obj
def command(session: Session, /, source: str, timed: bool, providers: bool, as_json: bool, **how: Any) -> None:
    """Show what is in MODEL: interface, operators, size, precision, metadata.

    MODEL is whatever export reads, a delivered folder, or the model in one.
    """
    from convertkit.looking.inspection import inspect

    quiet_logs(False)
    show(session, inspect(*paths(source), time=timed, providers=providers, **how), as_json=as_json)

"""``convertkit check``."""

from __future__ import annotations

from typing import Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, show
from convertkit.options.declared import OPENING, source_flags
from convertkit.options.export_command import TargetsCommand

_EXAMPLES = examples(
    ("every installed target", "check model.pt"),
    (
        "one target, 8-bit integers throughout, fixed batch",
        "check m.onnx -t tflite --int8 --full-integer --calib c.npz",
    ),
    ("what a target brings of its own", "check model.onnx -t coreml --fp16 --coreml-deployment-target iOS16"),
    ("for a pipeline", "check model.keras --json"),
)
_PRECISION = ("int8", "int16x8", "fp16", "w8", "w4", "fp8", "bf16", "full-integer")
_FORM = ("target", "static", "input-layout", "io-dtype", "opset", "calib")


@click.command("check", cls=TargetsCommand, epilog=_EXAMPLES)
@click.argument("source", type=click.Path())
@source_flags(*_FORM, *_PRECISION, *OPENING)
@json_flag
@click.pass_obj
def command(session: Session, /, source: str, as_json: bool, **flags: Any) -> None:
    """Tell whether SOURCE converts for each target, in seconds.

    Where it does not, the node that is in the way is named, with the line of your own source and the ways out. Nothing
    is verified and nothing is written. Exit code 1 where a target is out of reach.
    """
    from convertkit.looking.checking import asked_for, checked

    quiet_logs(False)
    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != ()}
    found = checked(asked_for(source, given))
    show(session, found, as_json=as_json)
    if (failed := found.failure) is not None:
        raise failed

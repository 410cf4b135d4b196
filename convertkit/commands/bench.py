"""``convertkit bench``."""

from __future__ import annotations

from typing import Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths, show

_EXAMPLES = examples(
    ("two artifacts in turns, and how sure their ratio is", "bench release/tflite release/onnxruntime --threads 1"),
    ("fail where the new one takes more than a tenth longer", "bench old/model.onnx new/model.onnx --max-ratio 1.1"),
    ("keep a baseline, and compare with it later", "bench model.tflite --threads 1 --save baseline.json"),
    ("", "bench model.tflite --threads 1 --compare baseline.json"),
    ("what files take on a phone's core, without the phone", "bench old.tflite new.tflite --device arm64-a76"),
)


@click.command("bench", epilog=_EXAMPLES)
@click.argument("artifacts", metavar="ARTIFACT...", nargs=-1, required=True, type=click.Path())
@click.option("--threads", type=int, metavar="N", help="Of the runtime [default: its own].")
@click.option("--seconds", type=float, default=2.0, metavar="S", help="How long to measure each [default: 2].")
@click.option("--save", type=click.Path(), metavar="FILE", help="Write a baseline for --compare.")
@click.option("--compare", type=click.Path(), metavar="FILE", help="Hold each against its baseline.")
@click.option(
    "--max-ratio", type=float, metavar="X", help="Times as long as is allowed [default with --compare: 1.25]."
)
@click.option(
    "--device",
    multiple=True,
    metavar="NAME",
    help="Estimate TFLite and ONNX files by a device's cost table; nothing is timed.",
)
@json_flag
@click.pass_obj
def command(session: Session, /, artifacts: tuple[str, ...], as_json: bool, **how: Any) -> None:
    """Measure how long a call of each ARTIFACT takes, and its size, memory and first call.

    ARTIFACT is an ONNX or TFLite file, or a delivered folder. Several are called in turns and compared with the first.
    Exit code 3 where one is slower than --max-ratio allows, beyond doubt.
    """
    from convertkit.looking.benchmark import bench

    quiet_logs(False)
    found = bench(*paths(*artifacts), **how)
    show(session, found, as_json=as_json)
    if (failed := found.failure) is not None:
        raise failed

"""``convertkit export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from convertkit.commands import EXIT_CODES
from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import story
from convertkit.options.declared import export_flags
from convertkit.options.export_command import ExportCommand


@click.command("export", cls=ExportCommand, epilog=EXIT_CODES)
@click.argument("source", required=False, type=click.Path())
@export_flags
@click.pass_obj
def command(session: Session, /, recipe: str | None, as_json: bool, quiet: bool, log_json: bool, **flags: Any) -> None:
    """Convert SOURCE for one or more targets.

    SOURCE is a PyTorch, TensorFlow/Keras, JAX or ONNX model (recognised by content), or
    pkg.mod:callable.  The output folder holds the artifact, report.html, report.json and
    manifest.json; it is complete or absent.
    """
    from convertkit.options.export_recipe import read_recipe
    from convertkit.options.flags import merged, options_from

    session.began, session.quiet = True, quiet
    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != ()}
    values = merged({} if recipe is None else read_recipe(Path(recipe).expanduser()), given)
    if "source" not in values:
        raise click.UsageError("name a SOURCE model")
    options = options_from(values)
    quiet_logs(options.verbose)
    from convertkit import job

    with story(session, verbose=options.verbose) as console:
        job.run(options, console, console.step, session.outcomes.append)
    if (failed := job.failure(session.outcomes)) is not None:
        raise failed

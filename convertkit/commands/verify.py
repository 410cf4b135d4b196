"""``convertkit verify``."""

from __future__ import annotations

from typing import Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths, show, story, story_flags
from convertkit.options.declared import OPENING, source_flags

_EXAMPLES = examples(
    ("hashes, and the golden vectors on the runtimes that are here", "verify release"),
    ("and that this key has signed it", "verify release --key release.pub"),
    ("two models of any formats, on samples of real data", "verify model.onnx model.tflite --calib samples.npz"),
)
_OF_TWO = ("calib", "calib-samples", "images", "wav", "seed", *OPENING)


@click.command("verify", epilog=_EXAMPLES)
@click.argument("first", metavar="RELEASE|MODEL", type=click.Path())
@click.argument("second", metavar="[MODEL]", required=False, type=click.Path())
@click.option("--key", type=click.Path(), metavar="KEY.pub", help="Public key in PEM that the release is signed by.")
@source_flags(*_OF_TWO)
@story_flags("Say nothing but what was found.")
@json_flag
@click.pass_obj
def command(
    session: Session,
    /,
    first: str,
    second: str | None,
    key: str | None,
    as_json: bool,
    quiet: bool,
    log_json: bool,
    **how: Any,
) -> None:
    """Check that RELEASE is what was published, or that two MODELs compute the same.

    Of a release, or a folder that an export has delivered, every hash is looked at, the signature, and what the
    artifacts answer to the golden vectors.  Two models run on the same inputs; the first one's float64 twin decides.
    """
    session.quiet = quiet
    quiet_logs(False)
    given = [name for name, value in how.items() if value not in (None, ())]
    if second is None:
        from convertkit.release.verify import failure, verify_release

        if given:
            raise click.UsageError(
                f"--{given[0].replace('_', '-')} goes with two models; a release has its own samples"
            )
        with story(session) as console:
            found = verify_release(paths(first)[0], key, console)
        show(session, found, as_json=as_json)
        if (failed := failure(found)) is not None:
            raise failed
        return
    if key is not None:
        raise click.UsageError("--key goes with a release, and two models are named")
    from convertkit.compare import verify

    chosen = {name: value for name, value in how.items() if value is not None}
    with story(session) as console:
        compared = verify(*paths(first, second), **chosen, progress=console)
    show(session, compared, as_json=as_json)
    if compared.failure is not None:
        raise compared.failure

"""``convertkit verify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from convertkit.commands.ending import Session, quiet_logs
from convertkit.commands.looks import examples, json_flag, paths, show, story, story_flags
from convertkit.options.declared import OPENING, source_flags

if TYPE_CHECKING:
    from convertkit.errors import ConvertKitError
    from convertkit.looking.tables import Shown
    from convertkit.progress import Progress


@dataclass(frozen=True, slots=True)
class _Found:
    """What is shown, and the error that ends the command."""

    shown: Shown
    failure: ConvertKitError | None


_EXAMPLES = examples(
    ("hashes, and the golden vectors on the runtimes that are here", "verify release"),
    ("and that this key has signed it", "verify release --key release.pub"),
    ("an artifact on arm64, beside this machine", "verify model.tflite --arm64"),
    ("two models of any formats, on samples of real data", "verify model.onnx model.tflite --calib samples.npz"),
)
_EVERY = "both"
_OF_TWO = ("calib", "calib-samples", "images", "wav", "seed", *OPENING)


@click.command("verify", epilog=_EXAMPLES)
@click.argument("first", metavar="RELEASE|MODEL", required=False, type=click.Path())
@click.argument("second", metavar="[MODEL]", required=False, type=click.Path())
@click.option("--key", type=click.Path(), metavar="KEY.pub", help="Public key in PEM that the release is signed by.")
@click.option(
    "--arm64",
    is_flag=False,
    flag_value=_EVERY,
    type=click.Choice(("cortex-a72", "cortex-a76", _EVERY)),
    metavar="[CORE]",
    help="Run the artifact on cortex-a72, cortex-a76 or both, under emulation; after its name.",
)
@click.option("--arm64-setup", is_flag=True, help="Download what --arm64 needs (80 MB), and do nothing else.")
@source_flags(*_OF_TWO)
@story_flags("Say nothing but what was found.")
@json_flag
@click.pass_obj
def command(
    session: Session,
    /,
    first: str | None,
    second: str | None,
    key: str | None,
    arm64: str | None,
    arm64_setup: bool,
    as_json: bool,
    quiet: bool,
    log_json: bool,
    **how: Any,
) -> None:
    """Check that RELEASE is what was published, or that two MODELs compute the same.

    Of a release, or a folder that an export has delivered, every hash is looked at, the signature, and what the
    artifacts answer to the golden vectors.  Two models run on the same inputs; the first one's float64 twin decides.
    With --arm64 one artifact runs on arm64 and here.
    """
    session.quiet = quiet
    quiet_logs(False)
    given = {name: value for name, value in how.items() if value not in (None, ())}
    if arm64_setup:
        _set_up(session, [first, second, key, arm64, *given])
        return
    if first is None:
        raise click.UsageError("Missing argument 'RELEASE|MODEL'.")
    with story(session) as console:
        if arm64 is not None:
            found: _Found = _on_arm64(first, arm64, [second, key], given, console)
        elif second is None:
            found = _of_release(first, key, given, console)
        else:
            found = _of_two(first, second, key, given, console)
    show(session, found.shown, as_json=as_json)
    if found.failure is not None:
        raise found.failure


def _of_release(first: str, key: str | None, given: dict[str, Any], console: Progress) -> _Found:
    from convertkit.release.verify import failure, verify_release

    if given:
        name = next(iter(given)).replace("_", "-")
        raise click.UsageError(f"--{name} goes with two models; a release has its own samples")
    found = verify_release(paths(first)[0], key, console)
    return _Found(found, failure(found))


def _of_two(first: str, second: str, key: str | None, given: dict[str, Any], console: Progress) -> _Found:
    from convertkit.compare import verify

    if key is not None:
        raise click.UsageError("--key goes with a release, and two models are named")
    compared = verify(*paths(first, second), **given, progress=console)
    return _Found(compared, compared.failure)


def _on_arm64(first: str, core: str, others: list[str | None], given: dict[str, Any], console: Progress) -> _Found:
    from convertkit.emulation.arm64 import verify_arm64
    from convertkit.emulation.cores import CORES

    if any(others):
        raise click.UsageError("--arm64 runs one artifact: it goes with neither a second model nor --key")
    found = verify_arm64(paths(first)[0], tuple(CORES) if core == _EVERY else (core,), **given, progress=console)
    return _Found(found, found.failure)


def _set_up(session: Session, others: list[object]) -> None:
    from convertkit.emulation.setting_up import ABOUT, set_up

    if any(others):
        raise click.UsageError("--arm64-setup stands alone")
    with story(session) as console:
        if not session.quiet:
            click.echo(f"for --arm64: {ABOUT}", err=True)
        folder = set_up(console)
    click.echo(f"arm64 root: {folder}")

"""The command line: parses flags, shows progress, prints results; everything else is elsewhere.

stdout is the result, stderr is the story.  Nothing heavy is imported until a command runs, so that
``--help`` and tab completion answer at once.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from convertkit import __version__
from convertkit.errors import ConvertKitError

if TYPE_CHECKING:
    from convertkit.job import Result

_OBJECTS_PER_COLLECTION = 20_000
_EXIT_CODES = """\b
Exit codes: 0 done · 1 failed · 2 usage · 3 parity or accuracy gate failed · 4 a needed framework is not installed"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the ``convertkit`` command; every failure is one sentence and its exit code.

    Without ``arguments`` it is the process's own command, and ends the process where that succeeds.
    """
    if arguments is None:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        cli.main(args=arguments, prog_name="convertkit", standalone_mode=False)
        if arguments is None:
            _leave()
    except click.exceptions.Abort as stop:
        if isinstance(stop.__cause__, EOFError):  # click takes the early end of any file for Ctrl-D
            _internal(stop.__cause__, arguments)
        click.echo("stopped; nothing was written", err=True)
        sys.exit(128 + (signal.SIGTERM if isinstance(stop.__cause__, _Terminated) else signal.SIGINT))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ConvertKitError as error:
        click.echo(f"convertkit: {error}", err=True)
        sys.exit(error.exit_code)
    except MemoryError:
        click.echo("convertkit: out of memory; nothing was written", err=True)
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the border of the tool: everything is told
        _internal(error, arguments)


class _Terminated(KeyboardInterrupt):
    """SIGTERM: ends a run as Ctrl-C does, which clears what lies beside the output folder."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise _Terminated


def _internal(error: BaseException, arguments: Sequence[str] | None) -> NoReturn:
    """What nobody foresaw, as one sentence; as it is with ``--verbose``."""
    if "--verbose" in (arguments or sys.argv):
        raise error
    message = str(error).strip().splitlines()[0] if str(error).strip() else ""
    click.echo(f"convertkit: internal error, {type(error).__name__}: {message} (--verbose shows where)", err=True)
    sys.exit(1)


def _leave() -> None:
    """End the process at once: interpreters free what they hold piece by piece, a twentieth of a second of it."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return  # the reader is gone; the interpreter tells of that in its own way
    os._exit(0)


@click.group(epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
def cli() -> None:
    """Turn a trained model into an artifact that ships, and prove that it still computes the same thing."""


def _complete_targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from convertkit import plugins

    return [name for name in plugins.target_names() if name.startswith(incomplete)]


@cli.command(epilog=_EXIT_CODES, short_help="Convert a model, with proof at every step.")
@click.argument("source", required=False, type=click.Path())
@click.option(
    "--target", "-t", multiple=True, shell_complete=_complete_targets, metavar="T", help="Target; repeat for several."
)
@click.option("--output", "-o", type=click.Path(), metavar="DIR", help="Output folder [default: <stem>-<target>].")
@click.option("--int8", is_flag=True, help="8-bit integers where they pay.")
@click.option("--int16x8", is_flag=True, help="16-bit activations, 8-bit weights.")
@click.option("--fp16", is_flag=True, help="float16 weights.")
@click.option("--w8", is_flag=True, help="8-bit weights only.")
@click.option("--w4", is_flag=True, help="4-bit weights only.")
@click.option("--full-integer", is_flag=True, help="Every operator integer, or refuse (microcontrollers, NPUs).")
@click.option("--io-dtype", metavar="DTYPE", help="Interface of a quantized artifact: float32, int8, uint8, int16.")
@click.option("--calib", metavar="PATH", help="Calibration data: .npz, .npy, a folder, or pkg.mod:func.")
@click.option("--calib-samples", type=int, metavar="N", help="Use only N samples, evenly spread.")
@click.option(
    "--images", metavar="SPEC", help="Images of a folder: stretch, crop[:0.875] or pad[:114]; bicubic, bgr, nhwc, …"
)
@click.option("--wav", metavar="SPEC", help="WAV files of a folder: rate:16000, mono, window:1s, hop:500ms.")
@click.option(
    "--calib-method",
    metavar="METHOD",
    help="auto, minmax, moving-average, percentile, percentile-99.99, entropy or mse [default: auto].",
)
@click.option("--eval", metavar="PATH", help="Labelled data: like --calib, with an array called label.")
@click.option("--metric", metavar="NAME", help="top1, auc, mse or pkg.mod:func [default: top1 or mse by the labels].")
@click.option("--max-drop", type=float, metavar="POINTS", help="Fail (exit 3) when the metric loses more than this.")
@click.option(
    "--strict", is_flag=True, help="Fail (exit 3) when the artifact is not of the precision that was asked for."
)
@click.option("--prune", metavar="SHARE", help="Prune weights: 0.5, or 2:4.")
@click.option("--prune-channels", type=float, metavar="SHARE", help="Prune whole channels: 0.3.")
@click.option(
    "--input", multiple=True, metavar="SPEC", help="NAME:1,3,224,224[:float32], NAME:N,3,224,224, IDS:1,64:int64[0,9)."
)
@click.option("--model", metavar="PKG.MOD:FACTORY", help="Makes the module that a state_dict belongs to.")
@click.option("--input-layout", metavar="LAYOUT", help="auto, nchw or nhwc [default: auto].")
@click.option("--static", multiple=True, metavar="NAME=SIZE", help="Give a named dimension a fixed size.")
@click.option("--signature", metavar="NAME", help="Signature of a SavedModel.")
@click.option("--description", metavar="TEXT", help="What the model does, for the file's metadata.")
@click.option("--label-file", type=click.Path(), metavar="PATH", help="Names of the classes, one per line.")
@click.option(
    "--normalization",
    multiple=True,
    metavar="SPEC",
    help="INPUT:MEAN/STD that the model was trained with; a,b,c per channel.",
)
@click.option("--opset", type=int, metavar="N", help="Opset of a delivered .onnx.")
@click.option("--trust", multiple=True, metavar="KIND", help="Execute code in the file: pickle, lambda or pyfunc.")
@click.option("--timeout", type=float, metavar="S", help="Longest time for one call of a framework, in seconds.")
@click.option(
    "--pass", "passes", multiple=True, metavar="NAME", help="Also run an installed pass that waits to be named."
)
@click.option("--keep-failed", is_flag=True, help="Keep an artifact that failed its proof, in <DIR>.failed.")
@click.option("--force", is_flag=True, help="Replace what an earlier export wrote into the folder.")
@click.option("--seed", type=int, metavar="N", help="Seed of generated feeds [default: 0].")
@click.option("--recipe", type=click.Path(), metavar="FILE.toml", help="Read flags from a file; flags given win.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--verbose", "-v", is_flag=True, help="Tell more, and show tracebacks of internal errors.")
def export(recipe: str | None, as_json: bool, **flags: Any) -> None:
    """Convert SOURCE for one or more targets.

    SOURCE is a PyTorch, TensorFlow/Keras, JAX or ONNX model (recognised by content), or
    pkg.mod:callable.  The output folder holds the artifact, report.html, report.json and
    manifest.json; it is complete or absent.
    """
    from convertkit.options.flags import merged, options_from, read_recipe
    from convertkit.story import Story

    given = {name: value for name, value in flags.items() if value is not None and value is not False and value != ()}
    values = merged({} if recipe is None else read_recipe(Path(recipe)), given)
    if "source" not in values:
        raise click.UsageError("name a SOURCE model")
    options = options_from(values)
    _quiet_libraries(options.verbose)
    gc.disable()
    from convertkit import job

    # What imports made stays: collecting among it took a tenth of a small export's time.
    gc.freeze()
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    gc.enable()
    outcomes = list[job.Outcome]()
    try:
        with Story(verbose=options.verbose) as story:
            job.run(options, story, story.step, outcomes.append)
    finally:
        _print_results(tuple(each.result for each in outcomes if each.result is not None), as_json)
    if (failed := job.failure(outcomes)) is not None:
        raise failed


def _quiet_libraries(verbose: bool) -> None:
    """What libraries log and warn about is ours to judge, not the user's to read, except with ``--verbose``."""
    import logging
    import warnings

    logging.basicConfig(level=logging.INFO if verbose else logging.CRITICAL)
    if not verbose:
        warnings.simplefilter("ignore")


def _print_results(results: tuple[Result, ...], as_json: bool) -> None:
    from convertkit import show
    from convertkit.report.jsonable import dumps

    if as_json:
        reports = [result.report for result in results]
        click.echo(dumps(reports[0] if len(reports) == 1 else reports), nl=False)
        return
    for result in results:
        show.print_result(result)


@cli.command("targets", short_help="List targets, converters and passes.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_targets(as_json: bool) -> None:
    """List what is installed: targets with their precisions, and the sources that can be read."""
    from convertkit import plugins, show
    from convertkit.report.jsonable import dumps

    targets = [
        {"name": target.name, "summary": target.summary, "precisions": list(target.precisions)}
        for target in map(plugins.target, plugins.target_names())
    ]
    sources = [{"name": each.name, "summary": each.summary} for each in plugins.converters()]
    passes = [{"name": each.name, "order": each.order} for each in plugins.passes()]
    if as_json:
        click.echo(dumps({"targets": targets, "converters": sources, "passes": passes}), nl=False)
        return
    show.print_plugins(targets, sources)

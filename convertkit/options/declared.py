"""The flags of ``convertkit export``, in the groups in which ``--help`` shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

import click

from convertkit.options.export_command import TargetsFlag
from convertkit.options.grouped import GroupedOption
from convertkit.recipe import METRICS, RECOVERY_MINUTES, CalibMethod, Layout, Trust

F = TypeVar("F", bound=Callable[..., Any])
Complete = Callable[[click.Context, click.Parameter, str], list[str]]

IO_DTYPES = ("float32", "int8", "uint8", "int16")
LOG_JSON = "Tell progress on stderr as JSON, an object a line."


def export_flags(function: F) -> F:
    """Declare every flag of ``convertkit export``."""
    for declared, how in reversed(_FLAGS):
        kind = TargetsFlag if "--target" in declared else GroupedOption
        function = click.option(*declared, cls=kind, **how)(function)
    return function


def source_flags(*names: str) -> Callable[[F], F]:
    """Declare those flags of ``convertkit export`` that say how to open a model or to feed it, by their long names."""

    def declare(function: F) -> F:
        for declared, how in reversed(_FLAGS):
            if declared[0].removeprefix("--") in names:
                plain = {key: value for key, value in how.items() if key != "group"}
                function = click.option(*declared, **plain)(function)
        return function

    return declare


OPENING = ("input", "model", "signature", "trust", "timeout")
"""Flags that say how to open a model."""


FEEDING = ("calib", "calib-samples", "images", "wav", "seed")
"""Flags that say on which inputs it runs."""


def _one_of(values: Sequence[str]) -> Complete:
    return lambda context, parameter, begun: [value for value in values if value.startswith(begun)]


def _complete_packages(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from convertkit import plugins
    from convertkit.stage import PackagingTarget

    names = [name for name in plugins.target_names() if name.startswith(incomplete)]
    return [name for name in names if isinstance(plugins.target(name), PackagingTarget)]


def _complete_targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from convertkit import plugins

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in plugins.target_names() if name.startswith(last)]


def _complete_images(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from convertkit.options.pictures import IMAGE_WORDS

    before, comma, last = incomplete.rpartition(",")
    words = [word for group in IMAGE_WORDS.values() for word in group]
    return [f"{before}{comma}{word}" for word in words if word.startswith(last)]


def _flag(group: str, *declared: str, help: str, **how: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return declared, {"group": group, "help": help, **how}


def _switch(group: str, *declared: str, help: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    return _flag(group, *declared, help=help, is_flag=True)


_METHODS = get_args(CalibMethod)


_FLAGS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    _flag(
        "Input",
        "--input",
        multiple=True,
        metavar="SPEC",
        help="NAME:1,3,224,224[:float32], NAME:N,3,224,224, IDS:1,64:int64[0,9).",
    ),
    _flag("Input", "--static", multiple=True, metavar="NAME=SIZE", help="Give a named dimension a fixed size."),
    _flag("Input", "--model", metavar="PKG.MOD:FACTORY", help="Makes the module that a state_dict belongs to."),
    _flag("Input", "--signature", metavar="NAME", help="Signature of a SavedModel."),
    _flag(
        "Input",
        "--trust",
        multiple=True,
        metavar="KIND",
        shell_complete=_one_of(get_args(Trust)),
        help="Execute code in the file: pickle, lambda or pyfunc.",
    ),
    _flag("Input", "--timeout", type=float, metavar="S", help="Longest time for one call of a framework, in seconds."),
    _flag("Input", "--recipe", type=click.Path(), metavar="FILE.toml", help="Read flags from a file; flags given win."),
    _flag(
        "Input",
        "--preprocess",
        metavar="STEPS",
        help="Into the model: image:256,crop:0.875,mean:124,116,104,std:58,57,57; or audio:16000; input:NAME.",
    ),
    _flag(
        "Input",
        "--postprocess",
        metavar="STEPS",
        help="Into the model: softmax, argmax or top:5; nms:100 with a detector's words; output:NAME.",
    ),
    _switch("Precision", "--int8", help="8-bit integers where they pay."),
    _switch("Precision", "--int16x8", help="16-bit activations, 8-bit weights."),
    _switch("Precision", "--fp16", help="float16 weights."),
    _switch("Precision", "--bf16", help="bfloat16 weights and arithmetic."),
    _switch("Precision", "--w8", help="8-bit weights only."),
    _switch("Precision", "--w4", help="4-bit weights only."),
    _switch("Precision", "--fp8", help="8-bit floats (E4M3) for weights and activations."),
    _switch("Precision", "--full-integer", help="Every operator integer, or refuse (microcontrollers, NPUs)."),
    _switch("Precision", "--size-first", help="--w4: 4 bits wherever possible, slower, down to 10 dB."),
    _switch("Precision", "--accept-loss", help="Keep integers that lose too much, down to 10 dB."),
    _flag(
        "Precision",
        "--io-dtype",
        metavar="DTYPE",
        shell_complete=_one_of(IO_DTYPES),
        help=f"Interface of a quantized artifact: {', '.join(IO_DTYPES)}.",
    ),
    _flag(
        "Precision",
        "--device",
        multiple=True,
        metavar="NAME",
        help="Whose costs decide: x86, phone, arm64-a76 …, this [--int8: phone,x86].",
    ),
    _flag("Precision", "--prune", metavar="SHARE", help="Zeros for weights: 0.8, 2:4, or auto."),
    _flag("Precision", "--prune-channels", metavar="SHARE", help="Prune whole channels: 0.3, or auto."),
    _flag(
        "Precision",
        "--target-latency",
        type=float,
        metavar="SHARE",
        help="Prune channels until a call takes 0.7 of its time, by the target's cost table.",
    ),
    _flag("Precision", "--low-rank", metavar="SHARE", help="Two narrow products for large ones: auto or 0.99."),
    _flag("Precision", "--budget", metavar="LIMIT", help="What keeps most within size=200KB or latency=2ms."),
    _flag(
        "Precision",
        "--recover",
        type=float,
        is_flag=False,
        flag_value=RECOVERY_MINUTES,
        metavar="[MINUTES]",
        help=f"Then train on --calib, without labels, to answer as before [{RECOVERY_MINUTES:g}].",
    ),
    _flag(
        "Precision",
        "--pass",
        "passes",
        multiple=True,
        metavar="NAME",
        help="Also run an installed pass that waits to be named.",
    ),
    _flag("Data", "--calib", metavar="PATH", help="Calibration data: .npz, .npy, a folder, or pkg.mod:func."),
    _flag("Data", "--calib-samples", type=int, metavar="N", help="Use only N samples, evenly spread."),
    _flag(
        "Data",
        "--calib-method",
        metavar="METHOD",
        shell_complete=_one_of(_METHODS),
        help=f"{', '.join(_METHODS[:-1])} or {_METHODS[-1]} [default: auto].",
    ),
    _flag("Data", "--eval", metavar="PATH", help="Labelled data: like --calib, with an array called label."),
    _flag(
        "Data",
        "--images",
        metavar="SPEC",
        shell_complete=_complete_images,
        help="Images of a folder: stretch, crop[:0.875] or pad[:114]; bicubic, bgr, nhwc, …",
    ),
    _flag("Data", "--wav", metavar="SPEC", help="WAV files of a folder: rate:16000, mono, window:1s, hop:500ms."),
    _flag(
        "Data",
        "--normalization",
        multiple=True,
        metavar="SPEC",
        help="INPUT:MEAN/STD that the model was trained with; a,b,c per channel.",
    ),
    _flag("Data", "--seed", type=int, metavar="N", help="Seed of generated inputs [default: 0]."),
    _flag(
        "Verification",
        "--metric",
        metavar="NAME",
        shell_complete=_one_of(METRICS),
        help=f"{', '.join(METRICS)} or pkg.mod:func [default: top1 or mse by the labels].",
    ),
    _flag("Verification", "--max-drop", type=float, metavar="POINTS", help="Fail (exit 3) when the metric loses more."),
    _switch(
        "Verification", "--strict", help="Fail (exit 3) when the artifact is not of the precision that was asked for."
    ),
    _switch(
        "Verification",
        "--allow-unverified",
        help="Deliver, not verified, where outputs are the same for all inputs, or drawn at random.",
    ),
    _switch("Verification", "--keep-failed", help="Keep an artifact that failed its verification, in <DIR>.failed."),
    _flag("Output", "--target", "-t", multiple=True, shell_complete=_complete_targets, metavar="T", help="Target."),
    _flag(
        "Output", "--package", metavar="P", shell_complete=_complete_packages, help="Package, for a server or device."
    ),
    _flag("Output", "--output", "-o", type=click.Path(), metavar="DIR", help="Folder [default: <stem>-<target>]."),
    _switch("Output", "--force", help="Replace what an earlier export wrote into the folder."),
    _flag(
        "Output",
        "--input-layout",
        metavar="LAYOUT",
        shell_complete=_one_of(get_args(Layout)),
        help="auto, nchw or nhwc [default: auto].",
    ),
    _flag("Output", "--opset", type=int, metavar="N", help="Opset of a delivered .onnx."),
    _flag("Output", "--description", metavar="TEXT", help="What the model does, for the file's metadata."),
    _flag("Output", "--label-file", type=click.Path(), metavar="PATH", help="Names of the classes, one per line."),
    _switch("Output", "--compress", help="The model deflated in a package; apps decode it at their first start."),
    (("--json", "as_json"), {"group": "Output", "is_flag": True, "help": "Print one JSON object, in every case."}),
    _flag("Running", "--jobs", "-j", type=int, metavar="N", help="Do so many things at once [default: 2]."),
    _flag(
        "Running",
        "--cache",
        type=click.Path(),
        metavar="DIR",
        help="Keep what was made and verified there for the next export; CONVERTKIT_CACHE does so, too.",
    ),
    _switch("Running", "--no-cache", help="Make everything anew."),
    _flag("Running", "--scheduler", metavar="tcp://HOST:PORT", help="Run on the workers of a Dask cluster."),
    (("--log-json",), {"group": "Output", "is_flag": True, "help": LOG_JSON}),
    _switch("Output", "--quiet", "-q", help="Say nothing but errors and the artifact's path."),
    _switch("Output", "--verbose", "-v", help="Tell more, and show tracebacks of internal errors."),
)

"""Flags that contradict each other, or that do nothing beside the others: refused before anything is opened."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from convertkit.errors import UsageError
from convertkit.recipe import THIS, ExportOptions, InputSpec, Trust

OPSETS = range(7, 27)
"""What ``--opset`` may ask for: 7 is the oldest that ONNX's version converter reaches, 26 the newest we write."""
_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://[^\s/:]+:\d+")
_OLDEST_OPSET = {"int8": 13, "w8": 13, "w4": 21}
"""Where DequantizeLinear first takes a scale for each channel, and 4-bit integers."""
_INTERFACES = {"int8": ("float32", "int8", "uint8"), "int16x8": ("float32", "int16")}
"""Values of ``--io-dtype`` that are the integers inside, or differ from them by a shift alone."""

_SOUND = re.compile(r"(^|,)\s*audio:")
"""The word of ``--preprocess`` that makes it one of sounds."""
_REALS = re.compile(r"(^|,)\s*(top|nms):")
"""Words of ``--postprocess`` whose results are real numbers, made of floats."""

_NAMED = re.compile(r"(^|,)\s*labels\s*(,|$)")
"""The word of ``--postprocess`` that says that classes have names."""

Question = Callable[[ExportOptions], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """``sentence`` refuses options that are ``wrong``; it may hold fields of theirs in braces."""

    wrong: Question
    sentence: str


_TRAINABLE = ("int8", "int16x8", "w8", "w4")

RULES: tuple[Rule, ...] = (
    Rule(lambda o: not o.targets, "--target is an empty list; name at least one"),
    Rule(
        lambda o: o.preprocess is not None and bool(o.normalization),
        "--preprocess writes the normalisation into the model, which takes bytes or PCM: leave --normalization out",
    ),
    Rule(
        lambda o: o.full_integer and o.preprocess is not None and _SOUND.search(o.preprocess) is not None,
        "--preprocess {o.preprocess} makes real numbers of PCM, and --full-integer allows none: leave one of them out",
    ),
    Rule(
        lambda o: o.full_integer and o.precision == "int16x8" and o.preprocess is not None,
        "--preprocess makes integers of 8 bits of pixels, and --int16x8 --full-integer has 16: use --int8, or leave "
        "--full-integer out",
    ),
    Rule(
        lambda o: o.postprocess is not None and o.label_file is None and _NAMED.search(o.postprocess) is not None,
        "--postprocess {o.postprocess} asks for the names of classes: give them by --label-file PATH, one per line",
    ),
    Rule(
        lambda o: o.io_dtype != "float32" and o.postprocess is not None and _REALS.search(o.postprocess) is not None,
        "--postprocess {o.postprocess} tells real numbers, --io-dtype {o.io_dtype} integers: leave one of them out",
    ),
    Rule(
        lambda o: o.max_drop is not None and o.eval is None, "--max-drop needs --eval with labelled data to measure on"
    ),
    Rule(lambda o: o.metric is not None and o.eval is None, "--metric needs --eval with labelled data to measure on"),
    Rule(
        lambda o: o.calib_samples is not None and o.calib is None, "--calib-samples chooses among the data of --calib"
    ),
    Rule(
        lambda o: o.calib_method != "auto" and not o.quantized,
        "--calib-method {o.calib_method} goes with --int8 or --int16x8, which measure ranges of activations",
    ),
    Rule(
        lambda o: o.strict and o.precision == "float32",
        "--strict goes with a precision: it fails where --int8, --int16x8, --fp16, --bf16, --w8, --w4 or --fp8 became "
        "something else",
    ),
    Rule(lambda o: o.full_integer and not o.quantized, "--full-integer goes with --int8 or --int16x8"),
    Rule(
        lambda o: o.accept_loss and o.precision not in ("int8", "int16x8", "w8", "w4"),
        "--accept-loss goes with --int8, --int16x8, --w8 or --w4",
    ),
    Rule(lambda o: o.size_first and o.precision != "w4", "--size-first goes with --w4"),
    Rule(
        lambda o: o.size_first and o.accept_loss,
        "--size-first keeps what loses too much as it is: --accept-loss adds nothing",
    ),
    Rule(lambda o: o.accept_loss and o.calib is None, "--accept-loss is about samples of --calib; give them"),
    Rule(
        lambda o: o.accept_loss and o.full_integer,
        "--full-integer keeps all integers as it is: --accept-loss adds nothing",
    ),
    Rule(
        lambda o: o.io_dtype != "float32" and not o.quantized, "--io-dtype {o.io_dtype} goes with --int8 or --int16x8"
    ),
    Rule(
        lambda o: o.io_dtype not in _INTERFACES.get(o.precision, ("float32",)),
        "--io-dtype {o.io_dtype} is not what --{o.precision} computes with; int8 and uint8 go with --int8, int16 with "
        "--int16x8",
    ),
    Rule(
        lambda o: THIS in o.device and o.scheduler is not None,
        "--device this measures the machine at hand, and with --scheduler others work",
    ),
    Rule(
        lambda o: o.prune is not None and o.narrowed,
        "--prune and {o.flag_of_channels} exclude each other",
    ),
    Rule(
        lambda o: o.prune_channels is not None and o.target_latency is not None,
        "--prune-channels and --target-latency exclude each other: one tells how many channels go, the other what for",
    ),
    Rule(
        lambda o: o.timeout_s is not None and not 0 < o.timeout_s < math.inf,
        "--timeout {o.timeout_s}: must be positive",
    ),
    Rule(
        lambda o: o.calib_samples is not None and not 0 < o.calib_samples < 1 << 31,
        "--calib-samples {o.calib_samples}: must be positive, and fit into 32 bits",
    ),
    Rule(
        lambda o: o.max_drop is not None and not 0 <= o.max_drop < math.inf,
        "--max-drop {o.max_drop:g}: must be 0 or a positive number; leave it out to measure without a gate",
    ),
    Rule(
        lambda o: o.opset is not None and o.opset not in OPSETS,
        f"--opset {{o.opset}}: must be from {OPSETS[0]} to {OPSETS[-1]}",
    ),
    Rule(
        lambda o: o.opset is not None and o.opset < _OLDEST_OPSET.get(o.precision, 0),
        "--opset {o.opset} has no integers of the kind that --{o.precision} writes; int8 and w8 need 13, w4 needs 21",
    ),
    Rule(
        lambda o: o.scheduler is not None and not _ADDRESS.fullmatch(o.scheduler),
        "--scheduler {o.scheduler}: not the address of a Dask scheduler; write tcp://HOST:PORT",
    ),
    Rule(lambda o: not 0 < o.jobs <= 1024, "--jobs {o.jobs}: must be from 1 to 1024"),
    Rule(lambda o: o.seed < 0, "--seed {o.seed}: must not be negative"),
    Rule(lambda o: o.seed >= 1 << 64, "--seed {o.seed}: must fit into 64 bits"),
    Rule(
        lambda o: o.prune is not None and not _is_sparsity(o.prune),
        "--prune {o.prune}: expected a share between 0 and 1, auto, or N:M as in 2:4",
    ),
    Rule(
        lambda o: o.prune == "auto" and o.calib is None,
        "--prune auto measures what the model keeps: give it --calib PATH",
    ),
    Rule(
        lambda o: o.recover is not None and not 0 < o.recover < math.inf,
        "--recover {o.recover}: expected minutes",
    ),
    Rule(lambda o: o.recover is not None and o.calib is None, "--recover trains on --calib PATH, without labels"),
    Rule(
        lambda o: o.recover is not None and not (o.pruned or o.low_rank or o.budget or o.precision in _TRAINABLE),
        "--recover makes up for --prune, --prune-channels, --target-latency, --low-rank, --int8, --int16x8, --w8 or "
        "--w4, and none is given",
    ),
    Rule(
        lambda o: o.prune_channels is not None and (":" in o.prune_channels or not _is_sparsity(o.prune_channels)),
        "--prune-channels {o.prune_channels}: expected a share between 0 and 1, or auto",
    ),
    Rule(
        lambda o: o.prune_channels == "auto" and o.calib is None,
        "--prune-channels auto measures what the model keeps: give it --calib PATH",
    ),
    Rule(
        lambda o: o.budget is not None and o.calib is None,
        "--budget {o.budget} compares what artifacts keep: give it --calib PATH",
    ),
    Rule(
        lambda o: o.budget is not None and o.target_latency is not None,
        "--budget and --target-latency exclude each other: both choose how many channels stay",
    ),
    Rule(
        lambda o: o.budget is not None and "auto" in (o.prune_channels, o.low_rank),
        "--budget chooses how many channels and ranks stay: leave auto out",
    ),
    Rule(
        lambda o: o.low_rank is not None and (":" in o.low_rank or not _is_sparsity(o.low_rank)),
        "--low-rank {o.low_rank}: expected a share of each product's power between 0 and 1, or auto",
    ),
    Rule(
        lambda o: o.low_rank == "auto" and o.calib is None,
        "--low-rank auto measures what the model keeps: give it --calib PATH",
    ),
    Rule(
        lambda o: o.target_latency is not None and not 0 < o.target_latency < 1,
        "--target-latency {o.target_latency:g}: expected a share between 0 and 1",
    ),
)
"""In the order in which they are told."""


def check(options: ExportOptions) -> None:
    """Raise ``UsageError`` with the first thing that makes no sense."""
    if unknown := sorted(options.trust - set(get_args(Trust))):
        raise UsageError(f"--trust {unknown[0]}: not one of {', '.join(get_args(Trust))}")
    for rule in RULES:
        if rule.wrong(options):
            raise UsageError(rule.sentence.format(o=options))
    for flag, names in _named(options):
        if (double := _doubled(names)) is not None:
            raise UsageError(f"--{flag} {double} is given twice")
    for each in options.inputs:
        _check_range(each)


def _named(options: ExportOptions) -> Iterator[tuple[str, Sequence[str]]]:
    """What may be given once for each name."""
    yield "target", options.targets
    yield "input", [each.name for each in options.inputs]
    yield "static", [name for name, _ in options.static]
    yield "normalization", [each.input for each in options.normalization]
    yield "pass", options.passes
    yield "device", options.device


def _doubled(names: Sequence[str]) -> str | None:
    return next((name for index, name in enumerate(names) if name in names[:index]), None)


def _check_range(spec: InputSpec) -> None:
    if spec.value_range is None:
        return
    low, high = spec.value_range
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"--input {spec.name}: [{low:g},{high:g}) holds no values; expected [LOW,HIGH), both finite")


def _is_sparsity(text: str) -> bool:
    """Whether ``text`` is ``auto``, a share such as ``0.5`` or a pattern such as ``2:4``."""
    if text == "auto":
        return True
    kept, colon, group = text.partition(":")
    if colon:
        return kept.isdecimal() and group.isdecimal() and 0 < int(kept) < int(group)
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False

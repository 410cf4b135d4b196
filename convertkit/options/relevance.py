"""Whether every flag means something to this source, these targets and this model: what would be ignored is refused.

``--timeout``, ``--seed``, ``--force``, ``--keep-failed`` and ``--verbose`` are bounds and permissions, which need not
come to be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.budget import budget_of
from convertkit.data.kinds import holds_images, holds_sounds
from convertkit.data.user_functions import data_function, metric_function
from convertkit.errors import FeedError, UsageError
from convertkit.model_flags import check_dims, check_normalization, data_lacks, labelled, labels, refuse_unit_scale
from convertkit.operators import EstimatingTarget, MeasuringTarget
from convertkit.options import of_targets
from convertkit.processing.words import anchors_file
from convertkit.recipe import METRICS, THIS, ExportOptions, ImageOptions, WavOptions
from convertkit.references import closest, found_at
from convertkit.stage import (
    CheckingTarget,
    Converter,
    DeviceReader,
    FlagReader,
    IntegerConverter,
    PrecisionDeviceReader,
    ReasoningTarget,
    Target,
)

_IMAGE_RANK = 3
"""Least rank of an input or output that has a layout: channels, and one axis in space beside the batch."""

_WITH_INTEGERS = frozenset({"int8", "int16x8"})
"""Precisions whose inputs and outputs may be integers."""

_OF_TARGETS: Mapping[str, Callable[[ExportOptions], bool]] = {
    "--opset": lambda options: options.opset is not None,
    "--io-dtype": lambda options: options.io_dtype != "float32",
    "--device": lambda options: bool(options.device),
    "--input-layout": lambda options: options.input_layout != "auto",
    "--description": lambda options: bool(options.description),
    "--label-file": lambda options: options.label_file is not None,
    "--compress": lambda options: options.compress,
    "--normalization": lambda options: bool(options.normalization) and not _folders_of_images(options),
}
"""Flags that only some targets have a use for, and whether they are given."""


def check_request(options: ExportOptions, targets: Sequence[Target]) -> None:
    """Raise a ``ConvertKitError`` for what cannot work or would do nothing, before the source is opened."""
    check_flags(options, targets)
    for target in targets:
        check_target(options, target)


def check_target(options: ExportOptions, target: Target) -> None:
    """Raise a ``ConvertKitError`` for what a target, or one that it packages, refuses whatever the model."""
    for part in plugins.parts_of(target, options):
        if isinstance(part, CheckingTarget):
            part.check(options)


def check_flags(options: ExportOptions, targets: Sequence[Target]) -> None:
    """Raise a ``ConvertKitError`` for flags that do nothing for any of ``targets``, or hold what cannot be."""
    of_targets.check(options, targets)
    if options.budget is not None:
        check_budget(options.budget, targets)
    if options.quantized and options.calib is None and not _came_quantized(options.source):
        raise data_lacks(options)
    for flag, data in (("--calib", options.calib), ("--eval", options.eval)):
        if isinstance(data, str) and found_at(data, FeedError) is None:
            data_function(data, flag)
    for flag, is_given in _OF_TARGETS.items():
        if is_given(options) and not any(_used(each, flag, options) for each in targets):
            others = [name for name in plugins.target_names() if _used(plugins.target(name), flag, options)]
            raise UsageError(
                f"{flag} does nothing for {_listed(_as_given(each, flag) for each in targets)}; "
                f"it is for --target {_listed(others)}{_AND_IMAGES.get(flag, '')}"
            )
    check_devices(options.device, [name for each in targets for name in _devices_of(each)])
    if options.images != ImageOptions() and not (_folders_of_images(options) or _named(targets, "--images")):
        raise UsageError("--images is about folders of images, and neither --calib nor --eval is one")
    if options.wav != WavOptions() and not any(holds_sounds(data) for data in (options.calib, options.eval)):
        raise UsageError("--wav is about folders of WAV files, and neither --calib nor --eval is one")
    for each in options.normalization if _folders_of_images(options) else ():
        refuse_unit_scale(each)
    if options.label_file is not None:
        labels(Path(options.label_file))
    if (anchors := anchors_file(options.postprocess)) is not None:
        from convertkit.processing.detections import read_anchors

        read_anchors(anchors)
    if options.metric is not None and options.metric not in METRICS:
        metric_function(options.metric)


def _came_quantized(source: str) -> bool:
    """Whether the source is a file whose own integers stay, so that no data has to tell ranges."""
    if not Path(source).is_file():
        return False
    converter = plugins.converter_for(source)
    return isinstance(converter, IntegerConverter) and converter.is_quantized(source)


def check_budget(text: str, targets: Sequence[Target]) -> None:
    """Raise ``UsageError`` for a limit that cannot be read, or of a time where no cost table knows one."""
    if budget_of(text).kind == "size":
        return
    for target in targets:
        if not isinstance(target, EstimatingTarget):
            known = [name for name in plugins.target_names() if isinstance(plugins.target(name), EstimatingTarget)]
            raise UsageError(
                f"--budget {text}: nothing tells what {target.name} takes before it runs; a latency can be asked for "
                f"with --target {_listed(known)}, a size with any"
            )


def check_precision(options: ExportOptions, target: Target) -> None:
    """Raise ``UsageError`` where the target, or one whose artifact it packages, does not deliver the precision."""
    for part in (target, *plugins.parts_of(target, options)):
        if options.precision not in part.precisions:
            has = ", ".join(part.precisions)
            reason = part.lacks.get(options.precision, "") if isinstance(part, ReasoningTarget) else ""
            why = f": {reason}" if reason else ""
            raise UsageError(f"target {part.name} does not deliver {options.precision}{why}; it has: {has}")


def _tables_of(target: Target) -> tuple[str, ...]:
    """Devices that it has cost tables of."""
    return target.devices if isinstance(target, DeviceReader) else ()


def _devices_of(target: Target) -> tuple[str, ...]:
    known = _tables_of(target)
    return (*known, THIS) if isinstance(target, MeasuringTarget) else known


def _decided_by_device(target: Target, options: ExportOptions) -> bool:
    chosen = options.precision if options.budget is None else None  # a budget chooses the precision, by the device
    if isinstance(target, PrecisionDeviceReader) and chosen and chosen not in target.device_precisions:
        return False
    return bool(_devices_of(target))


def _as_given(target: Target, flag: str) -> str:
    """The target's name, with what the command lacks for the flag to do something there."""
    if flag == "--device" and isinstance(target, PrecisionDeviceReader):
        return f"{target.name} without {' or '.join(f'--{each}' for each in target.device_precisions)}"
    return target.name


def check_devices(names: Sequence[str], known: Sequence[str]) -> None:
    """Raise ``UsageError`` for a device that is not among those which the targets know."""
    for name in (each for each in names if each not in known):
        others = [each for each in plugins.target_names() if name in _tables_of(plugins.target(each))]
        why = f"its costs are known for {' and '.join(others)} alone" if others else "no device is called so"
        near = "" if others else closest(name, known)
        raise UsageError(f"--device {name}: {why}{near}; there are {', '.join(known)}")


_AND_IMAGES = {"--normalization": ", or for a folder of images"}


def check_source(options: ExportOptions, converter: Converter) -> None:
    """Raise ``UsageError`` for a flag of other kinds of sources."""
    given = [flag for flag, value in (("--model", options.model), ("--signature", options.signature)) if value]
    for flag in (*given, *(f"--trust {kind}" for kind in sorted(options.trust))):
        if not _reads(converter, flag):
            others = [each.name for each in plugins.converters() if _reads(each, flag)]
            raise UsageError(
                f"{flag} does nothing for {options.source}, which {converter.name} reads; it is for {_listed(others)}"
            )


def check_interface(options: ExportOptions, source: Artifact) -> None:
    """Raise ``UsageError`` for names and sizes that the opened model does not have."""
    free = (str(dim) for spec in source.inputs for dim in spec.shape if not isinstance(dim, int))
    check_dims((name for name, _ in options.static), free)
    check_normalization(options.normalization, source.inputs)
    ends = (*source.inputs, *source.outputs)
    if options.input_layout == "nhwc" and all(len(spec.shape) < _IMAGE_RANK for spec in ends):
        raise UsageError("--input-layout nhwc: no input or output of the model is an image")
    lasts = [spec.shape[-1] if spec.shape else None for spec in source.outputs]
    if options.label_file is not None and all(isinstance(size, int) for size in lasts):
        labelled(options.label_file, labels(Path(options.label_file)), source.outputs)


def check_passes(options: ExportOptions, running: Iterable[str]) -> None:
    """Raise ``UsageError`` for a ``--pass`` that runs nothing."""
    if idle := sorted(set(options.passes) - set(running)):
        raise UsageError(
            f"--pass {idle[0]}: the other flags leave it nothing to do; give those that ask for it instead"
        )


def _reads(plugin: Target | Converter, flag: str) -> bool:
    return not isinstance(plugin, FlagReader) or flag in plugin.reads


def _used(target: Target, flag: str, options: ExportOptions) -> bool:
    """Whether a target reads a flag itself, or packages what was made by it, and has what the flag decides about."""
    if flag == "--device" and not _decided_by_device(target, options):
        return False
    if flag == "--io-dtype" and not _WITH_INTEGERS & set(target.precisions):
        return False
    return any(_reads(part, flag) for part in plugins.parts_of(target, options))


def _named(targets: Iterable[Target], flag: str) -> bool:
    return any(isinstance(each, FlagReader) and flag in each.reads for each in targets)


def _folders_of_images(options: ExportOptions) -> bool:
    return any(map(holds_images, (options.calib, options.eval)))


def _listed(names: Iterable[str]) -> str:
    return " or ".join(names)

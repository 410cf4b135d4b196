"""``convertkit check``: whether a model converts for each target, or which node is in the way."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from convertkit import listing, plugins
from convertkit.artifact import Artifact
from convertkit.data import asked
from convertkit.defects import blamed
from convertkit.errors import ConvertKitError, Unsupported, UsageError
from convertkit.looking.opened import source_options
from convertkit.looking.verdicts import Checked, Verdict, refused
from convertkit.options import relevance
from convertkit.progress import Progress, Silent
from convertkit.quiet import quiet_libraries
from convertkit.recipe import ExportOptions, InputSpec
from convertkit.stage import BuildContext, FeedSource, ForetellingStage, FreedSource, Source, StaticTarget, Target


def check(
    source: str | PathLike[str],
    target: str | Sequence[str] = (),
    *,
    int8: bool = False,
    int16x8: bool = False,
    fp16: bool = False,
    w8: bool = False,
    w4: bool = False,
    fp8: bool = False,
    bf16: bool = False,
    full_integer: bool = False,
    io_dtype: str = "float32",
    calib: object = None,
    static: Mapping[str, int] | Sequence[str] = (),
    input_layout: str = "auto",
    opset: int | None = None,
    input: str | InputSpec | Sequence[str | InputSpec] = (),
    model: str | None = None,
    signature: str | None = None,
    trust: str | Iterable[str] = (),
    timeout: float | None = None,
    target_options: Mapping[str, Mapping[str, object]] | None = None,
) -> Checked:
    """Whether a model converts for each target, without verifying it: seconds where an export takes minutes.

    Raises ``UsageError`` for flags that make no sense; whatever else is in the way stands in the verdicts.

    Args:
        source: a path, or ``pkg.mod:callable``.
        target: one or several; without it all that are installed and deliver the precision.
        int8: as in ``export``.
        int16x8: as in ``export``.
        fp16: as in ``export``.
        w8: as in ``export``.
        w4: as in ``export``.
        fp8: as in ``export``.
        bf16: as in ``export``.
        full_integer: as in ``export``.
        io_dtype: as in ``export``.
        calib: calibration data, which integers need.
        static: sizes for named dimensions, ``{"N": 1}``.
        input_layout: ``auto``, ``nchw`` or ``nhwc``.
        opset: opset of a delivered ``.onnx``.
        input: shapes that the file does not hold.
        model: ``pkg.mod:factory`` of the module that a state_dict belongs to.
        signature: signature of a SavedModel or of a TFLite file.
        trust: code in the file that may be executed: ``pickle``, ``lambda``, ``pyfunc``.
        timeout: longest time for one call of a framework, in seconds.
        target_options: what targets bring of their own, ``{"coreml": {"deployment_target": "iOS18"}}``.

    """
    given: dict[str, Any] = {
        "int8": int8,
        "int16x8": int16x8,
        "fp16": fp16,
        "w8": w8,
        "w4": w4,
        "fp8": fp8,
        "bf16": bf16,
        "calib": calib,
    }
    given |= {"full_integer": full_integer, "opset": opset, "input": input, "model": model, "signature": signature}
    given |= {"trust": trust, "timeout": timeout, "static": static, "input_layout": input_layout, "io_dtype": io_dtype}
    given["target_options"] = target_options or None
    unset = {"input_layout": "auto", "io_dtype": "float32"}
    plain = {name: value for name, value in given.items() if value != unset.get(name) and value is not False}
    wanted = (target,) if isinstance(target, str) else tuple(target)
    return checked(asked_for(fspath(source), {**plain, "target": wanted}))


def asked_for(source: str, given: Mapping[str, Any]) -> ExportOptions:
    """The options of a check; where no target is named, every one that is installed and meant for such an export."""
    if given.get("target"):
        return source_options(source, given)
    every = source_options(source, {**given, "target": plugins.target_names()})
    there = {each.name for each in listing.everything()["targets"] if each.installed}
    able = tuple(name for name in every.targets if name in there and _is_meant(plugins.target(name), every))
    return source_options(source, {**given, "target": able})


def _is_meant(target: Target, options: ExportOptions) -> bool:
    """Whether a target delivers the precision, and takes sources of this kind."""
    return plugins.takes(target, options.source) and options.precision in target.precisions


def checked(options: ExportOptions, progress: Progress | None = None) -> Checked:
    """The verdicts for the targets of ``options``; what the only one refuses whatever the model is raised."""
    begun = time.perf_counter()
    targets = [plugins.target(name) for name in options.targets]
    (relevance.check_request if len(targets) == 1 else relevance.check_flags)(options, targets)
    verdicts, notes = _verdicts(options, targets, progress or Silent())
    seconds = time.perf_counter() - begun
    return Checked(options.source, options.precision, verdicts, seconds, notes)


def _verdicts(
    options: ExportOptions, targets: Sequence[Target], progress: Progress
) -> tuple[tuple[Verdict, ...], tuple[str, ...]]:
    with tempfile.TemporaryDirectory(prefix="convertkit-check-") as place, quiet_libraries(verbose=options.verbose):
        try:
            converter = plugins.converter_for(options.source)
            relevance.check_source(options, converter)
            folder = Path(place) / "source"
            folder.mkdir()
            with converter.open(options.source, options, folder, progress) as source:
                way = _Way(options, source, Path(place), progress)
                return tuple(way.to(target) for target in targets), tuple(source.notes)
        except UsageError:
            raise
        except ConvertKitError as refusal:  # of the source itself: no target gets it
            return tuple(refused(target.name, _own(options, target) or refusal) for target in targets), ()


def _own(options: ExportOptions, target: Target) -> ConvertKitError | None:
    """What the target refuses whatever the model; None where it does not."""
    try:
        relevance.check_target(options, target)
    except ConvertKitError as refusal:
        return refusal
    return None


class _Way:
    """An opened source, its ONNX, and the steps from there to each target."""

    def __init__(self, options: ExportOptions, source: Source, place: Path, progress: Progress) -> None:
        from convertkit.steps.make import made

        relevance.check_interface(options, source.artifact)
        self._options, self._place, self._progress = options, place, progress
        progress.status("converting")
        first = made(source.stage(), source.artifact, self._folder("onnx"))
        self._artifact = source.artifact if first.settled is None else first.settled.artifact
        self._sizes: Mapping[str, int] = dict(source.implied_sizes) if isinstance(source, FreedSource) else {}
        self._hub = first.artifact
        self._data: FeedSource | None = None
        if options.static:
            self._hub = self._frozen(dict(options.static), "static")
        if options.calib is not None:
            from convertkit.steps.describe import with_sizes

            self._data = asked.calibration(options, with_sizes(self._artifact, options).inputs)

    def _folder(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._place))

    def _frozen(self, sizes: Mapping[str, int], name: str) -> Artifact:
        from convertkit.onnx.freeze import FreezeStage
        from convertkit.steps.make import made

        return made(FreezeStage(sizes), self._hub, self._folder(name)).artifact

    def to(self, target: Target) -> Verdict:
        """The verdict for one target; where it needs sizes that nobody asked to be open, those are fixed."""
        from convertkit.steps.static import left_open

        self._progress.status(f"checking {target.name}")
        try:
            relevance.check_target(self._options, target)
            relevance.check_precision(self._options, target)
            if isinstance(target, StaticTarget) and (needed := self._needed(target, left_open(target, self._options))):
                return self._at_sizes(target, needed, target.static_because)
            return self._made(target, self._hub, self._options)
        except Unsupported as refusal:
            told = {*dict(self._options.static), *left_open(target, self._options)}
            sizes = {name: size for name, size in self._sizes.items() if name not in told}
            why = str(refusal).splitlines()[0]
            return self._at_sizes(target, sizes, why) if sizes else refused(target.name, refusal)
        except ConvertKitError as refusal:
            return refused(target.name, refusal)

    def _needed(self, target: StaticTarget, kept: Collection[str]) -> Mapping[str, int]:
        from convertkit.steps.describe import with_sizes
        from convertkit.steps.static import static_sizes

        return static_sizes(with_sizes(self._artifact, self._options).inputs, target, self._sizes, kept)

    def _at_sizes(self, target: Target, sizes: Mapping[str, int], why: str) -> Verdict:
        options = replace(self._options, static=(*self._options.static, *sizes.items()))
        try:
            found = self._made(target, self._frozen(dict(options.static), "fixed"), options)
        except ConvertKitError as again:
            return refused(target.name, again)
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        note = f"{told} is fixed, {target.name} cannot leave it dynamic: {why}"
        return replace(found, notes=(note, *found.notes))

    def _made(self, target: Target, hub: Artifact, options: ExportOptions) -> Verdict:
        """Make the artifact, and see that its runtime takes it."""
        from convertkit.steps.make import made
        from convertkit.steps.stages import steps_of

        context = BuildContext(options, target, self._artifact.sha256, self._data, self._progress)
        parts = plugins.parts_of(target, options)
        stages = [each for part in parts for each in steps_of(replace(context, target=part), part).items()]
        relevance.check_passes(options, [name for name, _ in stages if isinstance(name, str)])
        artifact, (_, last) = hub, stages.pop()
        for _, stage in stages:
            artifact = made(stage, artifact, self._folder(stage.name)).artifact
        if isinstance(last, ForetellingStage):
            with blamed(f"stage {last.name} of target {target.name}", target):
                told = last.foretell(artifact)
            return Verdict(target.name, True, notes=tuple(told or ()))
        artifact = made(last, artifact, self._folder(last.name)).artifact
        with plugins.runner(artifact):
            return Verdict(target.name, True)

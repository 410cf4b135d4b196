"""A model of any format that is read or written here, open: its interface, what runs it, and its ONNX."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from convertkit import plugins
from convertkit.artifact import Artifact
from convertkit.errors import UsageError
from convertkit.options.flags import options_from
from convertkit.options.relevance import check_source
from convertkit.progress import Progress, Silent
from convertkit.quiet import quiet_libraries
from convertkit.recipe import ExportOptions
from convertkit.result import MANIFEST, Result, delivered_in, load, read_json
from convertkit.stage import FlagReader, Runner, SettledSource, Source, Tolerance

ONNX_FILES = frozenset({"onnx", "onnxruntime", "tensorrt"})
"""Formats whose file is an ONNX model."""


def source_options(source: str, given: Mapping[str, Any]) -> ExportOptions:
    """The options of an export that say how to open and to feed ``source``; ``UsageError`` where they make no sense."""
    values = {name: value for name, value in given.items() if value is not None and value != ()}
    return options_from({**values, "source": source})


@dataclass(slots=True)
class Opened:
    """An open model; use :func:`opened`.

    ``given`` is what the user named, ``delivered`` the export that it lies in, None for a source.  ``artifact`` changes
    where the conversion to ONNX finds out more about the interface.
    """

    given: str
    options: ExportOptions
    artifact: Artifact
    delivered: Result | None
    _source: Source | None
    _folder: Path
    _onnx: Artifact | None = None
    conversion: Tolerance | None = None
    """What its ONNX may differ from it by; None while there is none, and where the file itself is that."""

    @property
    def title(self) -> str:
        """What to call it in a sentence."""
        return Path(self.given).name or self.given

    @property
    def is_onnx(self) -> bool:
        """Whether its file is an ONNX model."""
        return self.artifact.format in ONNX_FILES

    @property
    def notes(self) -> tuple[str, ...]:
        """What the source says about itself."""
        if self.delivered is not None:
            return self.delivered.notes
        return () if self._source is None else tuple(self._source.notes)

    def runner(self) -> Runner:
        """What executes it: its framework for a source, its runtime for what was delivered."""
        return plugins.runner(self.artifact) if self._source is None else self._source.runner()

    def onnx(self) -> Artifact:
        """It as ONNX: the file itself, else what its converter makes of it, once.

        Raises what an export would where it cannot be converted.
        """
        if self._onnx is None:
            self._onnx = replace(self.artifact, format="onnx") if self.is_onnx else self._converted()
        return self._onnx

    def _converted(self) -> Artifact:
        place = self._folder / "onnx"
        place.mkdir(exist_ok=True)
        if self._source is not None:
            stage = self._source.stage()
            made = stage.run(self.artifact, place)
            self.conversion = stage.tolerance
            settled = getattr(stage, "settled", None)
            if settled is not None:
                self.artifact = settled.artifact
                if isinstance(self._source, SettledSource):
                    self._source = self._source.settled(settled)
            return made
        path = str(self.artifact.path)
        opening = self._folder / "reading"
        opening.mkdir(exist_ok=True)
        with plugins.converter_for(path).open(path, source_options(path, {}), opening, Silent()) as source:
            stage = source.stage()
            made = stage.run(source.artifact, place)
            self.conversion = stage.tolerance
        return replace(
            made,
            inputs=_as_delivered(made.inputs, self.artifact.inputs),
            outputs=_as_delivered(made.outputs, self.artifact.outputs),
        )


def _as_delivered(read: tuple[Any, ...], delivered: tuple[Any, ...]) -> tuple[Any, ...]:
    """The interface of a file that was read again, with the layout and scale that its manifest tells."""
    known = {spec.name: spec for spec in delivered}
    return tuple(
        replace(
            spec,
            perm=known[spec.name].perm,
            quantization=known[spec.name].quantization,
            labels=known[spec.name].labels,
        )
        if spec.name in known
        else spec
        for spec in read
    )


@contextmanager
def opened(model: str, progress: Progress | None = None, /, **given: Any) -> Iterator[Opened]:
    """Open a path, ``pkg.mod:callable`` or a delivered folder; ``given`` are flags of an export that say how.

    Everything temporary is gone at the end.  Raises what an export would where it cannot be opened, and ``UsageError``
    for a flag that does nothing for it.
    """
    options = source_options(model, given)
    with tempfile.TemporaryDirectory(prefix="convertkit-look-") as place, quiet_libraries(verbose=options.verbose):
        delivered = _delivered(Path(model).expanduser())
        if delivered is not None:
            _refuse_what_it_tells(options, delivered)
            yield Opened(model, options, _with_traits(delivered.artifact), delivered, None, Path(place))
            return
        converter = plugins.converter_for(model)
        check_source(options, converter)
        folder = Path(place) / "source"
        folder.mkdir()
        with converter.open(model, options, folder, progress or Silent()) as plain:
            source = plain
            if options.preprocess is not None or options.postprocess is not None:
                from convertkit.processing.source import with_processing

                source = with_processing(plain, options)
            yield Opened(model, options, source.artifact, None, source, Path(place))


def _delivered(path: Path) -> Result | None:
    """The export that lies in a folder, or that a file is the model of; None for a source."""
    place = delivered_in(path)
    try:
        described = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        is_model = place == path or described["artifact"]["path"] == path.name
        ours = "convertkit" in described and is_model
    except (OSError, ValueError, KeyError, TypeError):  # none, or somebody else's
        return None
    return load(path) if ours else None


def _refuse_what_it_tells(options: ExportOptions, delivered: Result) -> None:
    given = {"input": options.inputs, "model": options.model, "signature": options.signature, "trust": options.trust}
    if useless := [f"--{name}" for name, value in given.items() if value]:
        raise UsageError(f"{useless[0]} does nothing for {delivered.path}: the manifest of an export tells all of it")


@contextmanager
def opened_both(
    first: str, second: str, how: Mapping[str, Any], data: Mapping[str, Any]
) -> Iterator[tuple[Opened, Opened]]:
    """Open two models; what says ``how`` holds for those that it can be for, ``data`` are flags of the inputs.

    A source beside an export with pre- or post-processing gets the same, for its manifest tells it.  Raises
    ``UsageError`` for a flag that does nothing for either.
    """
    chosen = [_meant_for(model, how) for model in (first, second)]
    given = {name for name, value in how.items() if value is not None and value != ()}
    if idle := given.difference(*chosen):
        raise UsageError(f"--{min(idle)} does nothing for either of {first} and {second}")
    around = _processing(second, first), _processing(first, second)
    with opened(first, **chosen[0], **data, **around[0]) as one, opened(second, **chosen[1], **around[1]) as other:
        yield one, other


def _processing(delivered: str, source: str) -> dict[str, str]:
    """The flags of pre- and post-processing that an export had, where the other model is a source."""
    export = _delivered(Path(delivered).expanduser())
    if export is None or _delivered(Path(source).expanduser()) is not None:
        return {}
    chosen = read_json(export.path / MANIFEST)["options"]
    return {name: chosen[name] for name in ("preprocess", "postprocess") if chosen.get(name)}


def _meant_for(model: str, how: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``how`` a model has a use for; shapes are for what does not hold its own."""
    given = {name: value for name, value in how.items() if value is not None and value != ()}
    if _delivered(Path(model).expanduser()) is not None:
        return {name: value for name, value in given.items() if name == "timeout"}
    converter = plugins.converter_for(model)
    reads = converter.reads if isinstance(converter, FlagReader) else None
    trusted = _strings(given.get("trust", ()))
    known = {"model": "--model", "signature": "--signature"}
    kept = {name: value for name, value in given.items() if reads is None or known.get(name, "") in {"", *reads}}
    if reads is not None and "trust" in kept:
        kept["trust"] = tuple(each for each in trusted if f"--trust {each}" in reads)
    return {name: value for name, value in kept.items() if value != ()}


def _strings(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _with_traits(artifact: Artifact) -> Artifact:
    """A delivered artifact with what its graph tells of its outputs, which a manifest does not hold."""
    if artifact.format not in ONNX_FILES:
        return artifact
    from convertkit.onnx.load import load_own
    from convertkit.onnx.specs import interface

    inputs, outputs = interface(load_own(artifact.path))
    labels = {spec.name: spec.labels for spec in artifact.outputs}
    return replace(
        artifact, inputs=inputs, outputs=tuple(replace(spec, labels=labels.get(spec.name, ())) for spec in outputs)
    )


def size_of(artifact: Artifact) -> int:
    """Bytes of the model and of weights that lie beside it; 0 for what is not a file."""
    if not artifact.path.exists():
        return 0
    if artifact.format not in ONNX_FILES:
        return artifact.size_bytes
    from convertkit.onnx.load import external_files

    return sum(file.stat().st_size for file in (artifact.path, *external_files(artifact.path)))

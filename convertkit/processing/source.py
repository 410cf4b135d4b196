"""A source with its processing: it takes pictures of bytes or PCM, and becomes ONNX that does so, too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from convertkit.around import Around
from convertkit.artifact import Artifact, TensorSpec
from convertkit.onnx.canonical import canonicalize
from convertkit.onnx.load import load_own
from convertkit.onnx.save import save_model
from convertkit.processing.audio import heard
from convertkit.processing.detection_reference import detected
from convertkit.processing.graph import write_in
from convertkit.processing.interface import Processing, processing_of
from convertkit.processing.reference import postprocessed, preprocessed
from convertkit.recipe import ExportOptions
from convertkit.stage import (
    ConcurrentSource,
    Feed,
    FreedSource,
    Outputs,
    Runner,
    Settled,
    SettledSource,
    SettlingStage,
    SizedSource,
    Source,
    Stage,
    Tolerance,
)


def with_processing(source: Source, options: ExportOptions) -> Source:
    """``source`` with the pre- and post-processing that ``options`` name; ``UsageError`` where it does not fit."""
    processing = processing_of(source.artifact, options)
    return source if processing is None else ProcessedSource(source, processing)


class ProcessedSource(Around[Source]):
    """``inner`` with its processing around it, computed in NumPy: what every later artifact is held against."""

    def __init__(self, inner: Source, processing: Processing) -> None:
        super().__init__(inner)
        self._processing = processing
        self.artifact = processing.applied(inner.artifact)
        self.concurrent = isinstance(inner, ConcurrentSource) and inner.concurrent
        self.implied_sizes: Mapping[str, int] = inner.implied_sizes if isinstance(inner, FreedSource) else {}
        self.known_sizes: Mapping[str, Sequence[int]] = inner.known_sizes if isinstance(inner, SizedSource) else {}

    @property
    def notes(self) -> Sequence[str]:
        """The source's own, and what an app has to give."""
        return (*self._inner.notes, *self._processing.notes)

    def runner(self) -> Runner:
        """The source's own, with the processing before and behind it."""
        return ProcessedRunner(self._inner.runner(), self._processing)

    def stage(self) -> Stage:
        """The source's own, with the processing written into the ONNX that it makes."""
        return ProcessedStage(self._inner.stage(), self._inner.artifact, self._processing)

    def settled(self, settled: Settled) -> Source:
        """The same source with the interface that its conversion left it."""
        if not isinstance(self._inner, SettledSource):
            return self
        plain = _without(settled.artifact, self._inner.artifact, self._processing)
        return ProcessedSource(self._inner.settled(replace(settled, artifact=plain)), self._processing)


class ProcessedRunner(Around[Runner]):
    """NumPy before and behind what runs the source."""

    def __init__(self, inner: Runner, processing: Processing) -> None:
        super().__init__(inner)
        self._processing = processing

    def run(self, feed: Feed) -> Outputs:
        """All outputs for pictures of bytes."""
        picture, scores, detections = self._processing.picture, self._processing.scores, self._processing.detections
        if picture is not None:
            pixels = np.asarray(feed[picture.name])
            made = preprocessed(pixels, picture.how, picture.size, channels_first=picture.channels_first)
            feed = {**feed, picture.name: made}
        if self._processing.sound is not None:
            sound = self._processing.sound
            feed = {**feed, sound.name: heard(np.asarray(feed[sound.name]), sound)}
        outputs: Outputs = {}
        plain = self._inner.run(feed)
        if detections is not None:
            return {**{k: v for k, v in plain.items() if k not in detections.taken}, **detected(plain, detections)}
        for name, value in plain.items():
            if scores is not None and name == scores.name:
                outputs |= zip(scores.names, postprocessed(value, scores.how), strict=True)
            else:
                outputs[name] = value
        return outputs


class ProcessedStage:
    """The step to ONNX, and the processing written into it."""

    def __init__(self, inner: Stage, source: Artifact, processing: Processing) -> None:
        self._inner, self._source, self._processing = inner, source, processing
        self.name, self.version = inner.name, inner.version
        self.accepts, self.produces = frozenset({processing.applied(source).format}), inner.produces

    @property
    def tolerance(self) -> Tolerance:
        """The source's own: the processing is the same float32 arithmetic."""
        return self._inner.tolerance

    @property
    def options(self) -> Mapping[str, object]:
        """The source's own, and the steps of the processing."""
        return {**self._inner.options, **self._processing.words}

    @property
    def settled(self) -> Settled | None:
        """What the conversion has found out, with the interface of the processed source."""
        found = self._inner.settled if isinstance(self._inner, SettlingStage) else None
        if found is None:
            return None
        notes = (*found.notes, *self._processing.notes)
        return replace(found, artifact=self._processing.applied(found.artifact), notes=notes)

    def run(self, source: Artifact, workdir: Path) -> Artifact:
        """Convert the source, and write the processing into ``processed.onnx``."""
        made = self._inner.run(self._source, workdir)
        model = load_own(made.path)
        write_in(model, self._processing)
        model = canonicalize(model)
        processed = save_model(model, workdir / "processed.onnx", made.made_by, made.initial_state)
        return replace(processed, inputs=self._processing.applied(made).inputs)


def _without(artifact: Artifact, inner: Artifact, processing: Processing) -> Artifact:
    """A processed interface as the source's own has it; sizes in front stay what they became."""
    plain = {spec.name: spec for spec in inner.inputs}
    inputs = tuple(
        _own(spec, plain[spec.name], processing) if spec.name == processing.prepared else spec
        for spec in artifact.inputs
    )
    gone: Collection[str] = () if processing.scores is None else (processing.scores.name,)
    if processing.detections is not None:
        gone = processing.detections.taken
    kept = {spec.name: spec for spec in artifact.outputs}
    outputs = tuple(spec if spec.name in gone else kept[spec.name] for spec in inner.outputs)
    return replace(artifact, format=inner.format, inputs=inputs, outputs=outputs)


def _own(given: TensorSpec, own: TensorSpec, processing: Processing) -> TensorSpec:
    """The source's input that an app's stands for, with the batch that this has."""
    if processing.sound is not None and processing.sound.flat:
        return own
    return replace(own, shape=(given.shape[0], *own.shape[1:]))

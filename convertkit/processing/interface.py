"""Which input and output of a model are processed, and how its interface looks then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convertkit.artifact import PROCESSED, Artifact, TensorSpec
from convertkit.data.images import ImageReader
from convertkit.errors import FeedError, UsageError
from convertkit.processing.audio import Sound, sound_of
from convertkit.processing.detections import Detections, detections_of
from convertkit.processing.words import Postprocess, Preprocess, audio_in, parse_postprocess, parse_preprocess
from convertkit.recipe import ExportOptions, ImageOptions

_COLOURS = (1, 3)


@dataclass(frozen=True, slots=True)
class Picture:
    """The input called ``name``, of ``size`` (height, width), that a picture of bytes becomes."""

    how: Preprocess
    name: str
    size: tuple[int, int]
    channels: int
    channels_first: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """The output called ``name`` that is processed, and what its results are called."""

    how: Postprocess
    name: str

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{self.name}_scores", f"{self.name}_classes") if self.how.choice == "top" else (self.name,)


@dataclass(frozen=True, slots=True)
class Processing:
    """What becomes part of one model.

    ``words`` are the flags' own, by their names.
    """

    picture: Picture | None
    sound: Sound | None
    scores: Scores | None
    detections: Detections | None
    words: Mapping[str, str]

    @property
    def notes(self) -> tuple[str, ...]:
        """What an app has to give, and what it gets, a sentence each."""
        return (*self._given, *(() if self.detections is None else (self.detections.note,)))

    @property
    def _given(self) -> tuple[str, ...]:
        if self.sound is not None:
            return (self.sound.note,)
        if self.picture is None:
            return ()
        how, colours = self.picture.how, "grey" if self.picture.channels == 1 else "red, green, blue"
        return (
            f"input {self.picture.name} takes a picture of {how.height} x {how.width} pixels as bytes of 0 to 255, "
            f"channels last ({colours}); all else that --preprocess names is in the model",
        )

    def applied(self, artifact: Artifact) -> Artifact:
        """The source with the interface that it has with its processing."""
        inputs = tuple(self._given_as(spec) for spec in artifact.inputs)
        outputs = tuple(each for spec in artifact.outputs for each in self._results(spec))
        if self.detections is not None:
            outputs = self._detected(artifact.outputs, self.detections)
        return replace(artifact, format=f"{artifact.format}{PROCESSED}", inputs=inputs, outputs=outputs)

    @staticmethod
    def _detected(outputs: Sequence[TensorSpec], plan: Detections) -> tuple[TensorSpec, ...]:
        """The interface with the results where the first output was that they are made of."""
        at = min(place for place, spec in enumerate(outputs) if spec.name in plan.taken)
        kept = [spec for spec in outputs if spec.name not in plan.taken]
        return (*kept[:at], *plan.results(outputs[at].source_shape[0]), *kept[at:])

    def _given_as(self, spec: TensorSpec) -> TensorSpec:
        """An input as an app gives it."""
        if self.picture is not None and spec.name == self.picture.name:
            shape = (spec.source_shape[0], self.picture.how.height, self.picture.how.width, self.picture.channels)
            return TensorSpec(spec.name, shape, "uint8", value_range=(0, 256))
        if self.sound is not None and spec.name == self.sound.name:
            batch = () if self.sound.flat else (spec.source_shape[0],)
            return TensorSpec(spec.name, (*batch, self.sound.samples), self.sound.dtype, value_range=(-32768, 32768))
        return spec

    @property
    def prepared(self) -> str | None:
        """The input that is a picture or a sound."""
        if self.picture is not None:
            return self.picture.name
        return None if self.sound is None else self.sound.name

    def _results(self, spec: TensorSpec) -> tuple[TensorSpec, ...]:
        if self.scores is None or spec.name != self.scores.name:
            return (spec,)
        how, plain = self.scores.how, replace(spec, clamped=False, lsb=None)
        if how.choice == "argmax":
            return (replace(plain, shape=spec.shape[:-1], dtype="int64", classes=_count(spec)),)
        if how.choice == "top":
            best = replace(plain, shape=(*spec.shape[:-1], how.top), ranked=True)
            first, second = self.scores.names
            return replace(best, name=first), replace(best, name=second, dtype="int64", classes=_count(spec))
        return (plain,)


def _count(scores: TensorSpec) -> int:
    """How many classes have scores; :func:`_scores` has refused a dynamic number."""
    return int(scores.shape[-1])


def processing_of(artifact: Artifact, options: ExportOptions) -> Processing | None:
    """What ``options`` ask for of this source, None without any; ``UsageError`` where it does not fit."""
    if options.preprocess is None and options.postprocess is None:
        return None
    audio = None if options.preprocess is None else audio_in(options.preprocess)
    sound = None if audio is None else sound_of(audio, artifact.inputs)
    picture = None
    if options.preprocess is not None and audio is None:
        picture = _picture(parse_preprocess(options.preprocess), artifact.inputs)
    post = None if options.postprocess is None else parse_postprocess(options.postprocess)
    scores = detections = None
    if post is not None and post.suppression is not None:
        detections = detections_of(post.suppression, artifact.outputs)
    elif post is not None:
        scores = _scores(post, artifact.outputs)
    words = {"preprocess": options.preprocess, "postprocess": options.postprocess}
    return Processing(
        picture, sound, scores, detections, {name: text for name, text in words.items() if text is not None}
    )


def _picture(how: Preprocess, inputs: Sequence[TensorSpec]) -> Picture:
    spec = _chosen("--preprocess", "input", how.input, [spec for spec in inputs if len(spec.shape) == 4])
    if spec.dtype != "float32":
        raise UsageError(f"--preprocess: input {spec.name} is {spec.dtype}, and a normalised picture is float32")
    fixed = _with_size(spec, how, inputs)
    try:
        reader = ImageReader(fixed, ImageOptions(layout=how.layout, mean=how.mean, std=how.std))
    except FeedError as error:
        raise UsageError(f"--preprocess: {error}") from error
    height, width = reader.shape[1:] if reader.channels_first else reader.shape[:2]
    return Picture(how, spec.name, (height, width), reader.channels, reader.channels_first)


def _with_size(spec: TensorSpec, how: Preprocess, inputs: Sequence[TensorSpec]) -> TensorSpec:
    """The input with the size of the picture's centre, where the model leaves height or width open."""
    first = how.layout == "nchw" or (how.layout == "auto" and spec.shape[1] in _COLOURS)
    places = (2, 3) if first else (1, 2)
    _, _, *centre = how.cut
    shape = list(spec.shape)
    for place, size in zip(places, centre, strict=True):
        if isinstance(shape[place], str):
            shape[place] = size
    gone = set(map(str, spec.shape)) - set(map(str, shape))
    for other in inputs:
        if other.name != spec.name and gone & set(map(str, other.shape)):
            raise UsageError(f"--preprocess fixes the size of {spec.name}, and input {other.name} "
                             f"{list(other.shape)} has the same dynamic size: start from fixed sizes")  # fmt: skip
    return replace(spec, shape=tuple(shape))


def _scores(how: Postprocess, outputs: Sequence[TensorSpec]) -> Scores:
    spec = _chosen("--postprocess", "output", how.output, outputs)
    if spec.dtype != "float32" or len(spec.shape) < 2:
        raise UsageError(f"--postprocess: output {spec.name} is {spec.dtype} of {list(spec.shape)}, and scores are "
                         "float32 with the classes in the last of two axes or more")  # fmt: skip
    classes = spec.shape[-1]
    if not isinstance(classes, int) or how.top > classes:
        raise UsageError(f"--postprocess: output {spec.name} has {classes} classes, too few for top:{how.top}"
                         if isinstance(classes, int) else
                         f"--postprocess: output {spec.name} has a dynamic number of classes ({classes})")  # fmt: skip
    return Scores(how, spec.name)


def _chosen(flag: str, role: str, name: str | None, specs: Sequence[TensorSpec]) -> TensorSpec:
    """The one that is meant."""
    found = [spec for spec in specs if spec.name == name] if name is not None else list(specs)
    if len(found) == 1:
        return found[0]
    named = ", ".join(spec.name for spec in specs) or f"none{' with four axes' if role == 'input' else ''}"
    if name is not None:
        raise UsageError(f"{flag} {role}:{name}: no such {role}; there are: {named}")
    raise UsageError(f"{flag}: which {role} is meant? The model has: {named}; say {role}:NAME")

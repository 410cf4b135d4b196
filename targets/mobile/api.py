"""What a typed API speaks of, whatever its language: ports, pictures, sounds, labels, and what state begins with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from convertkit.artifact import Artifact
from convertkit.errors import Unsupported
from convertkit.model_flags import labelled, labels
from convertkit.processing.detections import BOXES, CLASSES, COUNT, POINTS, SCORES
from convertkit.processing.words import audio_in, parse_postprocess
from convertkit.recipe import ExportOptions
from convertkit.state import initial_state
from convertkit.targets.mobile.golden import little
from convertkit.targets.mobile.order import Names
from convertkit.targets.mobile.pictures import Picture, picture_of, sound_of
from convertkit.targets.mobile.ports import Port, Ports, plain, ports_of


@dataclass(frozen=True, slots=True)
class DetectionPorts:
    """The outputs of ``--postprocess nms``; ``numbers`` are those of the points of each detection."""

    boxes: Port
    scores: Port
    classes: Port
    count: Port
    points: Port | None

    @property
    def numbers(self) -> int:
        return 0 if self.points is None else self.points.shape[-1]


@dataclass(frozen=True, slots=True)
class Heard:
    """The input that takes PCM of 16 bits as ``--preprocess audio`` says, and its rate in Hz."""

    port: Port
    rate: int


@dataclass(frozen=True, slots=True)
class TypedApi:
    """``labels`` is the output that ``label_text`` (one for each line) names; ``picture`` and ``sound`` are inputs.

    ``scores`` is the output that holds the scores of the classes which ``labels`` tells, where that tells classes;
    a detector has ``detections`` instead.  ``heard`` is an input of PCM, which the model itself prepares.
    """

    ports: Ports
    picture: Picture | None
    sound: Port | None
    labels: Port | None
    label_text: bytes
    description: str
    scores: Port | None = None
    detections: DetectionPorts | None = None
    heard: Heard | None = None

    @property
    def classifies(self) -> bool:
        """Whether each score has a label."""
        count = self.label_text.count(b"\n")
        return self.labels is not None and self.labels.count == count and self.labels.api == "float32"

    @property
    def names(self) -> bool:
        """Whether the output with labels tells classes, as integers."""
        return self.labels is not None and self.labels.spec.classes is not None

    def special(self, medium: str) -> Port | None:
        """The input that a ``picture`` or a ``sound`` takes the place of."""
        return {"picture": None if self.picture is None else self.picture.port, "sound": self.sound}.get(medium)

    def values(self, name: str) -> dict[str, object]:
        """What templates of every language read; ``name`` is the class."""
        return {
            "name": name,
            "ports": self.ports,
            "picture": self.picture,
            "sound": self.sound,
            "labels": self.labels,
            "classifies": self.classifies,
            "names": self.names,
            "scores": self.scores if self.detections is None else None,
            "detections": self.detections,
            "heard": None if self.heard is None else self.heard.port,
            "rate": None if self.heard is None else self.heard.rate,
            "description": plain(self.description) or f"The model {name}.",
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a target's own options ask of the API: inputs by name, after the beginning of the flags that name them."""

    flags: str
    picture: str | None
    sound: str | None


def typed_api(
    source: Artifact, names: Names, options: ExportOptions, wanted: Wanted, reserved: frozenset[str]
) -> TypedApi:
    """The API of ``source``; ``Unsupported`` or ``UsageError`` for what it cannot have.

    ``names`` are those of inputs and outputs in the order in which the runtime counts them.
    """
    ports = ports_of(source, *names, reserved)
    picture = picture_of(wanted.picture, f"{wanted.flags}-image", ports.given, options)
    sound = sound_of(wanted.sound, f"{wanted.flags}-audio", ports.given)
    text, named = b"", None
    if options.label_file is not None:
        text = labels(Path(options.label_file))
        name = labelled(options.label_file, text, source.outputs)
        named = next(port for port in ports.returned if port.name == name)
    elif told := [port for port in ports.returned if _are_lines(port.spec.labels)]:  # places in a list of words
        named = told[0]
        text = "".join(f"{label}\n" for label in named.spec.labels).encode()
    scores, detections = _scores_of(named, ports.returned), _detections(options.postprocess, ports.returned)
    heard = _heard(options.preprocess, ports.given)
    return TypedApi(ports, picture, sound, named, text, options.description, scores, detections, heard)


def _heard(preprocess: str | None, inputs: Sequence[Port]) -> Heard | None:
    """The input that PCM goes into; the words name it, or it is the only one of its kind."""
    audio = None if preprocess is None else audio_in(preprocess)
    if audio is None:
        return None
    kind = "int32" if audio.wide else "int16"
    found = [port for port in inputs if port.dtype == kind and audio.input in (None, port.name)]
    return Heard(found[0], audio.rate) if len(found) == 1 else None


def _detections(postprocess: str | None, outputs: Sequence[Port]) -> DetectionPorts | None:
    """What the model tells of each detection, for one picture; None of a model that is not made to tell them."""
    if postprocess is None or parse_postprocess(postprocess).suppression is None:
        return None
    found = {port.name: port for port in outputs}
    if found[BOXES].shape[0] != 1:
        return None
    return DetectionPorts(found[BOXES], found[SCORES], found[CLASSES], found[COUNT], found.get(POINTS))


def _are_lines(labels: Sequence[str]) -> bool:
    """Whether there are any, each of which fits into a line."""
    return bool(labels) and not any("\n" in label or "\r" in label for label in labels)


def _scores_of(named: Port | None, outputs: Sequence[Port]) -> Port | None:
    """The one output of ranked scores that has an element for each class which ``named`` tells."""
    if named is None or named.spec.classes is None:
        return None
    found = [port for port in outputs if port.api == "float32" and port.spec.ranked and port.shape == named.shape]
    return found[0] if len(found) == 1 else None


def beginning(source: Artifact, ports: Ports) -> bytes:
    """What state begins with, as the model's own elements, one after another."""
    start = initial_state(source)
    specs = {spec.name: spec for spec in source.inputs}
    return b"".join(little(specs[port.name].encode(start[port.name])) for port in ports.states)


def check_one_file(source: Artifact) -> None:
    """``Unsupported`` where weights lie beside the model: what an app carries is one file."""
    beside = [path for path in source.path.parent.iterdir() if path.name.startswith(f"{source.path.name}.")]
    if beside:
        raise Unsupported(
            f"its weights are in a file of their own, {beside[0].name}, and an app carries one file",
            subject=source.path.name,
            ways_out=("--int8 or --w8, whose weights take a quarter",),
        )

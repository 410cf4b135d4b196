"""Which outputs of a detector hold its boxes and scores, how they lie, and what stands for them in the end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.errors import UsageError
from convertkit.processing.detection_words import Suppression

BOXES, SCORES, CLASSES = "detection_boxes", "detection_scores", "detection_classes"
POINTS, COUNT = "detection_points", "detection_count"
_BOX = 4


@dataclass(frozen=True, slots=True)
class Detections:
    """``candidates`` boxes of the outputs ``boxes`` and ``scores``, which are one where the names are the same.

    ``classes`` are those that a box can be of, the background not among them.  ``anchors`` are float32 (candidates, 4).
    """

    how: Suppression
    boxes: str
    scores: str
    candidates: int
    classes: int
    anchors: Array | None

    @property
    def taken(self) -> frozenset[str]:
        """The model's own outputs that end here."""
        return frozenset({self.boxes, self.scores})

    @property
    def names(self) -> tuple[str, ...]:
        """The results, in this order."""
        return (BOXES, SCORES, CLASSES, *((POINTS,) if self.how.points else ()), COUNT)

    @property
    def note(self) -> str:
        """What an app gets, in a sentence."""
        return (
            f"{BOXES} are left, top, right, bottom in the units of the model's own boxes, best first; those behind the "
            f"number in {COUNT} are zeros"
        )

    def results(self, batch: int | str) -> tuple[TensorSpec, ...]:
        """The outputs that stand for the model's own."""
        most = self.how.most
        found = [
            TensorSpec(BOXES, (batch, most, _BOX), "float32", ranked=True),
            TensorSpec(SCORES, (batch, most), "float32", ranked=True),
            TensorSpec(CLASSES, (batch, most), "int64", ranked=True, classes=self.classes),
            TensorSpec(POINTS, (batch, most, 2 * self.how.points), "float32", ranked=True),
            TensorSpec(COUNT, (batch,), "int64", ranked=True),
        ]
        return tuple(spec for spec in found if spec.name in self.names)


def detections_of(how: Suppression, outputs: Sequence[TensorSpec]) -> Detections:
    """What ``how`` means of a model with these outputs; ``UsageError`` where it does not fit them."""
    boxes, scores = (_laid(spec, how) for spec in _meant(how, outputs))
    taken = {boxes.name, scores.name}
    count, width = (int(size) for size in boxes.shape[1:])
    if how.in_one:
        classes = width - _BOX - 2 * how.points - int(how.objectness) - int(how.background)
    else:
        _check_two(boxes, scores, how)
        classes = int(scores.shape[2]) - int(how.background)
    if classes < 1:
        raise _refusal(f"{scores.name} has {scores.shape[2]} numbers for each candidate, too few for what is named")
    if how.most > count:
        raise _refusal(f"{boxes.name} has {count} candidates, too few for nms:{how.most}")
    found = Detections(how, boxes.name, scores.name, count, classes, _anchors(how, count))
    if clash := ({spec.name for spec in outputs} - taken) & set(found.names):
        raise _refusal(f"the model has an output {min(clash)}, and a result is called so")
    return found


def _meant(how: Suppression, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, TensorSpec]:
    """The outputs with boxes and with scores, which may be one."""
    known = {spec.name: spec for spec in outputs}
    names = (how.boxes, how.scores) if not how.in_one else (how.output, how.output)
    if how.in_one and how.output is None:
        if len(outputs) != 1:
            told = ", ".join(f"{spec.name} {list(spec.shape)}" for spec in outputs)
            raise _refusal(f"which outputs are meant? The model has: {told}; say boxes:NAME,scores:NAME or output:NAME")
        names = (outputs[0].name, outputs[0].name)
    for name in names:
        if name not in known:
            raise _refusal(f"{name}: no such output; there are: {', '.join(known)}")
    first, second = (known[str(name)] for name in names)
    return first, second


def _laid(spec: TensorSpec, how: Suppression) -> TensorSpec:
    """The output as (images, candidates, numbers); scores of one class may lack the last axis."""
    shape = spec.shape
    if len(shape) == 2 and not how.in_one and spec.name == how.scores:
        shape = (*shape, 1)
    elif len(shape) == 3 and how.columns:
        shape = (shape[0], shape[2], shape[1])
    if spec.dtype != "float32" or len(shape) != 3:
        raise _refusal(f"output {spec.name} is {spec.dtype} of {list(spec.shape)}, and candidates are float32 of three "
                       "axes: images, candidates, numbers of each")  # fmt: skip
    if any(isinstance(size, str) for size in shape[1:]):
        raise _refusal(
            f"output {spec.name} {list(spec.shape)} has a dynamic number of candidates: start from fixed sizes"
        )
    _, count, width = shape
    if isinstance(count, int) and isinstance(width, int) and width > count:
        other = "leave columns out" if how.columns else "say columns where candidates lie along the last axis"
        raise _refusal(
            f"output {spec.name} {list(spec.shape)} would have {count} candidates of {width} numbers: {other}"
        )
    return replace(spec, shape=shape)


def _check_two(boxes: TensorSpec, scores: TensorSpec, how: Suppression) -> None:
    numbers = _BOX + 2 * how.points
    if boxes.shape[2] != numbers:
        more = f"; points:{(int(boxes.shape[2]) - _BOX) // 2} where points stand behind each box"
        raise _refusal(f"{boxes.name} has {boxes.shape[2]} numbers for each candidate, expected {numbers}"
                       f"{more if int(boxes.shape[2]) > _BOX and not how.points else ''}")  # fmt: skip
    if boxes.shape[1] != scores.shape[1]:
        raise _refusal(f"{boxes.name} has {boxes.shape[1]} candidates, {scores.name} has {scores.shape[1]}")


def _anchors(how: Suppression, count: int) -> Array | None:
    if how.anchors is None:
        return None
    anchors = read_anchors(how.anchors.file)
    if anchors.shape[0] != count:
        raise _refusal(f"{how.anchors.file} has {anchors.shape[0]} anchors, and the model {count} candidates")
    return anchors


def read_anchors(file: str) -> Array:
    """Anchors (candidates, 4) of a ``.npy`` as float32; ``UsageError`` for any other file."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise _refusal(f"anchors:{file}: there is no such file")
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise _refusal(f"anchors:{file} is not an array of NumPy: {error}") from error
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f" or found.shape != (len(found), _BOX):
        what = f"{found.dtype} of {list(found.shape)}" if isinstance(found, np.ndarray) else "several arrays"
        raise _refusal(f"anchors:{file} holds {what}, expected real numbers of (candidates, 4)")
    if not all(map(math.isfinite, found.ravel().tolist())):
        raise _refusal(f"anchors:{file} has numbers that are not finite")
    return np.asarray(found.astype(np.float32))


def _refusal(sentence: str) -> UsageError:
    return UsageError(f"--postprocess nms: {sentence}")

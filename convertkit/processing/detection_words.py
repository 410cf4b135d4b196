"""The words of ``--postprocess nms:K``: how a detector's outputs become its best boxes, and how those are chosen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from convertkit.errors import UsageError
from convertkit.processing.numbers_in_words import number

Form = Literal["xyxy", "yxyx", "xywh", "cxcywh", "cycxhw"]
"""Two corners, a corner and sizes, or the centre and sizes; ``y`` first where the name has it first."""
Squash = Literal["sigmoid", "softmax"]
FORMS: tuple[Form, ...] = get_args(Form)
WORDS = (
    "expected words of nms:100, iou:0.5, score:0.25, one of " + ", ".join(FORMS) + ", agnostic or multi, sigmoid or "
    "softmax, background, objectness, columns, output:NAME or boxes:NAME,scores:NAME, points:6, and anchors:FILE.npy "
    "with scale:10,5 and exp"
)
_FLAGS = frozenset({"agnostic", "multi", "sigmoid", "softmax", "background", "objectness", "columns", "exp", *FORMS})


@dataclass(frozen=True, slots=True)
class Anchors:
    """Boxes in ``file``, (candidates, 4), that a detector's numbers are offsets from.

    ``scales``: what the offsets of centre and of sizes are divided by.  Where ``exponents``, sizes are powers of e.
    """

    file: str
    scales: tuple[float, float]
    exponents: bool


@dataclass(frozen=True, slots=True)
class Suppression:
    """At most ``most`` boxes of those whose score is above ``least``, none of which covers a better one.

    Boxes cover each other where their intersection over union is above ``overlap``.  Each box stands for its best
    class, and competes within that alone; where ``agnostic``, with all; where ``multi``, in each class by itself.
    ``output`` holds boxes, objectness and scores in one; else ``boxes`` and ``scores`` are two outputs.  ``points`` are
    pairs behind the rest.  ``columns`` says that candidates lie along the last axis.
    """

    most: int
    overlap: float
    least: float
    form: Form
    agnostic: bool = False
    multi: bool = False
    squash: Squash | None = None
    background: bool = False
    objectness: bool = False
    columns: bool = False
    points: int = 0
    output: str | None = None
    boxes: str | None = None
    scores: str | None = None
    anchors: Anchors | None = None

    @property
    def in_one(self) -> bool:
        """Whether one output holds boxes and scores."""
        return self.boxes is None


def parse_suppression(title: str, words: list[tuple[str, str]]) -> Suppression:
    """``words`` in any order, each once; ``UsageError`` for others, for what is missing, and for contradictions."""
    found = _read(title, words)
    for name, why in (("iou", "how much two boxes may overlap"), ("score", "the least score, 0 for any above it")):
        if name not in found:
            raise UsageError(f"{title}: {name} is missing, {why}")
    form = _form(title, found)
    for pair in (("agnostic", "multi"), ("sigmoid", "softmax"), ("output", "boxes"), ("output", "scores")):
        if found.keys() >= set(pair):
            raise UsageError(f"{title}: {pair[0]} and {pair[1]} exclude each other")
    if ("boxes" in found) != ("scores" in found):
        raise UsageError(
            f"{title}: boxes:NAME and scores:NAME go together, as two outputs; output:NAME is one with both"
        )
    if "objectness" in found and "boxes" in found:
        raise UsageError(f"{title}: objectness lies between boxes and scores of one output, not of two")
    squash: Squash | None = "sigmoid" if "sigmoid" in found else "softmax" if "softmax" in found else None
    return Suppression(
        int(found["nms"]),
        float(found["iou"]),
        float(found["score"]),
        form,
        "agnostic" in found,
        "multi" in found,
        squash,
        "background" in found,
        "objectness" in found,
        "columns" in found,
        int(found.get("points", 0)),
        found.get("output"),
        found.get("boxes"),
        found.get("scores"),
        _anchors(title, found, form),
    )


def _read(title: str, words: list[tuple[str, str]]) -> dict[str, str]:
    found = dict[str, str]()
    for name, value in words:
        if name in found:
            raise UsageError(f"{title}: {name} is given twice")
        fits = {
            "nms": _is_whole(value),
            "points": _is_whole(value),
            "iou": 0 <= number(value) < 1,
            "score": number(value) >= 0,
            "scale": bool(_scales(value)),
            **{each: bool(value) for each in ("output", "boxes", "scores", "anchors")},
            **dict.fromkeys(_FLAGS, not value),
        }
        if not fits.get(name, False):
            raise UsageError(f"{title}: {name}{':' if value else ''}{value} is not a step; {WORDS}")
        found[name] = value
    return found


def _form(title: str, found: Mapping[str, str]) -> Form:
    forms = [form for form in FORMS if form in found]
    if len(forms) != 1:
        told = "what the four numbers of a box are is missing" if not forms else f"a box is either {' or '.join(forms)}"
        raise UsageError(f"{title}: {told}: one of {', '.join(FORMS)}, c for centre")
    return forms[0]


def _anchors(title: str, found: Mapping[str, str], form: Form) -> Anchors | None:
    if "anchors" not in found:
        for name in ("scale", "exp"):
            if name in found:
                raise UsageError(
                    f"{title}: {name} says how offsets from anchors are meant: anchors:FILE.npy is missing"
                )
        return None
    if form not in ("cxcywh", "cycxhw"):
        raise UsageError(f"{title}: offsets from anchors are of centre and size, cxcywh or cycxhw, not {form}")
    scales = _scales(found.get("scale", "1"))
    assert scales  # :func:`_read` has refused others
    return Anchors(found["anchors"], scales, "exp" in found)


def _scales(text: str) -> tuple[float, float] | tuple[()]:
    """One number for centre and sizes, or one for each; empty where they are not positive numbers."""
    numbers = [number(part) for part in text.split(",")]
    if len(numbers) > 2 or not all(0 < each < math.inf for each in numbers):
        return ()
    return numbers[0], numbers[-1]


def _is_whole(text: str) -> bool:
    return text.isdecimal() and int(text) > 0

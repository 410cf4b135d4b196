"""``--preprocess`` and ``--postprocess``: words that say what becomes part of the model."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from convertkit.artifact import TensorSpec
from convertkit.errors import UsageError
from convertkit.model_flags import in_unit_scale
from convertkit.processing.audio_words import Audio, parse_audio
from convertkit.processing.detection_words import Suppression, parse_suppression
from convertkit.recipe import Layout, Normalization

_PRE = "expected words of image:224 (or 240x320, height first), crop:0.875, mean:M, std:S, bgr, nchw, nhwc, input:NAME"
_POST = (
    "expected words of softmax, argmax, top:5, labels, output:NAME, or those of a detector, which begin with nms:100"
)
_SIZE = re.compile(r"(?P<height>\d{1,5})(?:x(?P<width>\d{1,5}))?")
_NUMBER = re.compile(r"[-+.\d]")


@dataclass(frozen=True, slots=True)
class Preprocess:
    """A picture of ``height`` x ``width`` pixels, 0 to 255, of which the central ``share`` of each side is used.

    ``mean`` and ``std`` are in units of pixels, one number or one for each channel.  ``input`` is None where the model
    has one picture alone.
    """

    height: int
    width: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    share: float = 1.0
    bgr: bool = False
    layout: Layout = "auto"
    input: str | None = None

    @property
    def cut(self) -> tuple[int, int, int, int]:
        """Of the picture, what is used: top, left, height and width in pixels."""
        height, width = (max(1, round(size * self.share)) for size in (self.height, self.width))
        return (self.height - height) // 2, (self.width - width) // 2, height, width


@dataclass(frozen=True, slots=True)
class Postprocess:
    """Probabilities of scores, and which are the greatest: ``argmax``, or the first ``top``; along the last axis.

    ``suppression`` is that of a detector, which has nothing of the others.  ``labels`` says that classes have names.
    """

    softmax: bool = False
    choice: Literal["argmax", "top"] | None = None
    top: int = 0
    output: str | None = None
    suppression: Suppression | None = None
    labels: bool = False


def read_preprocess(text: str) -> str:
    """The words as they were given; ``UsageError`` where they are not such."""
    if audio_in(text) is None:
        parse_preprocess(text)
    return text


def audio_in(text: str) -> Audio | None:
    """What the words say of a sound, None of a picture; ``UsageError`` for words of a sound that are not right."""
    words = _words(text)
    return parse_audio(f"--preprocess {text}", words) if any(name == "audio" for name, _ in words) else None


def read_postprocess(text: str) -> str:
    """The words as they were given; ``UsageError`` where they are not such."""
    parse_postprocess(text)
    return text


def anchors_file(postprocess: str | None) -> str | None:
    """The file that the words of ``--postprocess`` name, whose content decides as they do; None without one."""
    how = None if postprocess is None or "anchors" not in postprocess else parse_postprocess(postprocess).suppression
    return None if how is None or how.anchors is None else how.anchors.file


def with_ranges(inputs: Sequence[TensorSpec], preprocess: str | None) -> tuple[TensorSpec, ...]:
    """Inputs whose integers are pixels or PCM, as the words say, with the range of such: what is drawn for them."""
    if preprocess is None:
        return tuple(inputs)
    audio = audio_in(preprocess)
    name = audio.input if audio is not None else parse_preprocess(preprocess).input
    kind, bounds = ("uint8", (0, 256)) if audio is None else ("int32" if audio.wide else "int16", (-32768, 32768))
    return tuple(
        replace(spec, value_range=bounds) if spec.dtype == kind and name in (None, spec.name) else spec
        for spec in inputs
    )


def parse_preprocess(text: str) -> Preprocess:
    """Words in any order, each once; ``UsageError`` for any other."""
    title, found = f"--preprocess {text}", dict[str, object]()
    for name, value in _words(text):
        field = "layout" if name in ("nchw", "nhwc") else name
        if field in found:
            raise UsageError(f"{title}: {field} is given twice")
        if name == "image" and (match := _SIZE.fullmatch(value)) and int(match["height"]) and match["width"] != "0":
            found[field] = (int(match["height"]), int(match["width"] or match["height"]))
        elif name == "crop" and (numbers := _numbers(value)) and len(numbers) == 1 and 0.1 <= numbers[0] <= 1:
            found[field] = numbers[0]
        elif name in ("mean", "std") and (numbers := _numbers(value)):
            found[field] = numbers
        elif name in ("bgr", "nchw", "nhwc") and not value:
            found[field] = name
        elif name == "input" and value:
            found[field] = value
        else:
            raise UsageError(f"{title}: {name}{':' if value else ''}{value} is not a step; {_PRE}")
    for name, why in (("image", "the size of the picture"), ("mean", "what training took off"), ("std", "its divisor")):
        if name not in found:
            raise UsageError(f"{title}: {name} is missing, {why}; raw bytes are mean:0,std:1, 0..1 is mean:0,std:255")
    return _checked(title, found)


def _checked(title: str, found: dict[str, object]) -> Preprocess:
    image, mean, std = found["image"], found["mean"], found["std"]
    assert isinstance(image, tuple)
    assert isinstance(mean, tuple)
    assert isinstance(std, tuple)
    if min(std) <= 0 or (len(mean) != len(std) and 1 not in (len(mean), len(std))):
        raise UsageError(f"{title}: as many means as deviations, or one for all channels; deviations positive")
    if in_unit_scale(Normalization("", mean, std)):
        told = [",".join(f"{round(255 * number, 3):g}" for number in each) for each in (mean, std)]
        raise UsageError(f"{title}: these numbers are for pixels of 0..1, and bytes are 0..255: "
                         f"write mean:{told[0]},std:{told[1]}")  # fmt: skip
    layout: Layout = found.get("layout", "auto")  # type: ignore[assignment]
    share = found.get("crop", 1.0)
    asked = found.get("input")
    assert isinstance(share, float)
    height, width = image
    return Preprocess(height, width, mean, std, share, "bgr" in found, layout, None if asked is None else str(asked))


def parse_postprocess(text: str) -> Postprocess:
    """Words in any order, each once; ``UsageError`` for any other."""
    title, found, words = f"--postprocess {text}", dict[str, str](), _words(text)
    named = ("labels", "") in words
    if any(name == "nms" for name, _ in words):
        steps = [word for at, word in enumerate(words) if word != ("labels", "") or word in words[:at]]
        return Postprocess(suppression=parse_suppression(title, steps), labels=named)
    for name, value in words:
        if name in found:
            raise UsageError(f"{title}: {name} is given twice")
        whole = value.isdecimal() and int(value) > 0
        right = dict.fromkeys(("softmax", "argmax", "labels"), not value) | {"top": whole, "output": bool(value)}
        if not right.get(name, False):
            raise UsageError(f"{title}: {name}{':' if value else ''}{value} is not a step; {_POST}")
        found[name] = value
    if "argmax" in found and "top" in found:
        raise UsageError(f"{title}: argmax and top exclude each other")
    if not found.keys() & {"softmax", "argmax", "top"}:
        raise UsageError(f"{title} names no step; {_POST}")
    choice: Literal["argmax", "top"] | None = "argmax" if "argmax" in found else "top" if "top" in found else None
    return Postprocess("softmax" in found, choice, int(found.get("top", 0)), found.get("output"), labels=named)


def _words(text: str) -> list[tuple[str, str]]:
    """Names with what follows their colons; a number goes on with the word before it, as in ``mean:1,2,3``."""
    words: list[str] = []
    for part in text.split(","):
        if words and _NUMBER.match(part.strip()):
            words[-1] += f",{part.strip()}"
        else:
            words.append(part.strip())
    return [(name, value) for name, _, value in (word.partition(":") for word in words)]


def _numbers(text: str) -> tuple[float, ...]:
    """Finite numbers with commas between them; empty where something else is among them."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()
    return found if all(map(math.isfinite, found)) else ()

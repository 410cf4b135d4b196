"""What the user chooses for Core ML, as values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convertkit.errors import UsageError
from convertkit.target_options import flag

if TYPE_CHECKING:
    from convertkit.stage import BuildContext

TARGETS: Mapping[str, int] = {"iOS16": 7, "iOS17": 8, "iOS18": 9}
"""Deployment targets, with the version of the specification that they bring.

Source: coremltools, ``coremltools/__init__.py``.
"""
IOS18 = TARGETS["iOS18"]
_DEFAULT, _NEWEST = "iOS17", "iOS18"
"""The first with ``quantize`` and ``dequantize``, and the first with weights of 4 bits and state."""
COLOURS = ("rgb", "bgr", "gray")
_LARGEST = 1 << 20
"""Of a size: what the evaluator still runs."""
MOST_SHAPES = 128
"""Of one input, counted.  Source: Core ML Tools, "Flexible Input Shapes", EnumeratedShapes."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What one named dimension may be: each of ``counted``, or any size from ``least`` to ``most``."""

    name: str
    counted: tuple[int, ...] = ()
    least: int = 1
    most: int = 1

    def __str__(self) -> str:
        return f"{self.name}={','.join(map(str, self.counted)) if self.counted else f'{self.least}..{self.most}'}"

    @property
    def usual(self) -> int:
        """What the package says where one size is asked for: the first one, or the least."""
        return self.counted[0] if self.counted else self.least

    @property
    def proven(self) -> tuple[int, ...]:
        """Sizes at which the package is verified: all that are counted, else both ends and one between."""
        return self.counted or tuple(dict.fromkeys(((self.least + self.most) // 2, self.least, self.most)))


def sizes_of(text: str) -> Sizes:
    """``N=1,8,16`` or ``N=1..64``; ``ValueError`` for anything else."""
    name, _, told = (part.strip() for part in text.rpartition("="))
    told = told.replace(" ", "")
    if ends := re.fullmatch(r"(\d+)\.\.(\d+)", told):
        least, most = map(int, ends.groups())
        if name and 1 <= least < most <= _LARGEST:
            return Sizes(name, (), least, most)
    elif re.fullmatch(r"\d+(,\d+)+", told):
        counted = tuple(map(int, told.split(",")))
        distinct = len(set(counted)) == len(counted) <= MOST_SHAPES
        if name and distinct and all(1 <= size <= _LARGEST for size in counted):
            return Sizes(name, counted, min(counted), max(counted))
    raise ValueError(
        f"expected NAME=SIZE,SIZE… with 2 to {MOST_SHAPES} sizes that differ, or NAME=LEAST..MOST, "
        f"from 1 to {_LARGEST}, for example N=1,8 or N=1..64"
    )


@dataclass(frozen=True, slots=True)
class Image:
    """An input that is an image: what the model gets is ``pixel * scale + bias``, pixels from 0 to 255.

    ``colour`` is the order of the model's own channels.  One number of ``scale`` and ``bias``, or one for each channel.
    """

    name: str
    colour: str
    scale: tuple[float, ...] = (1.0,)
    bias: tuple[float, ...] = (0.0,)

    def __str__(self) -> str:
        told = (f",{key}:{'/'.join(map(repr, value))}" for key, value in (("scale", self.scale), ("bias", self.bias)))
        return f"{self.name}={self.colour}{''.join(told)}"

    @property
    def channels(self) -> int:
        """How many the model's input has."""
        return 1 if self.colour == "gray" else 3


def image_of(text: str) -> Image:
    """``x=rgb,scale:0.0078125,bias:-1/-1/-1``; ``ValueError`` for anything else."""
    name, _, told = (part.strip() for part in text.rpartition("="))
    colour, *settings = (part.strip() for part in told.split(","))
    found: dict[str, tuple[float, ...]] = {}
    for setting in settings:
        key, _, numbers = setting.partition(":")
        if key not in ("scale", "bias") or key in found:
            raise ValueError("expected scale: and bias: once each, for example x=rgb,scale:0.0078125,bias:-1")
        found[key] = _numbers(numbers)
    if not name or colour not in COLOURS:
        raise ValueError(f"expected NAME=COLOUR[,scale:S][,bias:B] with one of {', '.join(COLOURS)}")
    image = Image(name, colour, **found)
    if not all(image.scale) or not {len(image.scale), len(image.bias)} <= {1, image.channels}:
        raise ValueError(f"expected one number, or {image.channels} with / between them, and no scale of 0")
    return image


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(each) for each in text.split("/"))
    except ValueError:
        found = ()
    if not found or not all(map(math.isfinite, found)):
        raise ValueError(f"expected numbers with / between them, not {text!r}")
    return found


def read_labels(path: Path) -> tuple[str, ...]:
    """The names of classes, a line each; ``UsageError`` for a file that has none, or one twice."""
    spelled = f"{flag('coreml', 'labels')} {path.name}"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{spelled}: expected a text file in UTF-8 with a label in each line") from error
    names = tuple(line.strip() for line in lines)
    while names and not names[-1]:
        names = names[:-1]
    if not names:
        raise UsageError(f"{spelled}: there is no label in it")
    for at, name in enumerate(names):
        if not name:
            raise UsageError(f"{spelled}:{at + 1}: an empty line between labels")
        if name in names[:at]:
            raise UsageError(f"{spelled}:{at + 1}: {name!r} is a label twice, and Core ML's answer has each once")
    return names


@dataclass(frozen=True, slots=True)
class Choices:
    """``version`` is that of the specification; ``given`` says that the user named it, so that it does not rise.

    ``shapes`` and ``images`` are as the user writes them, which :func:`sizes_of` and :func:`image_of` read.
    ``state`` asks that the package keeps state by itself, ``kept`` names the inputs that it does so with.
    ``palette`` is the number of bits of places in tables of weights, 0 where there are none.
    """

    version: int
    given: bool = False
    shapes: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    state: bool = False
    kept: tuple[str, ...] = ()
    palette: int = 0

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Choices:
        """From ``dataclasses.asdict`` that went through JSON, where tuples are lists."""
        shapes, images, labels, kept = (tuple(map(str, told[name])) for name in ("shapes", "images", "labels", "kept"))
        version, given, state, palette = int(told["version"]), bool(told["given"]), bool(told["state"]), told["palette"]
        return cls(version, given, shapes, images, labels, state, kept, int(palette))

    @property
    def sizes(self) -> tuple[Sizes, ...]:
        """What the dynamic dimensions may be."""
        return tuple(map(sizes_of, self.shapes))

    @property
    def pictures(self) -> tuple[Image, ...]:
        """The inputs that are images."""
        return tuple(map(image_of, self.images))


def choices(context: BuildContext) -> Choices:
    """From flags, keywords or a recipe; ``UsageError`` for state on a system that keeps none."""
    given = context.target_options
    newest = given["state"] or context.options.precision == "w4"
    name = given["deployment-target"] or (_NEWEST if newest else _DEFAULT)
    if given["state"] and TARGETS[name] < IOS18:
        raise UsageError(
            f"{flag('coreml', 'state')}: {name} keeps no state between calls; iOS18 is the first that does"
        )
    palette = int(given["palette"] or 0)
    if palette and context.options.precision not in ("float32", "fp16"):
        raise UsageError(
            f"{flag('coreml', 'palette')} goes without a precision or with --fp16: --{context.options.precision} "
            "stores weights as integers"
        )
    labels = () if given["labels"] is None else read_labels(given["labels"])
    shapes, images = (tuple(map(str, given[key])) for key in ("shapes", "image"))
    named = given["deployment-target"] is not None
    return Choices(TARGETS[name], named, shapes, images, labels, bool(given["state"]), palette=palette)

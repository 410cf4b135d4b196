"""The words of --images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convertkit.errors import UsageError
from convertkit.recipe import ImageOptions

IMAGE_WORDS: Mapping[str, tuple[str, ...]] = {
    "fit": ("stretch", "crop", "pad"),
    "filter": ("bilinear", "bicubic", "nearest", "lanczos"),
    "order": ("rgb", "bgr"),
    "layout": ("nchw", "nhwc"),
}


_IMAGE_NUMBERS: Mapping[str, tuple[str, type[int] | type[float], tuple[float, float]]] = {
    "crop": ("share", float, (0.1, 1.0)),
    "pad": ("fill", int, (0, 255)),
}


def parse_images(text: str | ImageOptions) -> ImageOptions:
    """Words in any order: ``crop:0.875,bicubic,bgr,nhwc``; ``pad:114`` names the fill."""
    if isinstance(text, ImageOptions):
        return text
    chosen: dict[str, Any] = {}
    for word in str(text).lower().replace(" ", "").split(","):
        name, colon, number = word.partition(":")
        field = next((field for field, words in IMAGE_WORDS.items() if name in words), None)
        if field is None or field in chosen or (colon and name not in _IMAGE_NUMBERS):
            raise UsageError(f"--images {text}: {word!r}; expected one word each of {_image_words()}")
        chosen[field] = name
        if colon:
            field, kind, (least, most) = _IMAGE_NUMBERS[name]
            chosen[field] = _within(f"--images {text}", number, kind, least, most)
    return ImageOptions(**chosen)


def _image_words() -> str:
    return ", ".join("|".join(words) for words in IMAGE_WORDS.values())


def _within(title: str, text: str, kind: type[int] | type[float], least: float, most: float) -> float:
    """The number, where it is one between the bounds."""
    try:
        number = kind(text)
    except ValueError as error:
        raise UsageError(f"{title}: {text!r} is not a number") from error
    if not least <= number <= most:
        raise UsageError(f"{title}: {text} is not from {least} to {most}")
    return number

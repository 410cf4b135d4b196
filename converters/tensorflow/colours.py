"""Hue, saturation and value as TensorFlow's kernels compute them, registered with tf2onnx.

tf2onnx's AdjustSaturation puts the colours of a pixel in a wrong order; it has no form of the other two.

Imports tf2onnx, and with it TensorFlow, therefore only ever imported in a worker process.
"""

from __future__ import annotations

from typing import Any

from convertkit.converters.tensorflow.compat import tf_op
from convertkit.converters.tensorflow.forms import Form

Three = tuple[str, str, str]


def _split(f: Form) -> Three:
    red, green, blue = f.several(3, "Split", f.node.input[0], axis=-1, num_outputs=3)
    return red, green, blue


def _to_hsv(f: Form, red: str, green: str, blue: str, *, one_division: bool) -> Three:
    """The kernel of pictures divides by the range once, that of saturation by six times the range."""
    zero, one, sixth = f.like(0), f.like(1), f.like(1 / 6)
    value = f.op("Max", red, green, blue)
    span = f.op("Sub", value, f.op("Min", red, green, blue))
    lit = f.op("Greater", value, zero)
    saturation = f.op("Where", lit, f.op("Div", span, f.op("Where", lit, value, one)), zero)
    coloured = f.op("Greater", span, zero)
    some = f.op("Where", coloured, span, one)
    norm = (
        f.op("Mul", f.op("Div", one, some), sixth) if one_division else f.op("Div", one, f.op("Mul", some, f.like(6)))
    )

    def turned(one_: str, other: str, by: float) -> str:
        found = f.op("Mul", norm, f.op("Sub", one_, other))
        return f.op("Add", found, f.like(by)) if by else found

    hue = f.op("Where", f.op("Equal", green, value), turned(blue, red, 2 / 6), turned(red, green, 4 / 6))
    hue = f.op("Where", f.op("Equal", red, value), turned(green, blue, 0), hue)
    hue = f.op("Where", coloured, hue, zero)
    return f.op("Where", f.op("Less", hue, zero), f.op("Add", hue, one), hue), saturation, value


@tf_op("RGBToHSV")
class ToHsv:
    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        f.end(f.op("Concat", *_to_hsv(f, *_split(f), one_division=True), axis=-1))


@tf_op("HSVToRGB")
class FromHsv:
    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        hue, saturation, value = _split(f)
        turn, zero, one, two = f.op("Mul", hue, f.like(6)), f.like(0), f.like(1), f.like(2)
        rest = f.op("Sub", one, saturation)
        colours = []
        for middle in (3, 2, 4):
            away = f.op("Abs", f.op("Sub", turn, f.like(middle)))
            share = f.op("Sub", away, one) if middle == 3 else f.op("Sub", two, away)
            share = f.op("Min", f.op("Max", share, zero), one)
            colours.append(f.op("Mul", f.op("Add", rest, f.op("Mul", saturation, share)), value))
        f.end(f.op("Concat", *colours, axis=-1))


@tf_op("AdjustSaturation")
class AdjustSaturation:
    """To HSV and back by the kernel's own steps: a hue that is rounded to a whole turn falls in no sector of six."""

    @classmethod
    def version_13(cls, ctx: Any, node: Any, **_: Any) -> None:
        f = Form(ctx, node)
        hue, saturation, value = _to_hsv(f, *_split(f), one_division=False)
        zero, one, two = f.like(0), f.like(1), f.like(2)
        saturation = f.op("Min", f.op("Max", f.op("Mul", saturation, node.input[1]), zero), one)
        chroma = f.op("Mul", saturation, value)
        least, turn = f.op("Sub", value, chroma), f.op("Mul", hue, f.like(6))
        within = f.op("Sub", turn, f.op("Mul", two, f.op("Floor", f.op("Div", turn, two))))
        other = f.op("Mul", chroma, f.op("Sub", one, f.op("Abs", f.op("Sub", within, one))))
        below = [f.op("Less", turn, f.like(sector)) for sector in range(1, 7)]

        def chosen(*by_sector: str) -> str:
            found = zero
            for inside, each in zip(reversed(below), reversed(by_sector), strict=True):
                found = f.op("Where", inside, each, found)
            return f.op("Add", found, least)

        red = chosen(chroma, other, zero, zero, other, chroma)
        green = chosen(other, chroma, chroma, other, zero, zero)
        blue = chosen(zero, zero, other, chroma, chroma, other)
        f.end(f.op("Concat", red, green, blue, axis=-1))

"""What a convolution costs in kernels that compute whole tiles, and how narrow ones fill them.

A kernel multiplies a tile of channels with a tile of filters at once, whatever part of them is used: on processors
with matrix tiles (AMX) an int8 convolution of 3 channels and 16 filters takes as long as one of 64 and 64.  Where
channels are few, pixels that lie side by side in a row can be seen as channels of one: the memory is the same, the
window is shorter, and the filters of as many outputs are computed together.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TOGETHER = (1, 2, 4, 8)
_LEAST_GAIN = 0.9
"""Of the time: a row that is cut in other ways has to be padded apart, a float kernel is more exact."""
_MAY_LOSE = 1.33
"""No machine of the table gets slower by more than this factor, whatever the others gain."""
KINDS = ("float32", "int8", "float32_transposed", "int8_transposed")
"""Of kernels, as a table of tiles names them."""
_LEAST_NS_PER_BYTE = 1.0
"""What a byte that is added to the weights has to save."""


@dataclass(frozen=True, slots=True)
class ConvShape:
    """A convolution without groups: ``pixels`` of the output in all, ``width`` of them in a row.

    ``stride`` is the one along the row.
    """

    pixels: int
    width: int
    window: tuple[int, int]
    stride: int
    channels: int
    filters: int

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return self.window[0] * self.window[1]

    @property
    def weights(self) -> int:
        """How many there are."""
        return self.taps * self.channels * self.filters

    def together(self, outputs: int) -> ConvShape:
        """The same, with ``outputs`` neighbours of a row computed as filters of one pixel."""
        block = outputs * self.stride
        window = self.window[0], -(-(self.window[1] + (outputs - 1) * self.stride) // block)
        return ConvShape(
            self.pixels // outputs, self.width // outputs, window, 1, self.channels * block, self.filters * outputs
        )


@dataclass(frozen=True, slots=True)
class TransposedShape:
    """A transposed convolution without groups: ``pixels`` of the output, ``taps`` of the window that reach each."""

    pixels: int
    taps: float
    channels: int
    filters: int


@dataclass(frozen=True, slots=True)
class Tile:
    """A kernel: it rounds ``channels`` and ``filters`` up.

    ``product`` is nanoseconds per multiply-add of what was rounded up, ``output`` per rounded output element.
    """

    channels: int
    filters: int
    product: float
    output: float

    def nanoseconds(self, shape: ConvShape | TransposedShape) -> float:
        """Of one call."""
        filters = -(-shape.filters // self.filters) * self.filters
        channels = -(-shape.channels // self.channels) * self.channels
        return shape.pixels * filters * (self.output + shape.taps * channels * self.product)


@dataclass(frozen=True, slots=True)
class Tiles:
    """The kernels of several machines, for float32 and for int8; a model may run on any of them.

    ``read_ns`` is what an element of an image costs an int8 kernel more where it is given floats.
    """

    float32: tuple[Tile, ...]
    integer: tuple[Tile, ...]
    float32_transposed: tuple[Tile, ...] = ()
    integer_transposed: tuple[Tile, ...] = ()
    read_ns: float = 0.0

    def times(self, shape: ConvShape | TransposedShape) -> tuple[float, float]:
        """Nanoseconds of one call in integers and in float, the mean over the machines."""
        if isinstance(shape, TransposedShape):
            return _mean(self.integer_transposed, shape), _mean(self.float32_transposed, shape)
        outputs = together(shape, self.integer)
        return _mean(self.integer, shape.together(outputs) if outputs else shape), _mean(self.float32, shape)

    def pays_between_floats(self, shape: ConvShape | TransposedShape, read: int) -> bool:
        """Whether the int8 kernel is faster although it quantizes the ``read`` elements that it is given.

        It has to be by a tenth, because float is more exact, and on no machine much slower.
        """
        ordinary = isinstance(shape, ConvShape)
        whole = self.integer if ordinary else self.integer_transposed
        real = _mean(self.float32 if ordinary else self.float32_transposed, shape)
        rounding = read * self.read_ns
        slowest = max(tile.nanoseconds(shape) for tile in whole) + rounding
        return _mean(whole, shape) + rounding <= _LEAST_GAIN * real and slowest <= _MAY_LOSE * real


def together(shape: ConvShape, tiles: Sequence[Tile]) -> int:
    """How many outputs of a row are best computed as one, on the mean of all machines; with 1 a stride may still go.

    Where nothing is won that way the answer is 0.
    """
    limit = [_MAY_LOSE * tile.nanoseconds(shape) for tile in tiles]
    found, least = 0, _LEAST_GAIN * _mean(tiles, shape)
    for outputs in _TOGETHER:
        folded = shape.together(outputs)
        if outputs * shape.stride == 1 or shape.width % outputs:
            continue
        each = [tile.nanoseconds(folded) for tile in tiles]
        price = sum(each) / len(each) + _LEAST_NS_PER_BYTE * (folded.weights - shape.weights)
        if price < least and all(own <= most for own, most in zip(each, limit, strict=True)):
            found, least = outputs, price
    return found


def read_tiles(path: Path) -> Tiles:
    """From a TOML file with an array of tables for each kind of kernel, and ``between_floats``."""
    table: Mapping[str, Any] = tomllib.loads(path.read_text())
    float32, integer, float32_transposed, integer_transposed = (tuple(map(_tile, table[kind])) for kind in KINDS)
    return Tiles(float32, integer, float32_transposed, integer_transposed, float(table["between_floats"]["read"]))


def _tile(row: Mapping[str, Any]) -> Tile:
    return Tile(int(row["channels"]), int(row["filters"]), float(row["product"]), float(row["output"]))


def _mean(tiles: Sequence[Tile], shape: ConvShape | TransposedShape) -> float:
    return sum(tile.nanoseconds(shape) for tile in tiles) / len(tiles)

"""What a convolution costs in kernels that compute whole tiles, and how narrow ones fill them.

A kernel multiplies a tile of channels with a tile of filters at once, whatever part of them is used: on processors
with matrix tiles (AMX) an int8 convolution of 3 channels and 16 filters takes as long as one of 64 and 64.  Where
channels are few, pixels that lie side by side in a row can be seen as channels of one: the memory is the same, the
window is shorter, and the filters of as many outputs are computed together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

_T = TypeVar("_T")
_TOGETHER = (1, 2, 4, 8)
_LEAST_GAIN = 0.9
"""Of the time: a row that is cut in other ways has to be padded apart, a float kernel is more exact."""
_LEAST_GAIN_OF_IMAGES = 0.8
"""Of the time of a convolution between floats: what rounds an image in its kernel makes most of such a file's noise."""
_MAY_LOSE = 1.33
"""No machine of the table gets slower by more than this factor, whatever the others gain."""
KINDS = ("float32", "int8", "float32_pointwise", "int8_pointwise",
         "float32_transposed", "int8_transposed", "float32_dense", "int8_dense")  # fmt: skip
"""Of kernels, as a table names them: float and integer in turns."""
SMALL_MATRIX = 16384
"""Weights of a dense layer up to which its kernels go by tiles: beyond, memory decides as much as they do."""
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

    @property
    def is_pointwise(self) -> bool:
        """Whether it is a product of matrices: nothing has to be looked for in the image."""
        return self.taps == 1 and self.stride == 1

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
class DenseShape:
    """A product with a matrix of constants: ``pixels`` rows of ``channels`` become as many of ``filters``."""

    pixels: int
    channels: int
    filters: int

    @property
    def taps(self) -> int:
        """Each row is used once."""
        return 1

    @property
    def weights(self) -> int:
        """How many there are."""
        return self.channels * self.filters


Shape = ConvShape | TransposedShape | DenseShape


@dataclass(frozen=True, slots=True)
class Tile:
    """A kernel: it rounds ``channels``, ``filters`` and the ``pixels`` up.

    ``product`` is nanoseconds per multiply-add of what was rounded up, ``output`` per rounded output element,
    ``call`` is what a call costs whatever its size.  ``paired`` is ``product`` where the filters fill pairs of tiles
    without a rest, which some processors have kernels for; 0 where that is no faster.  ``single`` is ``product`` of one
    pixel alone, for which each weight is loaded; 0 where that is no dearer.
    """

    channels: int
    filters: int
    product: float
    output: float
    pixels: int = 1
    call: float = 0.0
    paired: float = 0.0
    single: float = 0.0

    def nanoseconds(self, shape: Shape) -> float:
        """Of one call."""
        filters = -(-shape.filters // self.filters) * self.filters
        channels = -(-shape.channels // self.channels) * self.channels
        pixels = -(-shape.pixels // self.pixels) * self.pixels
        product = self.product if shape.filters % (2 * self.filters) or not self.paired else self.paired
        if shape.pixels == 1 and self.single:
            pixels, product = 1, self.single
        return self.call + pixels * filters * (self.output + shape.taps * channels * product)


@dataclass(frozen=True, slots=True)
class KernelCosts:
    """The kernels of several machines, for float32 and for int8; a model may run on any of them.

    Kernels of each kind come in the same order of machines; one float32 kernel may stand for all.  ``pointwise`` ones
    are of convolutions with a window of one element, ``dense`` ones of few weights.  ``weights`` are the machines'
    shares of what counts; without them, all count the same.

    ``read_ns`` is what an element costs an int8 kernel more where it is given floats, ``row_ns`` a row of a dense one,
    ``start_ns`` what the first integer product of a model costs beside itself.  ``float32_weight_ns`` and
    ``integer_weight_ns`` are what it takes to load a weight for a call, of those beyond :data:`SMALL_MATRIX`: a whole
    model's are not in the near caches.
    """

    float32: tuple[Tile, ...]
    integer: tuple[Tile, ...]
    float32_pointwise: tuple[Tile, ...] = ()
    integer_pointwise: tuple[Tile, ...] = ()
    float32_transposed: tuple[Tile, ...] = ()
    integer_transposed: tuple[Tile, ...] = ()
    float32_dense: tuple[Tile, ...] = ()
    integer_dense: tuple[Tile, ...] = ()
    read_ns: float = 0.0
    row_ns: float = 0.0
    start_ns: float = 0.0
    float32_weight_ns: float = 0.0
    integer_weight_ns: float = 0.0
    weights: tuple[float, ...] = ()

    def times(self, shape: Shape) -> tuple[float, float]:
        """Nanoseconds of one call in integers and in float, the mean over the machines."""
        outputs = self.together(shape) if isinstance(shape, ConvShape) else 0
        written = shape.together(outputs) if isinstance(shape, ConvShape) and outputs else shape
        return self._mean(self._integer_times(written)), self._mean(self._float_times(shape))

    def written(self, shape: Shape) -> tuple[float, float]:
        """The same of a kernel for the shape as it is, which takes no outputs together."""
        return self._mean(self._integer_times(shape)), self._mean(self._float_times(shape))

    def gain_between_floats(self, shape: Shape, read: int) -> float:
        """Nanoseconds that the int8 kernel saves although it quantizes the ``read`` elements that it is given.

        0 where that is less than a tenth, of a convolution a fifth, because float is more exact, or where a machine
        would be slower.
        """
        each, real = self._integer_times(shape), self._float_times(shape)
        rounding, float_ns = self.rounding_ns(shape, read), self._mean(real)
        taken = self._mean(each) + rounding
        most = (_LEAST_GAIN if isinstance(shape, DenseShape) else _LEAST_GAIN_OF_IMAGES) * float_ns
        slower = any(own + rounding > float_own for own, float_own in zip(each, _for_all(real, len(each)), strict=True))
        return float_ns - taken if taken <= most and not slower else 0.0

    def gain_on_the_fly(self, shape: DenseShape) -> float:
        """Nanoseconds that a dense layer of int8 weights saves between floats; infinite where it always does."""
        many = not 0 < shape.weights <= SMALL_MATRIX
        return math.inf if many else self.gain_between_floats(shape, shape.pixels * shape.channels)

    def loading_ns(self, weights: int) -> tuple[float, float]:
        """What a call takes to load so many weights, in integers and in float."""
        far = max(weights - SMALL_MATRIX, 0)
        return far * self.integer_weight_ns, far * self.float32_weight_ns

    def rounding_ns(self, shape: Shape, read: int) -> float:
        """Nanoseconds more of an int8 kernel that is given ``read`` floats."""
        return read * self.read_ns + (shape.pixels * self.row_ns if isinstance(shape, DenseShape) else 0.0)

    def machines(self) -> tuple[KernelCosts, ...]:
        """Those of one machine each, in order."""
        count = len(self.integer)
        rows = zip(*(_for_all(getattr(self, name), count) for name in _FIELDS), strict=True)
        fields: list[dict[str, Any]] = [
            {name: (tile,) for name, tile in zip(_FIELDS, row, strict=True)} for row in rows
        ]
        return tuple(replace(self, weights=(), **own) for own in fields)

    def together(self, shape: ConvShape) -> int:
        """How many outputs of a row are best computed as one on the mean of machines; with 1 a stride may still go.

        Where nothing is won that way the answer is 0.
        """
        before = self._integer_times(shape)
        found, least = 0, _LEAST_GAIN * self._mean(before)
        for outputs in _TOGETHER:
            folded = shape.together(outputs)
            if outputs * shape.stride == 1 or shape.width % outputs:
                continue
            each = self._integer_times(folded)
            price = self._mean(each) + _LEAST_NS_PER_BYTE * (folded.weights - shape.weights)
            if price < least and all(own <= _MAY_LOSE * most for own, most in zip(each, before, strict=True)):
                found, least = outputs, price
        return found

    def _mean(self, times: Sequence[float]) -> float:
        if self.weights and len(times) > 1:
            return sum(weight * time for weight, time in zip(self.weights, times, strict=True))
        return sum(times) / len(times)

    def _integer_times(self, shape: Shape) -> tuple[float, ...]:
        if isinstance(shape, TransposedShape):
            return _times(self.integer_transposed, shape, 0.0)
        if isinstance(shape, DenseShape):
            return _times(self.integer_dense, shape, 0.0)
        tiles = self.integer_pointwise if shape.is_pointwise else self.integer
        return _times(tiles, shape, self.loading_ns(shape.weights)[0])

    def _float_times(self, shape: Shape) -> tuple[float, ...]:
        if isinstance(shape, TransposedShape):
            return _times(self.float32_transposed, shape, 0.0)
        if isinstance(shape, DenseShape):
            return _times(self.float32_dense, shape, 0.0)
        tiles = self.float32_pointwise if shape.is_pointwise else self.float32
        return _times(tiles, shape, self.loading_ns(shape.weights)[1])


_FIELDS = (
    "float32", "integer", "float32_pointwise", "integer_pointwise",
    "float32_transposed", "integer_transposed", "float32_dense", "integer_dense",
)  # fmt: skip
"""Of :class:`KernelCosts` that hold a kernel for each machine, in the order of :data:`KINDS`."""


def mixed(parts: Sequence[KernelCosts], shares: Sequence[float]) -> KernelCosts:
    """The machines of all ``parts``; those of each have its share of what counts, 1 in all."""
    counts = [len(part.integer) for part in parts]
    kernels: dict[str, Any] = {
        name: tuple(
            tile for part, count in zip(parts, counts, strict=True) for tile in _for_all(getattr(part, name), count)
        )
        for name in _FIELDS
    }
    weights = tuple(share / count for share, count in zip(shares, counts, strict=True) for _ in range(count))
    ends: dict[str, Any] = {
        name: sum(share * getattr(part, name) for share, part in zip(shares, parts, strict=True))
        for name in ("read_ns", "row_ns", "start_ns", "float32_weight_ns", "integer_weight_ns")
    }
    return KernelCosts(**kernels, **ends, weights=weights)


def _for_all(each: Sequence[_T], count: int) -> tuple[_T, ...]:
    """One for each of ``count`` machines, where it may be one that stands for all."""
    return tuple(each) * count if len(each) == 1 else tuple(each)


def kernel_costs(table: Mapping[str, Any]) -> KernelCosts:
    """Of a file's content: an array of tables for each kind of kernel, ``between_floats``, and ``weights`` if known."""
    kinds = (tuple(map(_tile, table[kind])) for kind in KINDS)
    plain, plain_8, point, point_8, transposed, transposed_8, dense, dense_8 = kinds
    read, row, start = (float(table["between_floats"][name]) for name in ("read", "row", "start"))
    loaded = table.get("weights", {})
    weights = float(loaded.get("float32", 0.0)), float(loaded.get("int8", 0.0))
    ends = read, row, start, *weights
    return KernelCosts(plain, plain_8, point, point_8, transposed, transposed_8, dense, dense_8, *ends)


def _tile(row: Mapping[str, Any]) -> Tile:
    return Tile(
        int(row["channels"]),
        int(row["filters"]),
        float(row["product"]),
        float(row["output"]),
        int(row.get("pixels", 1)),
        float(row.get("call", 0.0)),
        float(row.get("paired", 0.0)),
        float(row.get("single", 0.0)),
    )


def _times(tiles: Sequence[Tile], shape: Shape, loading_ns: float) -> tuple[float, ...]:
    return tuple(tile.nanoseconds(shape) + loading_ns for tile in tiles)

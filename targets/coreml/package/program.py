"""The ML program of a package as values, read from its protobuf.

Source of the field numbers: coremltools, mlmodel/format/MIL.proto, Model.proto and FeatureTypes.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np

from convertkit import wire
from convertkit.artifact import Array
from convertkit.errors import SourceError
from convertkit.targets.coreml.package.weights import Weights

MODEL = Path("Data", "com.apple.CoreML", "model.mlmodel")
"""Where the protobuf lies in a package."""
WEIGHTS = Path("Data", "com.apple.CoreML", "weights")

_ML_PROGRAM = 502
_DTYPES: Mapping[int, str] = {
    1: "bool",
    2: "string",
    10: "float16",
    11: "float32",
    12: "float64",
    21: "int8",
    22: "int16",
    23: "int32",
    24: "int64",
    25: "int4",
    31: "uint8",
    32: "uint16",
    33: "uint32",
    35: "uint4",
    36: "uint2",
    37: "uint1",
    38: "uint6",
}
_FEATURE_DTYPES: Mapping[int, str] = {
    0x10000 | 32: "float32",
    0x10000 | 16: "float16",
    0x10000 | 64: "float64",
    0x20000 | 32: "int32",
    0x20000 | 8: "int8",
}
_REPEATED: Mapping[int, str] = {1: "<f4", 2: "<i4", 5: "<i8", 6: "<f8"}
_FIXED_WIDTH = frozenset({1, 6})


@dataclass(frozen=True, slots=True)
class TensorType:
    """An element type and sizes; None for one that is only known when the model runs.

    ``is_list`` marks lists, such as the names of classes.
    """

    dtype: str
    shape: tuple[int | None, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: arguments are names of values, or constants; attributes are constants."""

    type: str
    inputs: Mapping[str, tuple[str | Array, ...]]
    outputs: tuple[tuple[str, TensorType], ...]
    attributes: Mapping[str, Array]
    blocks: tuple[Block, ...] = ()

    @property
    def name(self) -> str:
        """As the file calls it; empty where it does not."""
        found = self.attributes.get("name")
        return "" if found is None else str(found)


@dataclass(frozen=True, slots=True)
class Block:
    """Operations in order, with what enters and leaves them."""

    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[str, ...]
    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Feature:
    """An input, output or state of the model, as its description has it.

    ``shapes`` are all that it may have where they are counted, ``ranges`` the least and largest size of each dimension
    where there are ranges (-1: no bound).  ``kind`` is ``array``, ``image``, ``text``, ``dictionary``…
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    """All of a package: its description and the block that it computes."""

    version: int
    opset: str
    block: Block
    inputs: tuple[Feature, ...]
    outputs: tuple[Feature, ...]
    states: tuple[Feature, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


def read_package(folder: Path) -> Program:
    """The program in ``folder``; ``SourceError`` where that is not a package, or not one of an ML program."""
    path = folder / MODEL
    if not path.is_file():
        raise SourceError(f"{folder.name} is not an .mlpackage: it has no {MODEL.as_posix()}")
    data = memoryview(path.read_bytes())
    description = wire.message(data, 2)
    program = wire.message(data, _ML_PROGRAM)
    if not program:
        raise SourceError(f"{folder.name} has no ML program: it may be a neural network of an older format")
    functions = wire.mapping(program, 2)
    if "main" not in functions:
        raise SourceError(f"{folder.name} has no function main, but {', '.join(functions) or 'none'}")
    function = functions["main"]
    opset = wire.text(function, 2)
    bodies = wire.mapping(function, 3)
    reader = _Reader(Weights(folder / WEIGHTS))
    block = reader.block(bodies[opset] if opset in bodies else next(iter(bodies.values())))
    inputs = tuple(reader.named(each) for each in wire.messages(function, 1))
    return Program(
        wire.integer(data, 1),
        opset,
        Block(inputs, block.outputs, block.operations),
        tuple(_feature(each) for each in wire.messages(description, 1)),
        tuple(_feature(each) for each in wire.messages(description, 10)),
        tuple(_feature(each) for each in wire.messages(description, 13)),
        {key: wire.text_of(value) for key, value in wire.mapping(wire.message(description, 100), 100).items()},
    )


class _Reader:
    """Reads blocks and constants; the weights lie in files beside."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights

    def block(self, data: memoryview) -> Block:
        return Block(
            tuple(self.named(each) for each in wire.messages(data, 1)),
            tuple(map(wire.text_of, wire.messages(data, 2))),
            tuple(self._operation(each) for each in wire.messages(data, 3)),
        )

    def named(self, data: memoryview) -> tuple[str, TensorType]:
        return wire.text(data, 1), _type(wire.message(data, 2))

    def _operation(self, data: memoryview) -> Operation:
        return Operation(
            wire.text(data, 1),
            {name: tuple(self._arguments(value)) for name, value in wire.mapping(data, 2).items()},
            tuple(self.named(each) for each in wire.messages(data, 3)),
            {name: self._value(value) for name, value in wire.mapping(data, 5).items()},
            tuple(self.block(each) for each in wire.messages(data, 4)),
        )

    def _arguments(self, data: memoryview) -> Iterator[str | Array]:
        for binding in wire.messages(data, 1):
            value = wire.message(binding, 2)
            yield self._value(value) if value else wire.text(binding, 1)

    def _value(self, data: memoryview) -> Array:
        kind = _type(wire.message(data, 2))
        stored = wire.message(data, 5)
        if stored:
            return self._weights.array(wire.text(stored, 1), wire.integer(stored, 2), kind.dtype, _sizes(kind))
        immediate = wire.message(data, 3)
        tensor = wire.message(immediate, 1)
        if not tensor and (listed := wire.message(immediate, 3)):
            found = [self._value(each) for each in wire.messages(listed, 1)]
            return np.array([each.item() for each in found], object)
        return _immediate(tensor, kind)


def _type(data: memoryview) -> TensorType:
    """A tensor's type, or that of a list's elements or of what a state holds; a dictionary is as long as its keys."""
    if state := wire.message(data, 5):
        return _type(wire.message(state, 1))
    if wire.message(data, 4):
        return TensorType("dictionary", (None,))
    if listed := wire.message(data, 2):
        element = _type(wire.message(listed, 1))
        return TensorType(element.dtype, element.shape, is_list=True)
    tensor = wire.message(data, 1)
    sizes = [_dimension(each) for each in wire.messages(tensor, 3)]
    return TensorType(_DTYPES.get(wire.integer(tensor, 1), "unknown"), tuple(sizes))


def _dimension(data: memoryview) -> int | None:
    constant = list(wire.messages(data, 1))
    return wire.integer(constant[0], 1) if constant else None


def _sizes(kind: TensorType) -> tuple[int, ...]:
    return tuple(size or 0 for size in kind.shape)


def _immediate(tensor: memoryview, kind: TensorType) -> Array:
    """A constant that lies in the protobuf: numbers in one of seven fields, bytes for small types."""
    found = next(((number, value) for number, _, value in wire.fields(tensor) if isinstance(value, memoryview)), None)
    if found is None:
        return np.zeros(_sizes(kind), _numpy(kind.dtype))
    number, data = found
    if number == 4:
        texts = [wire.text_of(each) for each in wire.messages(data, 1)]
        return np.array(texts[0] if not kind.shape else texts, object)
    if number == 7:
        raw = wire.message(data, 1)
        return np.frombuffer(raw, _numpy(kind.dtype)).reshape(_sizes(kind))
    values = _packed(data, number)
    return np.asarray(values, _numpy(kind.dtype)).reshape(_sizes(kind))


def _packed(data: memoryview, number: int) -> Array:
    """The numbers of a repeated field, packed or one by one."""
    parts: list[Array] = []
    for _, kind, value in wire.fields(data):
        if number in _FIXED_WIDTH and isinstance(value, memoryview):
            parts.append(np.frombuffer(value, _REPEATED[number]))
        elif kind == wire.VARINT and isinstance(value, int):
            parts.append(np.array([_signed(value)]))
        elif isinstance(value, memoryview):
            parts.append(np.array([_signed(each) for each in wire.varints(value)]))
    return np.concatenate(parts) if parts else np.zeros(0)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _numpy(dtype: str) -> np.dtype[np.generic]:
    if dtype == "string":
        return np.dtype(object)
    return np.dtype(getattr(ml_dtypes, dtype, None) or dtype)


def _feature(data: memoryview) -> Feature:
    name, kind = wire.text(data, 1), wire.message(data, 3)
    for number, _, value in wire.fields(kind):
        if isinstance(value, memoryview) and number in _FEATURES:
            return _FEATURES[number](name, value)
    return Feature(name, "other")


def _array_feature(name: str, data: memoryview) -> Feature:
    counted = tuple(tuple(_repeated(each, 1)) for each in wire.messages(wire.message(data, 21), 1))
    ranges = tuple((wire.integer(each, 1), wire.integer(each, 2)) for each in wire.messages(wire.message(data, 31), 1))
    dtype = _FEATURE_DTYPES.get(wire.integer(data, 2), "unknown")
    return Feature(name, "array", dtype, tuple(_repeated(data, 1)), counted, ranges)


def _image_feature(name: str, data: memoryview) -> Feature:
    colours = {10: "GRAYSCALE", 20: "RGB", 30: "BGR", 40: "GRAYSCALE_FLOAT16"}
    sizes = (wire.integer(data, 2), wire.integer(data, 1))
    return Feature(name, "image", "uint8", sizes, colour=colours.get(wire.integer(data, 3), ""))


def _state_feature(name: str, data: memoryview) -> Feature:
    return _array_feature(name, wire.message(data, 1))


_FEATURES = {
    1: lambda name, data: Feature(name, "integer", "int64"),
    3: lambda name, data: Feature(name, "text", "string"),
    4: _image_feature,
    5: _array_feature,
    6: lambda name, data: Feature(name, "dictionary"),
    8: _state_feature,
}


def _repeated(data: memoryview, number: int) -> Iterator[int]:
    """A repeated integer field, packed or not."""
    for found, _, value in wire.fields(data):
        if found == number:
            if isinstance(value, int):
                yield _signed(value)
            else:
                yield from (_signed(each) for each in wire.varints(value))

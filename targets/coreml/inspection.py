"""The operations of a package, for reports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from convertkit.artifact import Array
from convertkit.operators import Operator as Row
from convertkit.targets.coreml.package.program import Operation, Program, TensorType, read_package

_BITS = {"int4": 4, "uint4": 4, "bool": 8, "int8": 8, "uint8": 8, "float16": 16}
_NARROW = ("int8", "uint8", "int4", "uint4")
_CONSTANT, _TABLE = "const", "constexpr_lut_to_dense"


def operators(path: Path) -> tuple[Row, ...]:
    """Every operation that computes something, in the file's order."""
    return tuple(_rows(read_package(path)))


def _rows(program: Program) -> Iterator[Row]:
    types: dict[str, TensorType] = dict(program.block.inputs)
    stored: dict[str, tuple[int, str]] = {}
    for operation in program.block.operations:
        types.update(operation.outputs)
        if not operation.outputs:  # write_state
            yield Row(operation.name, operation.type, "", 0, 0)
            continue
        name, kind = operation.outputs[0]
        if operation.type == _CONSTANT or operation.type.startswith("constexpr_"):
            stored[name] = _stored(operation, stored)
            continue
        read = [each for group in operation.inputs.values() for each in group if isinstance(each, str)]
        weights = [stored[each] for each in read if each in stored]
        narrow = next((dtype for _, dtype in weights if dtype in _NARROW and operation.type != "quantize"), "")
        yield Row(
            name,
            operation.type,
            _precision(operation, kind, types, narrow),
            sum(size for size, _ in weights),
            _products(operation, types, kind),
        )


def _stored(operation: Operation, stored: Mapping[str, tuple[int, str]]) -> tuple[int, str]:
    """Bytes of a constant and the type that it is stored in."""
    arrays: list[Array] = [each for name, each in operation.attributes.items() if name != "name"]
    arrays += [each for group in operation.inputs.values() for each in group if not isinstance(each, str)]
    size = sum(math.ceil(each.size * _BITS.get(each.dtype.name, 32) / 8) for each in arrays)
    size += sum(stored[each][0] for group in operation.inputs.values() for each in group if isinstance(each, str))
    if operation.type == _TABLE:
        return size, _TABLE
    largest = max(arrays, key=lambda each: each.size, default=None)
    return size, "" if largest is None else largest.dtype.name


def _precision(operation: Operation, kind: TensorType, types: Mapping[str, TensorType], narrow: str) -> str:
    if not kind.dtype.startswith("float"):
        return kind.dtype if kind.dtype in ("int8", "uint8") else ""
    integer = ("int4" if "4" in narrow else "int8") + " weights" if narrow else ""
    return integer if integer and _products(operation, types, kind) else kind.dtype


def _products(operation: Operation, types: Mapping[str, TensorType], kind: TensorType) -> int:
    """Multiply-adds of one call, a dynamic dimension counted as 1."""

    def shape(argument: str) -> tuple[int, ...]:
        given = operation.inputs.get(argument, ())
        if not given:
            return ()
        first = given[0]
        sizes = types[first].shape if isinstance(first, str) else first.shape
        return tuple(1 if size is None else int(size) for size in sizes)

    out = math.prod(1 if size is None else size for size in kind.shape)
    if operation.type == "conv":
        return out * math.prod(shape("weight")[1:])
    if operation.type == "conv_transpose":
        return math.prod(shape("x")) * math.prod(shape("weight")[1:])
    if operation.type == "linear":
        return out * shape("weight")[-1]
    if operation.type == "matmul":
        return out * shape("x")[-1]
    if operation.type in ("lstm", "rnn"):
        matrices = sum(math.prod(shape(name)) for name in operation.inputs if name.startswith("weight"))
        return math.prod(shape("x")[:2]) * matrices
    return 0

"""Operators of two operands and more: the layer BinaryOp, whose operands have blobs of as many dimensions."""

from __future__ import annotations

from functools import reduce

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Handler, Registry
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.tensor import Tensor, constant, kept_axes, natural

arithmetic = Registry()

_KINDS = {"Add": 0, "Sub": 1, "Mul": 2, "Div": 3, "Max": 4, "Min": 5, "Pow": 6}
_TURNED = {"Sub": 7, "Div": 8, "Pow": 9}
"""The same with the operands exchanged."""
_SQUARE = 4
"""Of the layer UnaryOp."""


def binary(b: Builder, kind: str, x: Tensor, y: Tensor) -> Tensor:
    """ONNX's broadcasting, from the last axis on."""
    shape = tuple(int(size) for size in np.broadcast_shapes(x.shape, y.shape))
    pairs: tuple[tuple[Tensor, Tensor, int], ...] = ((x, y, _KINDS[kind]), (y, x, _TURNED.get(kind, _KINDS[kind])))
    for one, other, number in pairs:
        if other.array is not None and other.array.size == 1 and one.array is None:
            return _with_number(b, kind, number, one, float(_real(other).reshape(-1)[0]), shape)
    sizes = natural(shape)
    operands = [b.view(each, _aligned(each, shape)) for each in (x, y)]
    return b.layer("BinaryOp", operands, shape, sizes, {0: _KINDS[kind]})


def _with_number(b: Builder, kind: str, number: int, x: Tensor, value: float, shape: tuple[int, ...]) -> Tensor:
    if not np.isfinite(value):
        raise Unsupported(f"the number {value}: ncnn's text format has finite ones alone")
    sizes = x.sizes if x.shape == shape else natural(shape)
    given = b.view(x, sizes)
    if kind == "Pow" and number == _KINDS["Pow"] and value == 2:
        return b.layer("UnaryOp", [given], shape, sizes, {0: _SQUARE})
    return b.layer("BinaryOp", [given], shape, sizes, {0: number, 1: 1, 2: value})


def _real(x: Tensor) -> np.ndarray:
    if x.known.dtype != np.float32:
        raise Unsupported(f"{x.known.dtype.name} numbers: ncnn computes in float32")
    return x.known


def _aligned(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of an operand in as many dimensions as the result's blob has."""
    whole = (*[1] * (len(shape) - x.rank), *x.shape)
    return tuple(whole[axis] for axis in kept_axes(shape)) or (1,)


def _pair(kind: str) -> Handler:
    def handler(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        return binary(b, kind, x, y)

    return handler


_VERSIONS = {"Add": (13, 14), "Sub": (13, 14), "Mul": (13, 14), "Div": (13, 14), "Pow": (13, 15)}
for _op, _versions in _VERSIONS.items():
    arithmetic.lowers(_op, since=_versions)(_pair(_op))


def _several(kind: str) -> Handler:
    def handler(b: Builder, *xs: Tensor) -> Tensor:
        return reduce(lambda x, y: binary(b, kind, x, y), xs)

    return handler


for _op, _kind, _since in (("Sum", "Add", (13,)), ("Max", "Max", (12, 13)), ("Min", "Min", (12, 13))):
    arithmetic.lowers(_op, since=_since)(_several(_kind))


@arithmetic.lowers("Mean", since=13)
def mean(b: Builder, *xs: Tensor) -> Tensor:
    total = reduce(lambda x, y: binary(b, "Add", x, y), xs)
    return total if len(xs) == 1 else binary(b, "Mul", total, constant(np.array(1 / len(xs), np.float32)))

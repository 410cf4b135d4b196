"""Einsum as transposes, matrix products and sums.

Operands are folded from the left.  In each step the letters of both are sorted into batch (kept, in
both), contracted (in both, needed no more), and rows or columns (in one); a letter that only one operand
has and nobody needs is summed first.  Batch letters stay axes of their own; rows, columns and contracted letters
become one axis each.  A size that is only known at run time is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.repeated_ones import spelled_out

Shape = tuple[int | None, ...]

_MOST_AXES = 5
"""Axes that TFLite's BATCH_MATMUL takes."""


class Writer(Protocol):
    """Where nodes go; see ``body_nodes.Nodes``."""

    inputs: list[str]

    def op(self, kind: str, inputs: Sequence[str], attributes: dict[str, object] | None = None) -> str: ...

    def constant(self, value: Array) -> str: ...


@dataclass(frozen=True, slots=True)
class Operand:
    """A value whose axes have letters."""

    name: str
    letters: str
    shape: Shape

    def size(self, letter: str) -> int | None:
        """The size of a lettered axis."""
        return self.shape[self.letters.index(letter)]


def einsum_nodes(equation: str, shapes: Sequence[Shape], b: Writer) -> str:
    """Write the nodes for ``equation`` and return the result's name."""
    terms, result = spelled_out(equation, [len(shape) for shape in shapes])
    operands = [
        _without_repeats(b, Operand(name, letters, shape))
        for name, letters, shape in zip(b.inputs, terms, shapes, strict=True)
    ]
    current = operands[0]
    for place, operand in enumerate(operands[1:], 1):
        needed = set(result).union(*(rest.letters for rest in operands[place + 1 :]))
        current = _product(b, current, operand, needed)
    current = _summed(b, current, set(result))
    return _ordered(b, current, result).name


def _without_repeats(b: Writer, x: Operand) -> Operand:
    """The diagonal of axes that share a letter: a mask, then sums over the extra axes."""
    for letter in x.letters:
        while x.letters.count(letter) > 1:
            first, second = x.letters.index(letter), x.letters.rindex(letter)
            size = _known(x.shape[first])
            view = [1] * len(x.shape)
            view[first] = view[second] = size
            mask = b.constant(np.eye(size, dtype=np.float32).reshape(view))
            masked = Operand(b.op("Mul", [x.name, mask]), x.letters, x.shape)
            x = _sum_axes(b, masked, (second,))
    return x


def _summed(b: Writer, x: Operand, needed: set[str]) -> Operand:
    axes = tuple(axis for axis, letter in enumerate(x.letters) if letter not in needed)
    return _sum_axes(b, x, axes) if axes else x


def _sum_axes(b: Writer, x: Operand, axes: tuple[int, ...]) -> Operand:
    name = b.op("ReduceSum", [x.name, b.constant(np.array(axes, np.int64))], {"keepdims": 0})
    keep = [axis for axis in range(len(x.shape)) if axis not in axes]
    return Operand(name, "".join(x.letters[axis] for axis in keep), tuple(x.shape[axis] for axis in keep))


def _product(b: Writer, x: Operand, y: Operand, needed: set[str]) -> Operand:
    """The product of two operands, with letters that nobody needs any more summed."""
    x = _summed(b, x, needed | set(y.letters))
    y = _summed(b, y, needed | set(x.letters))
    both = [letter for letter in x.letters if letter in y.letters]
    batch = [letter for letter in both if letter in needed]
    inner = [letter for letter in both if letter not in needed]
    rows = [letter for letter in x.letters if letter not in y.letters]
    columns = [letter for letter in y.letters if letter not in x.letters]
    sizes = {letter: size for operand in (x, y) for letter, size in zip(operand.letters, operand.shape)}
    sizes |= {letter: x.size(letter) for letter in both if x.size(letter) is not None}
    heads = [[letter] for letter in batch] if len(batch) <= _MOST_AXES - 2 else [batch]
    free = [sizes[letter] for letter in rows + inner].count(None)
    sides = [[letter] for letter in rows] if free > 1 and rows and not batch else [rows]
    left = _grouped(b, x, (*heads, *sides, inner), sizes)
    right = _grouped(b, y, (*heads, inner, columns), sizes)
    product = b.op("MatMul", [left, right])
    name = _regrouped(b, product, (*heads, *sides, columns), sizes)
    letters = "".join([*batch, *rows, *columns])
    return Operand(name, letters, tuple(sizes[letter] for letter in letters))


def _grouped(b: Writer, x: Operand, groups: tuple[list[str], ...], sizes: dict[str, int | None]) -> str:
    """``x`` with each group of letters as one axis."""
    ordered = _ordered(b, x, "".join(letter for group in groups for letter in group))
    if all(len(group) == 1 for group in groups):
        return ordered.name
    return _reshaped(b, ordered.name, _view([_merged(group, sizes) for group in groups], _leading(groups)))


def _regrouped(b: Writer, name: str, groups: tuple[list[str], ...], sizes: dict[str, int | None]) -> str:
    """The axes of ``name``, of which each stands for a group of letters, as an axis for each letter."""
    if all(len(group) == 1 for group in groups):
        return name
    return _reshaped(b, name, _view([sizes[letter] for group in groups for letter in group], _leading(groups)))


def _merged(group: list[str], sizes: dict[str, int | None]) -> int | None:
    known = [size for letter in group if (size := sizes[letter]) is not None]
    return math.prod(known) if len(known) == len(group) else None


def _leading(groups: tuple[list[str], ...]) -> int:
    """How many axes at the front are the same on both sides of a reshape."""
    lengths = [len(group) for group in groups]
    return next((place for place, length in enumerate(lengths) if length != 1), len(lengths))


def _view(sizes: Sequence[int | None], leading: int) -> tuple[int, ...]:
    """A shape for Reshape: the first ``leading`` axes are taken over, one other may be free."""
    behind = [-1 if size is None else size for size in sizes[leading:]]
    if behind.count(-1) > 1:
        raise UnknownSize("an Einsum that merges several sizes that are only known at run time")
    return (*(0 if size is None else size for size in sizes[:leading]), *behind)


def _known(size: int | None) -> int:
    if size is None:
        raise UnknownSize("an Einsum that repeats an axis whose size is only known at run time")
    return size


def _ordered(b: Writer, x: Operand, letters: str) -> Operand:
    if x.letters == letters:
        return x
    if sorted(x.letters) != sorted(letters):
        raise Unsupported(f"an Einsum whose result has letters {letters!r} that its operands lack")
    perm = [x.letters.index(letter) for letter in letters]
    name = b.op("Transpose", [x.name], {"perm": perm})
    return Operand(name, letters, tuple(x.shape[axis] for axis in perm))


def _reshaped(b: Writer, name: str, shape: tuple[int, ...]) -> str:
    return b.op("Reshape", [name, b.constant(np.array(shape, np.int64))])

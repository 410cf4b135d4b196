"""What a function computes of the sizes of its inputs, at many sizes at once.

``jax.export`` writes padding as sums and quotients of dynamic sizes.  At all of some hundred sizes it is found out
whether these are the padding that ONNX calls SAME_UPPER: sums of quotients by the strides that agree there agree
everywhere, as they go on with the period of the strides.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxlib.mlir import ir as mlir
from jaxlib.mlir.dialects import stablehlo as hlo

from convertkit.artifact import Array
from convertkit.converters.stablehlo.mlir import integer, ints, shape_of, text
from convertkit.converters.stablehlo.sizes import SIZED, operator, size_of_axis

_COUNT = 512
"""Sizes 1 to this one, of each input's axis in an order of its own."""
_COMPARISONS = MappingProxyType(
    {"EQ": python.eq, "NE": python.ne, "GE": python.ge, "GT": python.gt, "LE": python.le, "LT": python.lt}
)


def _quotient(left: Array, right: Array) -> Array:
    """Rounded towards zero, as StableHLO divides integers."""
    whole = np.abs(left) // np.maximum(np.abs(right), 1)
    return np.asarray(np.sign(left) * np.sign(right) * whole)


_ARITHMETIC: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "add": np.add,
        "subtract": np.subtract,
        "multiply": np.multiply,
        "divide": _quotient,
        "remainder": lambda left, right: left - _quotient(left, right) * right,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "and": np.logical_and,
        "or": np.logical_or,
        "sign": np.sign,
        "negate": np.negative,
        "convert": lambda value: value,
        "select": lambda chosen, left, right: np.asarray(np.where(chosen != 0, left, right)),
    }
)


class AtSizes:
    """Integers and sizes of one function, each as an array whose first axis runs over the sizes of the inputs."""

    def __init__(self) -> None:
        self._integers: dict[Any, Array | None] = {}
        self._sizes: dict[tuple[Any, int], Array | None] = {}

    def integers(self, value: Any) -> Array | None:
        """The elements of a value behind the axis of sizes; None where they depend on more than sizes."""
        if value not in self._integers:
            self._integers[value] = self._computed(value)
        return self._integers[value]

    def size(self, value: Any, axis: int) -> Array | None:
        """One size of a value."""
        told = size_of_axis(value, axis)
        if told.value is None:
            return np.full(_COUNT, told.offset)
        place = (told.value, told.axis)
        if place not in self._sizes:
            self._sizes[place] = self._origin(*place)
        found = self._sizes[place]
        return None if found is None else found + told.offset

    def _computed(self, value: Any) -> Array | None:
        name, known = operator(value), shape_of(value.type)
        shape = tuple(size for size in known if size is not None)
        if not name or len(shape) != len(known):
            return None
        owner = value.owner
        if name == "constant" and isinstance(owner.attributes["value"], mlir.DenseIntElementsAttr):
            elements = np.array(ints(owner.attributes["value"]), np.int64)
            return np.broadcast_to(elements.reshape(shape), (_COUNT, *shape))
        if name == "get_dimension_size":
            return self.size(owner.operands[0], integer(owner.attributes["dimension"]))
        if name not in (*_ARITHMETIC, "compare", "reshape", "concatenate"):
            return None
        found = [self.integers(each) for each in owner.operands]
        operands = [each for each in found if each is not None]
        if len(operands) != len(found):
            return None
        if name == "reshape":
            return operands[0].reshape(_COUNT, *shape)
        if name == "concatenate":
            return np.concatenate(operands, integer(owner.attributes["dimension"]) + 1)
        if name == "compare":
            return np.asarray(_COMPARISONS[text(owner.attributes["comparison_direction"])](*operands))
        return np.asarray(_ARITHMETIC[name](*operands))

    def _origin(self, value: Any, axis: int) -> Array | None:
        """A size of the value in which it comes up."""
        name = operator(value)
        if not name:
            if value.owner.owner.operation.name != "func.func":
                return None
            rng = np.random.default_rng((value.arg_number, axis))
            return rng.permutation(np.arange(1, _COUNT + 1))
        owner = value.owner
        if name in SIZED:
            sizes = self.integers(list(owner.operands)[-1])
            return None if sizes is None else sizes[:, axis]
        if name == "concatenate":
            parts = [self.size(each, axis) for each in owner.operands]
            known = [each for each in parts if each is not None]
            return np.asarray(np.sum(known, axis=0)) if len(known) == len(parts) else None
        if name in ("dynamic_conv", "convolution"):
            return self._convolved(owner, axis)
        return self._reduced(owner, axis) if is_dynamic_window(owner) else None

    def _convolved(self, op: Any, axis: int) -> Array | None:
        roles = hlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        if axis == roles.output_batch_dimension:
            return self.size(op.operands[0], roles.input_batch_dimension)
        place, window = list(roles.output_spatial_dimensions).index(axis), convolution_window(op)
        if window is None:
            return None
        amounts = self.amounts(op.operands[2]) if len(op.operands) > 2 else _stated(op, len(window))
        size = self.size(op.operands[0], roles.input_spatial_dimensions[place])
        return None if amounts is None or size is None else _count(size, amounts[:, place], *window[place])

    def _reduced(self, op: Any, axis: int) -> Array | None:
        amounts, size, told = self.amounts(op.operands[-1]), self.size(op.operands[0], axis), self.window(op)
        return None if amounts is None or size is None or told is None else _count(size, amounts[:, axis], *told[axis])

    def amounts(self, value: Any) -> Array | None:
        """Padding (sizes, axis, side)."""
        found = self.integers(value)
        return None if found is None else found.reshape(_COUNT, -1, 2)

    def window(self, op: Any) -> list[tuple[int, int, int]] | None:
        """Size, stride and dilation along each axis of a window whose padding is an operand.

        None where the input is spread or these are dynamic.
        """
        told = [self._same_everywhere(each) for each in list(op.operands)[-5:-1]]
        size, stride, base, dilation = (each or () for each in told)
        return None if None in told or set(base) - {1} else list(zip(size, stride, dilation, strict=True))

    def _same_everywhere(self, value: Any) -> tuple[int, ...] | None:
        found = self.integers(value)
        return tuple(found[0].tolist()) if found is not None and (found == found[:1]).all() else None

    def is_same(self, value: Any, axes: Sequence[int], amounts: Any, window: Sequence[tuple[int, int, int]]) -> bool:
        """Whether padding is ONNX's SAME_UPPER for a window of (size, stride, dilation) along ``axes`` of a value.

        Not with dilations, with which ONNX Runtime does not compute it.
        Source: ONNX operators, Conv-11, ``auto_pad``.
        """
        pads = self.amounts(amounts)
        if pads is None or pads.shape[1] != len(axes) or any(gap != 1 for _, _, gap in window):
            return False
        for place, (axis, (width, stride, _)) in enumerate(zip(axes, window, strict=True)):
            size = self.size(value, axis)
            if size is None:
                return False
            total = np.maximum((-(-size // stride) - 1) * stride + width - size, 0)
            if not (np.array_equal(pads[:, place, 0], total // 2) and np.array_equal(pads[:, place].sum(1), total)):
                return False
        return True


def convolution_window(op: Any) -> list[tuple[int, int, int]] | None:
    """Size, stride and dilation of each spatial axis; None where the input is spread or the kernel's size dynamic."""
    roles, attributes = hlo.ConvDimensionNumbers(op.attributes["dimension_numbers"]), op.attributes
    kernel = [shape_of(op.operands[1].type)[axis] for axis in roles.kernel_spatial_dimensions]
    ones = (1,) * len(kernel)
    strides, spread, dilations = (
        ints(attributes[name]) if name in attributes else ones
        for name in ("window_strides", "lhs_dilation", "rhs_dilation")
    )
    if set(spread) - {1}:
        return None
    sizes = [size for size in kernel if size is not None]
    return list(zip(sizes, strides, dilations, strict=True)) if len(sizes) == len(kernel) else None


def is_dynamic_window(op: Any) -> bool:
    """Whether an operator is a window whose padding is an operand."""
    return op.name == "stablehlo.custom_call" and text(op.attributes["call_target_name"]) == _DYNAMIC_WINDOW


_DYNAMIC_WINDOW = "stablehlo.dynamic_reduce_window"


def _stated(op: Any, rank: int) -> Array:
    pads = ints(op.attributes["padding"]) if "padding" in op.attributes else (0,) * (2 * rank)
    return np.broadcast_to(np.array(pads, np.int64).reshape(rank, 2), (_COUNT, rank, 2))


def _count(size: Array, pads: Array, width: int, stride: int, gap: int) -> Array:
    """How many windows there are along an axis."""
    return np.asarray((size + pads.sum(1) - ((width - 1) * gap + 1)) // stride + 1)

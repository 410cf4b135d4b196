"""Write ONNX nodes from TFLite operators.

A :class:`Tensor` is an ONNX value with what the importer knows about it.  Quantized tensors are
stored as integers; handlers see the real value behind ``DequantizeLinear``, and the importer puts
``QuantizeLinear`` behind their result.  Transposes sink through elementwise operators and through
QDQ and cancel there, so a chain of convolutions stays channels-first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.converters.tflite.model import Operator, Quantization, TensorInfo
from convertkit.errors import Unsupported

Attribute = int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | ir.Graph
Attributes = Mapping[str, Attribute]
_NONE: Attributes = {}
FREE = -1
GENERATED = "value_"
"""Values of names that start so were named by the builder, not by the file."""

QUANTIZED = frozenset({"int8", "uint8", "int16", "uint16", "int4", "uint4", "int2"})
"""Integer types that hold real values where a tensor has scales; int32 ones are biases."""

_SMALL_BYTES = 4096
"""Constants up to this size are stored once; comparing larger ones is not worth it."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An ONNX value; ``shape`` has -1 where dynamic and is None where even the rank is unknown.

    ``const`` is the value where it is known, real for dequantized constants.  ``stored`` is the
    integer tensor that a dequantized one comes from, ``quantization`` its parameters.  ``moved`` is
    the tensor and permutation that this one is a transposition of.
    """

    value: ir.Value
    shape: tuple[int, ...] | None
    dtype: str
    const: Array | None = None
    stored: Tensor | None = None
    quantization: Quantization | None = None
    moved: tuple[Tensor, tuple[int, ...]] | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape, where an operator cannot do without."""
        if self.shape is None:
            raise Unsupported(f"the rank of {self.value.name} is unknown")
        return self.shape

    @property
    def known(self) -> Array:
        """The constant, where an operator cannot do without."""
        if self.const is None:
            raise Unsupported(f"{self.value.name} is computed at run time; expected a constant")
        return self.const

    @property
    def integers(self) -> tuple[int, ...]:
        """A constant list of integers, such as axes."""
        return tuple(int(each) for each in self.known.reshape(-1))


Inline = Callable[["Builder", int, tuple[Tensor, ...]], tuple[Tensor, ...]]
"""Translate a subgraph of the file, by its index, into the builder's graph."""


class Builder:
    """Collects nodes of one ONNX graph; ``operator`` and ``results`` describe what is being translated.

    ``variables`` are the resource variables that never change, by name.
    """

    def __init__(self, inline: Inline, constants: dict[str, ir.Value], numbers: Iterator[int]) -> None:
        self.nodes: list[ir.Node] = []
        self.results: tuple[TensorInfo, ...] = ()
        self.tensors: tuple[TensorInfo, ...] = ()
        self.operator: Operator | None = None
        self.variables: Mapping[str, TensorInfo] = {}
        self.inline = inline
        self.constants = constants
        self._numbers = numbers
        self._made: dict[Hashable, tuple[Tensor, ...]] = {}

    def nested(self) -> Builder:
        """A builder for a subgraph of this graph."""
        inner = Builder(self.inline, self.constants, self._numbers)
        inner.variables = self.variables
        return inner

    def name(self) -> str:
        """A name that no other value has, in this graph and those around it."""
        return f"{GENERATED}{next(self._numbers)}"

    def op(
        self, name: str, inputs: Sequence[Tensor | None], attributes: Attributes = _NONE, *, dtype: str = ""
    ) -> Tensor:
        """One node with one output; ``dtype`` where it is not the first input's."""
        return self.ops(name, inputs, attributes, 1, dtype=dtype)[0]

    def ops(
        self, name: str, inputs: Sequence[Tensor | None], attributes: Attributes, count: int, *, dtype: str = ""
    ) -> tuple[Tensor, ...]:
        """One node with ``count`` outputs; the same node over the same inputs is made once."""
        key = (name, tuple(0 if x is None else id(x.value) for x in inputs), repr(sorted(attributes.items())), count)
        graphs = any(isinstance(value, ir.Graph) for value in attributes.values())
        if key in self._made and not graphs:
            return self._made[key]
        values = [None if x is None else x.value for x in inputs]
        node = ir.node(name, values, attributes={k: _attribute(v) for k, v in attributes.items()}, num_outputs=count)
        for value in node.outputs:
            value.name = self.name()
        self.nodes.append(node)
        kind = dtype or next(x.dtype for x in inputs if x is not None)
        self._made[key] = tuple(Tensor(value, None, kind) for value in node.outputs)
        return self._made[key]

    def constant(self, array: Array | Sequence[int], dtype: str = "int64") -> Tensor:
        """An initializer; sequences become int64 unless ``dtype`` says otherwise."""
        data = array if isinstance(array, np.ndarray) else np.asarray(array, dtype)
        data = np.ascontiguousarray(data).reshape(data.shape)
        same: Hashable = data.tobytes() if data.nbytes <= _SMALL_BYTES else len(self.constants)
        key = ("constant", data.dtype.name, data.shape, same)
        if key not in self._made:
            name = f"const_{len(self.constants)}"
            value = ir.Value(name=name, const_value=ir.tensor(data, name=name))
            value.shape, value.type = ir.Shape(data.shape), ir.TensorType(onnx_dtype(data.dtype.name))
            self.constants[name] = value
            self._made[key] = (Tensor(value, data.shape, data.dtype.name, data),)
        return self._made[key][0]

    def scalar(self, number: float, like: Tensor) -> Tensor:
        """A rank-0 constant of the dtype of ``like``."""
        return self.constant(np.asarray(number, numpy_dtype(like.dtype)))

    def map(self, name: str, inputs: Sequence[Tensor], attributes: Attributes = _NONE, *, dtype: str = "") -> Tensor:
        """An elementwise node, put in front of a transposition that all its inputs share."""
        perm = next((move[1] for move in map(self.moved, inputs) if move), None)
        if perm is not None:
            sources = [self._in_order_before(x, perm) for x in inputs]
            if all(source is not None for source in sources):
                before = [source for source in sources if source is not None]
                return self.transpose(self.op(name, before, attributes, dtype=dtype), perm)
        return self.op(name, inputs, attributes, dtype=dtype)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """``x`` with its axes in the order ``perm``; constants are moved now, transpositions merged."""
        order = tuple(int(axis) for axis in perm)
        moved = self.moved(x)
        if moved is not None:
            x, order = moved[0], tuple(moved[1][axis] for axis in order)
        if order == tuple(range(len(order))):
            return x
        if x.stored is not None and x.quantization is not None:
            quantization = _along(x.quantization, order)
            return self.dequantize(self.transpose(x.stored, order), quantization)
        if x.const is not None:
            return self.constant(x.const.transpose(order))
        shape = None if x.shape is None else tuple(x.shape[axis] for axis in order)
        made = self.op("Transpose", [x], {"perm": order})
        return replace(made, shape=shape, moved=(x, order))

    def reshape(self, x: Tensor, shape: Sequence[int] | Tensor) -> Tensor:
        """``x`` in another shape; quantized tensors stay quantized by the same parameters."""
        if isinstance(shape, Tensor):
            return self.keep(self.op("Reshape", [x, self.cast(shape, "int64")]), x)
        fixed = tuple(shape)
        if x.shape == fixed and FREE not in fixed:
            return x
        if x.stored is None and x.const is not None and 0 not in fixed:
            return self.constant(x.const.reshape(fixed))
        return replace(self.keep(self.op("Reshape", [x, self.constant(fixed)]), x), shape=fixed)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """``x`` as another element type, NumPy's rules."""
        if x.dtype == dtype:
            return x
        if x.const is not None and x.stored is None:
            return self.constant(x.const.astype(numpy_dtype(dtype)))
        cast = self.map("Cast", [x], {"to": int(onnx_dtype(dtype))}, dtype=dtype)
        return replace(cast, shape=x.shape)

    def keep(self, x: Tensor, like: Tensor) -> Tensor:
        """``x`` rounded to the integers of ``like``, where that is quantized: for moves in front of an operator."""
        if like.stored is None or like.quantization is None or not like.quantization.per_tensor:
            return x
        return self.dequantize(self.quantize(x, like.quantization, like.stored.dtype), like.quantization)

    def dequantize(self, x: Tensor, quantization: Quantization) -> Tensor:
        """The real value of an integer tensor."""
        const = None if x.const is None else _real(x.const, quantization)
        zero = quantization.zero_point.astype(numpy_dtype(x.dtype))
        inputs = [x, self._parameter(quantization.scale, quantization), None]
        if x.dtype != "int32" or zero.any():
            inputs[2] = self._parameter(zero, quantization)
        axis = {} if quantization.per_tensor else {"axis": quantization.axis}
        made = self.op("DequantizeLinear", inputs, axis, dtype="float32")
        return replace(made, shape=x.shape, const=const, stored=x, quantization=quantization)

    def quantize(self, x: Tensor, quantization: Quantization, dtype: str) -> Tensor:
        """``x`` as integers: rounded to nearest even, saturated."""
        if x.stored is not None and x.stored.dtype == dtype and _same(x.quantization, quantization):
            return x.stored
        if not quantization.per_tensor:
            raise Unsupported("a computed tensor with one scale per channel")
        if (moved := self.moved(x)) is not None:
            return self.transpose(self.quantize(moved[0], quantization, dtype), moved[1])
        zero = quantization.zero_point.astype(numpy_dtype(dtype))
        inputs = [x, self._parameter(quantization.scale, quantization), self._parameter(zero, quantization)]
        return replace(self.op("QuantizeLinear", inputs, dtype=dtype), shape=x.shape)

    def _parameter(self, values: Array, quantization: Quantization) -> Tensor:
        return self.constant(values.reshape(()) if quantization.per_tensor else values)

    def moved(self, x: Tensor) -> tuple[Tensor, tuple[int, ...]] | None:
        """The tensor and permutation that ``x`` is a transposition of, seen through DequantizeLinear."""
        if x.moved is not None:
            return _as_before(x, *x.moved)
        if x.stored is None or x.stored.moved is None or x.quantization is None or not x.quantization.per_tensor:
            return None
        source, perm = _as_before(x, *x.stored.moved)
        return self.dequantize(source, x.quantization), perm

    def _in_order_before(self, x: Tensor, perm: tuple[int, ...]) -> Tensor | None:
        """What ``x`` was before ``perm`` moved it; None where it was not moved that way."""
        moved = self.moved(x)
        if moved is not None:
            return moved[0] if moved[1] == perm else None
        if x.const is None or x.shape is None or len(x.shape) > len(perm):
            return None
        if x.const.size == 1 and len(x.shape) == 0:
            return x
        held = x if x.stored is None else x.stored
        if held.const is None or (x.quantization is not None and not x.quantization.per_tensor):
            return None
        grown = held.const.reshape((1,) * (len(perm) - len(x.shape)) + x.shape)
        source = self.constant(grown.transpose(np.argsort(perm)))
        return source if x.quantization is None else self.dequantize(source, x.quantization)


def _as_before(moved: Tensor, source: Tensor, perm: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """``source`` and ``perm``, with the sizes of what ``moved`` was declared as where its operator tells none."""
    if source.shape is not None or moved.shape is None:
        return source, perm
    return replace(source, shape=tuple(moved.shape[perm.index(axis)] for axis in range(len(perm)))), perm


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """NumPy's (or ml_dtypes') element type of that name."""
    return np.dtype(getattr(ml_dtypes, name, name))


def onnx_dtype(name: str) -> ir.DataType:
    """ONNX's element type of that name; ``Unsupported`` where it has none."""
    try:
        return ir.DataType.from_numpy(numpy_dtype(name))
    except (TypeError, ValueError):
        raise Unsupported(f"ONNX has no element type {name}") from None


def named_dims(name: str, shape: Sequence[int]) -> tuple[int | str, ...]:
    """``shape`` with names for the dynamic dimensions of the tensor ``name``; a dynamic first one is the batch."""
    return tuple(size if size != FREE else f"{name}_{axis}" if axis else "batch" for axis, size in enumerate(shape))


def _attribute(value: Attribute) -> Attribute:
    return value if isinstance(value, str | int | float | ir.Graph) else tuple(value)  # type: ignore[return-value]


def _along(quantization: Quantization, order: tuple[int, ...]) -> Quantization:
    return quantization if quantization.per_tensor else replace(quantization, axis=order.index(quantization.axis))


def _same(one: Quantization | None, other: Quantization) -> bool:
    return (
        one is not None
        and np.array_equal(one.scale, other.scale)
        and np.array_equal(one.zero_point, other.zero_point)
        and (one.per_tensor or one.axis == other.axis)
    )


def _real(integers: Array, quantization: Quantization) -> Array:
    along = [1] * integers.ndim
    if not quantization.per_tensor:
        along[quantization.axis] = -1
    zero, scale = (
        each.reshape(along if integers.ndim else ()) for each in (quantization.zero_point, quantization.scale)
    )
    return ((integers.astype(np.int64) - zero) * scale.astype(np.float64)).astype(np.float32)

"""Elementwise arithmetic on tensors: short names for ONNX operators, with the exact meaning spelled out."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.converters.stablehlo.kernels import has_kernel
from convertkit.converters.stablehlo.tape import Tape
from convertkit.converters.stablehlo.tensor import (
    BOOL,
    F32,
    F64,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    Tensor,
    broadcast,
    constant,
    splat,
)

Number = float | int | bool


class Arithmetic(Tape):
    """A tape with elementwise operators; every one broadcasts."""

    def like(self, x: Tensor, value: Number) -> Tensor:
        """A constant of the dtype of ``x``, broadcastable against it."""
        return splat(value, (), x.dtype)

    def _pair(self, x: Tensor, y: Tensor | Number) -> tuple[Tensor, Tensor]:
        return x, y if isinstance(y, Tensor) else self.like(x, y)

    def add(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("Add", *self._pair(x, y))

    def sub(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("Sub", *self._pair(x, y))

    def mul(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("Mul", *self._pair(x, y))

    def div(self, x: Tensor, y: Tensor | Number) -> Tensor:
        """Quotient; integers truncate, and the divisor must not be 0 (``ops.arithmetic`` guards)."""
        return self.elementwise("Div", *self._pair(x, y))

    def neg(self, x: Tensor) -> Tensor:
        """The negative, modulo 2^n for integers."""
        if x.dtype in FLOATS or x.dtype.name.startswith("INT"):
            return self.elementwise("Neg", x)
        return self.elementwise("Sub", self.like(x, 0), x)

    def abs(self, x: Tensor) -> Tensor:
        return self.elementwise("Abs", x)

    def sqrt(self, x: Tensor) -> Tensor:
        return self.elementwise("Sqrt", x)

    def exp(self, x: Tensor) -> Tensor:
        return self.elementwise("Exp", x)

    def log(self, x: Tensor) -> Tensor:
        return self.elementwise("Log", x)

    def sin(self, x: Tensor) -> Tensor:
        return self.elementwise("Sin", x)

    def cos(self, x: Tensor) -> Tensor:
        return self.elementwise("Cos", x)

    def floor(self, x: Tensor) -> Tensor:
        return self.elementwise("Floor", x)

    def maximum(self, x: Tensor, y: Tensor | Number) -> Tensor:
        """The greater; NaN where either is NaN; logical or for bools."""
        if x.dtype == BOOL:
            return self.logical_or(*self._pair(x, y))
        x, y = self._pair(x, y)
        if x.dtype == I64 and not (self.fits_int32(x) and self.fits_int32(y)):
            return self.where(self.greater(x, y), x, y)  # see kernels.table
        if x.dtype in (F32, F64) and y.scalar == 0 and x.shape == broadcast(x.shape, y.shape):
            return self._clipped(x, y, "Min") or self.elementwise("Relu", x)
        return self._clipped(x, y, "Min") or self.elementwise("Max", x, y)

    def minimum(self, x: Tensor, y: Tensor | Number) -> Tensor:
        """The lesser; NaN where either is NaN; logical and for bools."""
        if x.dtype == BOOL:
            return self.logical_and(*self._pair(x, y))
        x, y = self._pair(x, y)
        if x.dtype == I64 and not (self.fits_int32(x) and self.fits_int32(y)):
            return self.where(self.less(x, y), x, y)
        return self._clipped(x, y, "Max") or self.elementwise("Min", x, y)

    def _clipped(self, x: Tensor, y: Tensor, inner: str) -> Tensor | None:
        """``Min(Max(x, a), b)`` with numbers a ≤ b is ``Clip``, and so is ``Max(Min(x, b), a)``.

        Written as such at once, because optimizers that find the pair inside a subgraph lose the bounds.
        """
        node = x.core.producer() if isinstance(x.core, ir.Value) else None
        if node is None or y.scalar is None:
            return None
        source: ir.Value | None
        first: ir.Value | None
        if inner == "Max" and node.op_type == "Relu":
            source, first = node.inputs[0], self.value(self.like(x, 0))
        elif node.op_type == inner and len(node.inputs) == 2:
            source, first = node.inputs
        else:
            return None
        if source is None or first is None or first.const_value is None or first.const_value.size != 1:
            return None
        if source.shape is None or tuple(source.shape) != x.core_shape or not has_kernel("Clip", x.dtype):
            return None
        low, high = (first.const_value.numpy().item(), y.scalar)[:: 1 if inner == "Max" else -1]
        if not low <= high:
            return None
        whole = Tensor(source, x.core_shape, x.core_shape, x.dtype)
        bounds = [self.like(x, low), self.like(x, high)]
        result = self.op("Clip", [whole, *bounds], x.core_shape, x.dtype)
        return Tensor(result.core, x.core_shape, x.shape, x.dtype, x.extent)

    def fits_int32(self, x: Tensor) -> bool:
        """Whether all values are known to lie in the range of int32, whatever the dtype."""
        if not isinstance(x.core, ir.Value):
            return bool(np.all((x.core >= -(2**31)) & (x.core < 2**31)))
        node = x.core.producer()
        if node is None:
            return False
        if node.op_type in ("Max", "Min", "Slice", "Gather", "Squeeze", "Unsqueeze", "Reshape", "Concat", "Expand"):
            return all(self._narrow(value) for value in node.inputs[: 1 if node.op_type != "Concat" else None])
        return self._narrow(x.core)

    def _narrow(self, value: ir.Value | None) -> bool:
        """Whether a value is a shape, an arg max or a cast from a type of at most 32 bits."""
        if value is None:
            return False
        if value.const_value is not None:
            return value.const_value.nbytes < 1 << 20 and self.fits_int32(constant(value.const_value.numpy()))
        node = value.producer()
        if node is not None and node.op_type == "Cast":
            source = node.inputs[0]
            return source is not None and source.dtype in (BOOL, I8, I16, I32, U8, U16)
        return node is not None and node.op_type in ("Shape", "ArgMax", "ArgMin", "Size")

    # --- predicates -----------------------------------------------------------------------------

    def equal(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("Equal", *self._pair(x, y), dtype=BOOL)

    def less(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("Less", *self._pair(x, y), dtype=BOOL)

    def greater(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("Greater", *self._pair(x, y), dtype=BOOL)

    def less_equal(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("LessOrEqual", *self._pair(x, y), dtype=BOOL)

    def greater_equal(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("GreaterOrEqual", *self._pair(x, y), dtype=BOOL)

    def logical_not(self, x: Tensor) -> Tensor:
        return self.elementwise("Not", x)

    def logical_and(self, x: Tensor, y: Tensor) -> Tensor:
        return self.elementwise("And", x, y)

    def logical_or(self, x: Tensor, y: Tensor) -> Tensor:
        return self.elementwise("Or", x, y)

    def is_nan(self, x: Tensor) -> Tensor:
        """True where a float is NaN: the only values that differ from themselves."""
        return self.logical_not(self.equal(x, x))

    def where(self, condition: Tensor, x: Tensor | Number, y: Tensor | Number) -> Tensor:
        """``x`` where the condition holds, else ``y``; at least one of them is a tensor."""
        dtype = x.dtype if isinstance(x, Tensor) else y.dtype if isinstance(y, Tensor) else F32
        both = [each if isinstance(each, Tensor) else splat(each, (), dtype) for each in (x, y)]
        chosen = None if condition.scalar is None else both[0 if condition.scalar else 1]
        shape = broadcast(condition.shape, *(each.shape for each in both))
        if chosen is not None and (chosen.shape == shape or None not in shape):
            return Tensor(chosen.core, chosen.core_shape, shape, dtype, chosen.extent)
        return self.elementwise("Where", condition, *both)

    # --- bits -----------------------------------------------------------------------------------

    def bit_and(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("BitwiseAnd", *self._pair(x, y))

    def bit_or(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("BitwiseOr", *self._pair(x, y))

    def bit_xor(self, x: Tensor, y: Tensor | Number) -> Tensor:
        return self.elementwise("BitwiseXor", *self._pair(x, y))

    def bit_not(self, x: Tensor) -> Tensor:
        return self.elementwise("BitwiseNot", x)

    def bitcast(self, x: Tensor, dtype: ir.DataType) -> Tensor:
        """The same bits as another dtype of the same width."""
        if x.dtype == dtype:
            return x
        if not isinstance(x.core, ir.Value):
            return Tensor(np.array(x.core).view(dtype.numpy()), x.core_shape, x.shape, dtype, x.extent)
        if x.dtype not in FLOATS and dtype not in FLOATS:
            return self.cast(x, dtype)
        return self.elementwise("BitCast", x, dtype=dtype, attributes={"to": dtype})

    # --- precision ------------------------------------------------------------------------------

    def widened(self, x: Tensor) -> Tensor:
        """A 16-bit float as float32, so that a chain of operators rounds once; others as they are."""
        return x if x.dtype in (F32, F64) else self.cast(x, F32)

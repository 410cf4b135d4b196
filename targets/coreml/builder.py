"""What handlers call: MIL operations, with names and constants in order.

Only here coremltools' builder is called.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from coremltools.converters import mil
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.targets.coreml.names import identifier
from convertkit.targets.coreml.options import IOS18
from convertkit.targets.coreml.palettes import palette_of
from convertkit.targets.coreml.tables import TABLED, packed
from convertkit.targets.coreml.tensor import Tensor, as_mil, constant

_DTYPES = {
    types.fp16: "float16",
    types.fp32: "float32",
    types.int32: "int32",
    types.bool: "bool",
    types.int8: "int8",
    types.uint8: "uint8",
}
_SHARED = 64
"""Numbers from which on a constant is looked for among those that are there."""
MOST_DIMENSIONS = 5
"""Source: Core ML, MLMultiArray and coremltools, "Tensors with more than 5 dimensions are not supported"."""


class Builder:
    """Adds operations to the MIL function that is open; ``prefix`` names the ONNX node they are for.

    Weights of at most ``2 ** palette`` values become places in a table, where that is asked for.
    """

    def __init__(self, *, version: int, palette: int = 0) -> None:
        self.version = version
        self._palette = palette
        self.prefix = ""
        self._used: dict[str, int] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Any] = {}

    def op(self, kind: str, **arguments: object) -> Tensor:
        """One operation with one result.

        Tensors become variables or constants; None stands for what is not given.
        """
        (result,) = self.ops(kind, **arguments)
        return result

    def ops(self, kind: str, **arguments: object) -> tuple[Tensor, ...]:
        """One operation with all its results; ``Unsupported`` where MIL does not take these arguments."""
        given = {name: self._given(kind, name, value) for name, value in arguments.items() if value is not None}
        try:
            found = getattr(mil.Builder, kind)(name=self.name(kind), **given)
        except (ValueError, TypeError, AssertionError, IndexError, NotImplementedError) as error:
            raise Unsupported(f"MIL's {kind} does not take this: {_first_line(error)}") from error
        return tuple(map(tensor_of, found)) if isinstance(found, list | tuple) else (tensor_of(found),)

    def name(self, kind: str) -> str:
        """A name that nothing else has."""
        stem = identifier(f"{self.prefix}_{kind}" if self.prefix else kind)
        count = self._used.get(stem, 0)
        self._used[stem] = count + 1
        return f"{stem}_{count}" if count else stem

    def var(self, x: Tensor) -> Any:
        """MIL's variable for a tensor, a constant where its numbers are known."""
        return x.var if x.array is None else self._constant(as_mil(x.array))

    def _given(self, kind: str, name: str, value: object) -> object:
        if self._palette and name in TABLED.get(kind, ()) and isinstance(value, Tensor) and value.array is not None:
            table = palette_of(as_mil(value.array), self._palette)
            if table is not None:
                return self._tabled(as_mil(value.array), table)
        return self._argument(value)

    def _tabled(self, array: Array, table: Array) -> Any:
        """A weight as places in a table, which all that read the same numbers share."""
        key = ("table", array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._shared:
            given = packed(array, table, self._palette, whole=self.version >= IOS18)
            self._shared[key] = mil.Builder.constexpr_lut_to_dense(name=self.name("table"), **given)
        return self._shared[key]

    def _constant(self, array: Array) -> Any:
        """A constant, which all that read the same numbers share: an unrolled layer has its weights once."""
        key = (array.dtype.name, array.shape, hashlib.sha256(array.tobytes()).digest())
        if key not in self._shared:
            self._shared[key] = mil.Builder.const(val=array, name=self.name("const"))
        return self._shared[key]

    def narrow(self, array: Array) -> Array:
        """Integers of less than 8 bits as MIL knows them: int8 that is marked; others as they are."""
        marks = {"int4": types.np_int4_dtype, "uint4": types.np_uint4_dtype}
        mark = marks.get(array.dtype.name)
        return array if mark is None else array.astype(mark.base).astype(mark)

    def real(self, value: float, like: Tensor) -> Array:
        """A number of the type of ``like``."""
        return np.asarray(value, like.dtype)[()]

    def full(self, value: float, like: Tensor) -> Tensor:
        """A constant scalar of the type of ``like``."""
        return constant(np.asarray(value, like.dtype))

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """``x`` in another of MIL's types."""
        if x.dtype == dtype:
            return x
        if dtype == "float16" and (narrow := _widened_from(x)) is not None:
            return narrow
        if x.array is not None and dtype in ("float32", "float16", "int32", "bool"):
            return constant(x.array.astype(dtype))
        short = {"float32": "fp32", "float16": "fp16"}.get(dtype, dtype)
        return self.op("cast", x=x, dtype=short)

    def reshape(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """``x`` with other sizes, -1 for at most one of them."""
        if x.array is not None:
            return constant(x.array.reshape(sizes))
        if x.rank == 0:
            x = self.op("expand_dims", x=x, axes=(0,))
        if tuple(sizes) == x.shape:
            return x
        if not sizes:
            return self.op("squeeze", x=x, axes=tuple(range(x.rank)))
        return self.op("reshape", x=x, shape=tuple(map(int, sizes)))

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """``x`` with its axes in another order."""
        if tuple(perm) == tuple(range(x.rank)):
            return x
        return self.op("transpose", x=x, perm=tuple(map(int, perm)))

    def select(self, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """``x`` where the condition holds, else ``y``; each is made as large as the result, which MIL leaves open."""
        shapes = [each.shape for each in (condition, x, y)]
        if any(None in shape for shape in shapes):
            zero = self.op("mul", x=self.cast(condition, x.dtype), y=self.full(0, x))
            x, y = (each if each.shape == condition.shape else self.op("add", x=zero, y=each) for each in (x, y))
            return self.op("select", cond=condition, a=x, b=y)
        full = np.broadcast_shapes(*(each.sizes for each in (condition, x, y)))
        condition, x, y = (self.spread(each, full) for each in (condition, x, y))
        return self.op("select", cond=condition, a=x, b=y)

    def spread(self, x: Tensor, sizes: Sequence[int]) -> Tensor:
        """``x`` with exactly these sizes, its elements repeated along the axes that grow."""
        if x.array is not None:
            return constant(np.broadcast_to(x.array, sizes))
        full = (1,) * (len(sizes) - x.rank) + x.sizes
        x = self.reshape(x, full) if full != x.shape else x
        reps = tuple(want // have for want, have in zip(sizes, full, strict=True))
        return x if set(reps) <= {1} else self.op("tile", x=x, reps=reps)

    def sizes_of(self, x: Tensor) -> Tensor:
        """The sizes of ``x`` as an int32 vector."""
        if None not in x.shape:
            return constant(np.array(x.shape, np.int32))
        return self.op("shape", x=x)

    def concat(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """Tensors behind each other."""
        if len(values) == 1:
            return values[0]
        return self.op("concat", values=tuple(values), axis=axis)

    def _argument(self, value: object) -> object:
        if isinstance(value, Tensor):
            if value.array is None:
                return value.var
            array = as_mil(value.array)
            return self._constant(array) if array.size >= _SHARED else array
        if isinstance(value, tuple) and any(isinstance(each, Tensor) for each in value):
            return [self.var(each) if isinstance(each, Tensor) else each for each in value]
        if isinstance(value, tuple) and value and isinstance(value[0], int) and not isinstance(value[0], bool):
            return np.array(value, np.int32)
        return list(value) if isinstance(value, tuple) else value


def tensor_of(var: Any) -> Tensor:
    """A MIL variable as a tensor; ``Unsupported`` where it has too many dimensions."""
    shape = tuple(None if is_symbolic(size) else int(size) for size in var.shape)
    if len(shape) > MOST_DIMENSIONS:
        raise Unsupported(f"{len(shape)} dimensions: Core ML's tensors have at most {MOST_DIMENSIONS}")
    return Tensor(_DTYPES.get(var.dtype, str(var.dtype)), shape, None, var)


def _widened_from(x: Tensor) -> Tensor | None:
    """The float16 numbers that ``x`` has as float32, where a cast has just made it so: the way back changes nothing."""
    maker = None if x.var is None else x.var.op
    if maker is None or maker.op_type != "cast" or x.dtype != "float32" or maker.x.dtype != types.fp16:
        return None
    return tensor_of(maker.x)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__

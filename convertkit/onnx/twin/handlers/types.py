"""Constants, and operators that change or name an element type.

A Cast between float types rounds as its target does; to an integer it cuts off, as C does.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.values import UNIT, Tensor, real, widened

_PLAIN_INTEGERS = frozenset("iu")


def _constant(call: Call) -> Results | None:
    ((name, attribute),) = call.node.attributes.items()
    if name == "value":
        return [widened(attribute.as_tensor().numpy())]
    if name in ("value_float", "value_floats"):
        number = call.number(name, 0.0) if name == "value_float" else call.numbers(name)
        return [real(np.asarray(number), ir.DataType.FLOAT)]
    if name in ("value_int", "value_ints"):
        return [Tensor(np.asarray(attribute.value, np.int64), ir.DataType.INT64)]
    if name in ("value_string", "value_strings"):
        return [Tensor(np.asarray(attribute.value, object), ir.DataType.STRING)]
    return None


def _constant_of_shape(call: Call) -> Results:
    shape = tuple(int(size) for size in call.array(0))
    stored = call.node.attributes.get_tensor("value", None)
    filler = real(np.zeros(1), ir.DataType.FLOAT) if stored is None else widened(stored.numpy())
    return [Tensor(np.full(shape, filler.array.reshape(-1)[0], filler.array.dtype), filler.dtype)]


def _cast(call: Call) -> Results | None:
    return _as_type(call, ir.DataType(call.whole("to")))


def _cast_like(call: Call) -> Results | None:
    return _as_type(call, call.tensor(1).dtype)


def _as_type(call: Call, dtype: ir.DataType) -> Results | None:
    operand = call.tensor(0)
    if dtype in UNIT:
        return [real(call.noise.result(_numbers(operand), dtype), dtype)]
    if not operand.is_real:
        return None
    if dtype == ir.DataType.BOOL:
        return [Tensor(operand.array != 0, dtype)]
    if dtype.numpy().kind in _PLAIN_INTEGERS and dtype.itemsize >= 1:
        wide = np.uint64 if dtype == ir.DataType.UINT64 else np.int64
        return [Tensor(operand.array.astype(wide).astype(dtype.numpy()), dtype)]
    return None


def _numbers(operand: Tensor) -> Array:
    """As float64; text is read as float32, in which the model holds it."""
    if operand.dtype == ir.DataType.STRING:
        return operand.array.astype(np.float32).astype(np.float64)
    return operand.array.astype(np.float64)


def _bit_cast(call: Call) -> Results:
    operand, dtype = call.tensor(0), ir.DataType(call.whole("to"))
    stored = operand.array.astype(operand.dtype.numpy()) if operand.is_real else operand.array
    return [widened(np.asarray(stored).view(dtype.numpy()))]


def _range(call: Call) -> Results | None:
    start, limit, delta = (call.array(place) for place in range(3))
    if not call.tensor(0).is_real:
        return None
    steps = call.step((limit - start) / delta)
    count = max(0, int(np.ceil(steps.reshape(()))))
    way = call.step(np.arange(count) * delta)
    return [call.rounded(start + way)]


def _eye_like(call: Call) -> Results:
    rows, columns = call.array(0).shape
    named = call.whole("dtype")
    dtype = ir.DataType(named) if named else call.tensor(0).dtype
    eye = np.eye(rows, columns, k=call.whole("k"))
    return [real(eye, dtype) if dtype in UNIT else Tensor(eye.astype(dtype.numpy()), dtype)]


HANDLERS: Mapping[str, Handler] = {
    "BitCast": _bit_cast,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Range": _range,
}

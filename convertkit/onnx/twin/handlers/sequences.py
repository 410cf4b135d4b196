"""Sequences and optionals: Python's tuples and None."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.values import Tensor, Value


def _items(call: Call, place: int = 0) -> tuple[Tensor, ...]:
    value = call.given(place)
    if not isinstance(value, tuple):
        raise Unsupported(f"operand {place} is not a sequence", subject=call.title)
    return value


def _place(call: Call, operand: int, default: int) -> int:
    position = call.optional(operand)
    return default if position is None else int(position.reshape(-1)[0])


def _construct(call: Call) -> Results:
    return [tuple(value for value in call.inputs if isinstance(value, Tensor))]


def _empty(call: Call) -> Results:
    return [()]


def _at(call: Call) -> Results:
    return [_items(call)[_place(call, 1, 0)]]


def _insert(call: Call) -> Results:
    items = list(_items(call))
    place = _place(call, 2, len(items))
    items.insert(place + len(items) if place < 0 else place, call.tensor(1))
    return [tuple(items)]


def _erase(call: Call) -> Results:
    items = list(_items(call))
    del items[_place(call, 1, -1)]
    return [tuple(items)]


def _length(call: Call) -> Results:
    return [Tensor(np.array(len(_items(call)), np.int64), ir.DataType.INT64)]


def _split(call: Call) -> Results:
    """Parts of equal size, the last one smaller, or of given sizes; single slices may lose their axis."""
    whole, sizes = call.tensor(0), call.optional(1)
    axis = call.whole("axis") % whole.array.ndim
    length = whole.array.shape[axis]
    if sizes is None or sizes.ndim == 0:
        step = 1 if sizes is None else int(sizes)
        borders = list(range(step, length, step))
    else:
        borders = [int(border) for border in np.cumsum(sizes)[:-1]]
    parts = np.split(whole.array, borders, axis)
    if sizes is None and not call.whole("keepdims", 1):
        parts = [part.squeeze(axis) for part in parts]
    return [tuple(Tensor(part, whole.dtype) for part in parts)]


def _join(call: Call) -> Results:
    items = _items(call)
    axis, arrays = call.whole("axis"), [item.array for item in items]
    joined = np.stack(arrays, axis) if call.whole("new_axis") else np.concatenate(arrays, axis)
    return [Tensor(joined, items[0].dtype)]


def _map(call: Call) -> Results:
    """The body for each item; other sequences go along, tensors are the same for all."""
    body, count = call.graph("body"), len(_items(call))
    rows = [
        call.run_graph(body, [value[i] if isinstance(value, tuple) else value for value in call.inputs])
        for i in range(count)
    ]
    return [tuple(row[place] for row in rows if isinstance(row[place], Tensor)) for place in range(len(body.outputs))]  # type: ignore[misc]


def _identity(call: Call) -> Results:
    return [call.given(0)]


def _has_element(call: Call) -> Results:
    value: Value = call.given(0)
    return [Tensor(np.array(value is not None), ir.DataType.BOOL)]


HANDLERS: Mapping[str, Handler] = {
    "ConcatFromSequence": _join,
    "Identity": _identity,
    "Optional": _identity,
    "OptionalGetElement": _identity,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split,
}

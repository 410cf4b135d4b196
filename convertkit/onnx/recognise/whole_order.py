"""Elements that are read, or matrices that are turned, all of them and in order, by more operators than that takes.

PyTorch's exporter writes both for attention whose batch is free: a mask of padding is indexed by the numbers of all its
rows and columns, and keys are turned in three axes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, dropped, initializer, is_same_size, producer, replaced, sizes


def recognise_all_in_order(node: ir.Node) -> None:
    """A look-up of every element in order.

    before:  GatherND (x, Concat (rows, columns)) of all rows and columns of x, places of each along an axis of its own
    after:   Unsqueeze (x), or x
    """
    x, places = (node.inputs[0], node.inputs[1]) if len(node.inputs) == 2 else (None, None)
    if node.domain or node.op_type != "GatherND" or node.attributes.get_int("batch_dims", 0) != 0 or x is None:
        return
    parts = producer(places, "Concat")
    if parts is None or places is None or places.shape is None or x.shape is None or len(parts.inputs) > len(x.shape):
        return
    rank = len(places.shape) - 1
    axes = [_axis_of_places(part) for part in parts.inputs]
    found = [axis for axis in axes if axis is not None]
    if parts.attributes.get_int("axis", 0) not in (-1, rank) or len(found) < len(axes) or found != sorted(set(found)):
        return
    if rank in found or any(not is_same_size(places.shape[axis], x.shape[at]) for at, axis in enumerate(found)):
        return
    others = [axis for axis in range(rank) if axis not in found]
    if not others:
        dropped(node, x)
    elif all(places.shape[axis] == 1 for axis in others):
        replaced(node, "Unsqueeze", [x, initializer(node, np.array(others, np.int64), f"{node.outputs[0].name}/axes")])


def _axis_of_places(value: ir.Value | None) -> int | None:
    """The axis along which a value is 0, 1, 2, …; along all others it is the same."""
    if value is None or value.shape is None:
        return None
    array, node = array_of(value), value.producer()
    if array is not None:
        return _axis_of_stored(array)
    if node is None or node.domain:
        return None
    if node.op_type == "Range":
        start, _, step = node.inputs
        return 0 if _is_number(start, 0) and _is_number(step, 1) else None
    source = node.inputs[0]
    axis = _axis_of_places(source) if node.op_type in ("Unsqueeze", "Expand") else None
    if axis is None or source is None or source.shape is None:
        return None
    if node.op_type == "Expand":
        moved = axis + len(value.shape) - len(source.shape)
        return moved if is_same_size(value.shape[moved], source.shape[axis]) else None
    added = array_of(node.inputs[1])
    if added is None:
        return None
    new = {int(each) % len(value.shape) for each in added}
    return [each for each in range(len(value.shape)) if each not in new][axis]


def _axis_of_stored(array: np.ndarray) -> int | None:
    for axis, size in enumerate(array.shape):
        along = np.arange(size).reshape([-1 if each == axis else 1 for each in range(array.ndim)])
        if size > 1 and (array == along).all():
            return axis
    return None


def _is_number(value: ir.Value | None, number: int) -> bool:
    array = array_of(value)
    return array is not None and array.size == 1 and int(array.reshape(-1)[0]) == number


def recognise_turned(node: ir.Node) -> None:
    """Matrices that are turned while the axes in front of them are one.

    before:  Reshape (Transpose (Reshape (x, (n, a, b)), 0 2 1), (…, b, a)), x of (…, a, b)
    after:   Transpose (x) of the last two axes
    """
    turn = producer(node.inputs[0], "Transpose") if node.op_type == "Reshape" and not node.domain else None
    first = None if turn is None else producer(turn.inputs[0], "Reshape")
    if turn is None or first is None or tuple(turn.attributes.get_ints("perm", ())) != (0, 2, 1):
        return
    x = first.inputs[0]
    before, merged, after = sizes(x), sizes(first.outputs[0]), sizes(node.outputs[0])
    if x is None or before is None or merged is None or after is None or len(before) != len(after) or len(before) < 3:
        return
    matrix = before[-2:]
    if None in matrix or 0 in matrix or merged[1:] != matrix or after[-2:] != matrix[::-1]:
        return
    unknown = [one for one, other in zip(before[:-2], after[:-2], strict=True) if one is None or one != other]
    if not unknown or unknown == [None]:  # one axis that is not known is what the number of elements makes it
        rank = len(before)
        replaced(node, "Transpose", [x], {"perm": (*range(rank - 2), rank - 1, rank - 2)})

"""Where numbers come from that loops count with: the length of which tensor, the number of which turn."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.edit import array_of, producer

_NUMBERS = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT})


def origin(value: ir.Value | None) -> ir.Value | None:
    """What a whole number is a copy of, in whatever dtype."""
    node = None if value is None else value.producer()
    if node is None or node.domain != "":
        return value
    if node.op_type == "Cast" and node.attributes.get_int("to", 0) in _NUMBERS:
        return origin(node.inputs[0])
    return origin(node.inputs[0]) if node.op_type == "Identity" else value


def is_one_more_at_most(value: ir.Value | None, turn: ir.Value) -> bool:
    """Whether a value is the number of a turn or, at most, of the next."""
    found = origin(value)
    step = producer(found, "Add")
    if step is None:
        return found is turn
    constants = [array_of(each) for each in step.inputs]
    one = any(each is not None and each.size == 1 and each.reshape(()) == 1 for each in constants)
    return one and any(origin(each) is turn for each in step.inputs)


def is_length_of(number: ir.Value | None, sequence: ir.Value, names: frozenset[str]) -> bool:
    """Whether a number is the size of a sequence's first axis; ``names`` are sizes that the model's inputs name."""
    found = _size(number)
    if found is None or sequence.shape is None:
        return False
    tensor, axis = found
    if axis == 0 and _unreversed(tensor) is _unreversed(sequence):
        return True
    return tensor.shape is not None and same_size(tensor.shape[axis], sequence.shape[0], names)


def same_size(one: int | ir.SymbolicDim, other: int | ir.SymbolicDim, names: frozenset[str]) -> bool:
    """Whether two sizes are equal: as numbers, or as names that the model's inputs give."""
    if isinstance(one, int) or isinstance(other, int):
        return isinstance(one, int) and one == other
    return one.value is not None and one.value == other.value and one.value in names


def _size(value: ir.Value | None) -> tuple[ir.Value, int] | None:
    """The tensor and the axis of which a number is the size; in a ``Shape``, an element of it, copied or cut out."""
    first = 0
    while True:
        node = None if value is None else value.producer()
        if node is None or node.domain != "":
            return None
        if node.op_type == "Shape":
            axis = first + node.attributes.get_int("start", 0)
            tensor = node.inputs[0]
            rank = None if tensor is None or tensor.shape is None else len(tensor.shape)
            return None if tensor is None or rank is None or not 0 <= axis < rank else (tensor, axis)
        offset = _offset(node)
        if offset is None:
            return None
        first += offset
        value = node.inputs[0]


def _offset(node: ir.Node) -> int | None:
    """Which element of its first input a node's first one is, None where it computes another."""
    if node.op_type in ("Squeeze", "Identity"):
        return 0
    if node.op_type == "Cast":
        return 0 if node.attributes.get_int("to", 0) in _NUMBERS else None
    given = [array_of(each) for each in node.inputs[1:]]
    numbers = [int(each.reshape(())) for each in given if each is not None and each.size == 1]
    if node.op_type not in ("Gather", "Slice") or len(numbers) < len(given) or numbers[0] < 0:
        return None
    return numbers[0] if node.op_type == "Gather" or numbers[3:] in ([], [1]) else None


def _unreversed(value: ir.Value | None) -> ir.Value | None:
    """What a sequence was before it was turned round."""
    node = producer(value, "ReverseSequence")
    return value if node is None else _unreversed(node.inputs[0])

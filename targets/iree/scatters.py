"""Scatters into a filled tensor of a size that is only known at run time: each into one of its own.

IREE 3.13 makes one buffer of equal fills, scatters into it in place, and gives what else reads the fill the result.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of
from convertkit.targets.forms.writing import Place, dims

_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def write_own_fills(model: ir.Model) -> None:
    """All scatters, in place.

    before:  y = ScatterND (Expand (0, sizes), indices, updates)
    after:   y = ScatterND (Expand (Where (size == -1, 1, 0), sizes), indices, updates)

    No size is negative, which the compiler does not know of a dynamic one.  The number that it is compared with differs
    from scatter to scatter, so that no two fills are found to be equal.
    """
    found = [node for node in tuple(model.graph.all_nodes()) if node.op_type in _SCATTERS and not node.domain]
    for count, node in enumerate(found, 1):
        data, sizes = node.inputs[0], dims(node.inputs[0])
        number = _filled(data)
        if data is None or number is None or not sizes or all(isinstance(size, int) for size in sizes):
            continue
        place, rank = Place(node), len(sizes)
        dynamic = next(axis for axis, size in enumerate(sizes) if not isinstance(size, int))
        shape = place.op("Shape", data, dtype=ir.DataType.INT64, shape=(rank,))
        size = place.op("Gather", shape, place.constant(np.int64(dynamic)), shape=(), axis=0)
        never = place.op("Equal", size, place.constant(np.int64(-count)), dtype=ir.DataType.BOOL)
        other = place.constant(np.array(not number, number.dtype))
        value = place.op("Where", never, other, place.constant(number), dtype=data.dtype, shape=())
        node.replace_input_with(0, place.op("Expand", value, shape, like=data))


def _filled(value: ir.Value | None) -> Array | None:
    """The number that all elements are, of a tensor that is made where the model runs."""
    made = None if value is None else value.producer()
    while made is not None and not made.domain and made.op_type in _VIEWS:
        value = made.inputs[0]
        made = None if value is None else value.producer()
    if made is None or made.domain:
        return None
    number: Array | None = None
    if made.op_type == "Expand":
        number = array_of(made.inputs[0])
    elif made.op_type == "ConstantOfShape":
        given = made.attributes.get("value")
        number = np.zeros(1, np.float32) if given is None else given.as_tensor().numpy()
    return None if number is None or number.size != 1 else number.reshape(())

"""DFT as a product with a matrix of the transform."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.onnx.fourier import transform
from convertkit.targets.forms.writing import Place, dims

_LARGEST = 1 << 20
"""Elements of a matrix."""


def write_transform(node: ir.Node) -> None:
    """In place; what is longer than the matrix may be large, or of sizes that the data decides, stays."""
    x, sizes = node.inputs[0], dims(node.inputs[0])
    length, where = (array_of(node.inputs[place]) if len(node.inputs) > place else None for place in (1, 2))
    computed = any(value is not None and array_of(value) is None for value in node.inputs[1:])
    onesided, inverse = (bool(node.attributes.get_int(name, 0)) for name in ("onesided", "inverse"))
    if x is None or sizes is None or computed:
        return
    first = 1 if node.graph is not None and node.graph.opset_imports.get("", 20) < 20 else -2  # DFT-17 has an attribute
    axis = (node.attributes.get_int("axis", first) if where is None else int(where)) % len(sizes)
    size, parts = sizes[axis], sizes[-1]
    if not isinstance(size, int) or not isinstance(parts, int) or x.dtype != ir.DataType.FLOAT:
        return
    points = int(length) if length is not None else 2 * (size - 1) if inverse and onesided else size
    weights = transform(size, points, parts, inverse, onesided)
    if weights.size > _LARGEST:
        return
    place, rest = Place(node), [each for each in range(len(sizes) - 1) if each != axis]
    perm, outer = [*rest, axis, len(sizes) - 1], [sizes[each] for each in rest]
    value = place.op("Transpose", x, shape=[*outer, size, parts], perm=perm)
    flat = place.constant(np.array([*[0] * len(outer), size * parts]))
    value = place.op("Reshape", value, flat, shape=[*outer, size * parts])
    count, kinds = weights.shape[:2]
    table = place.constant(np.ascontiguousarray(weights.reshape(count * kinds, size * parts).T))
    value = place.op("MatMul", value, table, shape=[*outer, count * kinds])
    full = place.constant(np.array([*[0] * len(outer), count, kinds]))
    value = place.op("Reshape", value, full, shape=[*outer, count, kinds])
    back = [perm.index(each) for each in range(len(sizes))]
    place.becomes(place.op("Transpose", value, like=node.outputs[0], perm=back))

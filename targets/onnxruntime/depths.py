"""DepthToSpace and SpaceToDepth of types that ONNX Runtime has no kernel of, as elements that change places.

Measured: ONNX Runtime 1.31 has kernels of float32, float64, int8 and uint8.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import initializer, inserted, replaced, sizes

_KERNELS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.FLOAT16})
"""What has one; float16 is computed in float32."""
_ORDERS = {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}
_INTO_DEPTH = (0, 3, 5, 1, 2, 4)


def write_out_depths(model: ir.Model) -> None:
    """Write such operators as Reshape, Transpose and Reshape, in place, where one size at most is dynamic."""
    for node in list(model.graph.all_nodes()):
        if node.op_type not in ("DepthToSpace", "SpaceToDepth") or node.domain:
            continue
        value = node.inputs[0]
        found = sizes(value)
        if value is None or value.dtype in _KERNELS or found is None or found.count(None) > 1:
            continue
        _written_out(node, value, [-1 if size is None else size for size in found])


def _written_out(node: ir.Node, x: ir.Value, shape: Sequence[int]) -> None:
    images, depth, height, width = shape
    block = node.attributes.get_int("blocksize")
    if node.op_type == "SpaceToDepth":
        parts = [images, depth, _part(height, block), block, _part(width, block), block]
        order, ends = _INTO_DEPTH, [images, _times(depth, block * block), parts[2], parts[4]]
    else:
        mode, rest = node.attributes.get_string("mode", "DCR"), _part(depth, block * block)
        parts = [images, *((block, block, rest) if mode == "DCR" else (rest, block, block)), height, width]
        order, ends = _ORDERS[mode], [images, rest, _times(height, block), _times(width, block)]
    split = inserted(node, "Reshape", [x, _constant(node, parts, "parts")], x, shape=ir.Shape([None] * 6)).outputs[0]
    moved = inserted(node, "Transpose", [split], x, {"perm": order}, ir.Shape([None] * 6)).outputs[0]
    replaced(node, "Reshape", [moved, _constant(node, ends, "sizes")])


def _part(size: int, block: int) -> int:
    return size if size < 0 else size // block


def _times(size: int, block: int) -> int:
    return size if size < 0 else size * block


def _constant(node: ir.Node, sizes: Sequence[int], word: str) -> ir.Value:
    return initializer(node, np.array(sizes, np.int64), f"{node.outputs[0].name}/{word}")

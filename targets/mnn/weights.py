"""Which stored integers MNN's compression gives back: one scale for each channel of the output, or for blocks of it.

The converter takes floats and rounds them itself: a scale is the largest weight's magnitude over 127 or 7.  Where that
is what the quantizer took, the integers are those of the graph; any other weight stays float32 in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import array_of, only_reader, producer

_TOPS: Mapping[ir.DataType, tuple[int, int]] = {ir.DataType.INT8: (8, 127), ir.DataType.INT4: (4, 7)}
_WHOLE = -1
"""What MNN calls one block for a whole channel."""


@dataclass(frozen=True, slots=True)
class Layer:
    """How a weight is stored: ``bits``, and ``block`` weights of a channel that share a scale, -1 for all."""

    bits: int
    block: int


def stored_layers(model: ir.Model) -> dict[str, Layer]:
    """By the names that MNN gives their operators, the weights that come back as they are; before they become real."""
    found = {}
    for node in model.graph:
        layer = _layer(node)
        if layer is None:
            continue
        found[str(node.outputs[0].name)] = layer
        reader = only_reader(node.outputs[0])
        if reader is not None and reader.op_type == "Add":  # a bias, which MNN puts into the product
            found[str(reader.outputs[0].name)] = layer
    return found


def left_float(model: ir.Model) -> tuple[str, ...]:
    """A note on stored integers that MNN would not give back, so that the file has them as float32; none without."""
    made = [node for node in model.graph if node.op_type == "DequantizeLinear" and not node.domain]
    arrays = {node: array_of(node.inputs[0]) for node in made}
    stored = [node for node, array in arrays.items() if array is not None and array.ndim > 1]
    left = [node for node in stored if all(_layer(use.node) is None for use in node.outputs[0].uses())]
    if not left:
        return ()
    return (f"{len(left)} of {len(stored)} weights stay float32 in the file: MNN would make other integers of them",)


def _layer(node: ir.Node) -> Layer | None:
    made = producer(node.inputs[1], "DequantizeLinear") if len(node.inputs) > 1 else None
    if made is None or node.domain or node.op_type not in ("Conv", "Gemm", "MatMul"):
        return None
    stored, scale = array_of(made.inputs[0]), array_of(made.inputs[1])
    kind = made.inputs[0].dtype if made.inputs[0] is not None else None
    if stored is None or scale is None or kind is None or kind not in _TOPS:
        return None
    bits, top = _TOPS[kind]
    rows = _rows(node, stored.astype(np.float32))
    block = made.attributes.get_int("block_size", 0)
    if rows is None or (block and rows.shape[1] % block):
        return None
    groups = np.abs(rows.reshape(len(rows), -1, block or rows.shape[1])).max(axis=2)
    return Layer(bits, block or _WHOLE) if (groups == top).all() else None


def _rows(node: ir.Node, weight: Array) -> Array | None:
    """A weight with a row for each channel of the output; None for another rank than the operator's usual one."""
    if node.op_type == "Conv":
        return weight.reshape(len(weight), -1)
    if weight.ndim != 2:
        return None
    turned = node.op_type == "Gemm" and node.attributes.get_int("transB", 0) == 1
    return weight if turned else weight.T

"""Products with 4-bit weights as MatMulNBits, which reads them as they are stored.

ONNX Runtime would fuse ``DequantizeLinear`` and ``MatMul`` itself when it loads a file, on the CPU alone and with
activations of 8 bits; written out, every provider of GenAI has the same form.
Source: the schema of com.microsoft.MatMulNBits: (N, blocks of K, bytes of a block), low four bits first, zero at 8.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.targets.genai.attention import CONTRIB
from convertkit.targets.onnxruntime.stored import Stored, array_of, stored_weight

_BLOCK = 32
_ZERO = 8


def pack_products(model: ir.Model, accuracy_level: int) -> int:
    """MatMul and Gemm of int4 weights, in place; returns how many became MatMulNBits.

    ``accuracy_level`` is the operator's own: 1 computes with float32 activations, 4 with those of 8 bits.
    """
    graph, count = model.graph, 0
    for node in list(graph):
        weight = _weight(node)
        if weight is None:
            continue
        _replace(graph, node, weight, accuracy_level)
        count += 1
    if count:
        graph.opset_imports[CONTRIB] = 1
        common.RemoveUnusedNodesPass()(model)
        drop_unused(graph)
    return count


def _weight(node: ir.Node) -> Stored | None:
    """The int4 weight of a plain product, None for any other node."""
    if node.op_type not in ("MatMul", "Gemm") or node.domain or node.inputs[1] is None:
        return None
    weight = stored_weight(node.inputs[1].producer())
    if weight is None or weight.integers.dtype != ir.DataType.INT4 or len(weight.shape) != 2:
        return None
    if weight.block not in (0, _BLOCK):
        return None
    plain = all(node.attributes.get_float(name, 1.0) == 1.0 for name in ("alpha", "beta"))
    return weight if plain and not node.attributes.get_int("transA", 0) and len(node.inputs) == 2 else None


def _replace(graph: ir.Graph, node: ir.Node, weight: Stored, accuracy_level: int) -> None:
    integers, scales = oriented(weight, turned=node.attributes.get_int("transB", 0) == 1)
    outputs, inputs = integers.shape
    data = node.inputs[0]
    assert data is not None, "a product has two operands"
    name = str(weight.integers.name)
    packed = add_constant(graph, f"{name}_packed", packed_bytes(integers))
    factors = add_constant(graph, f"{name}_factors", scales.astype(np.float32).reshape(-1))
    sizes = {"K": inputs, "N": outputs, "bits": 4, "block_size": _BLOCK, "accuracy_level": accuracy_level}
    made = ir.node("MatMulNBits", [data, packed, factors], sizes, domain=CONTRIB, name=node.name)
    graph.insert_before(node, made)
    old, new = node.outputs[0], made.outputs[0]
    new.shape, new.type, label = old.shape, old.type, old.name
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    new.name = label


def oriented(weight: Stored, *, turned: bool) -> tuple[Array, Array]:
    """Integers (outputs, inputs) and a scale for each block of 32 inputs, (outputs, blocks)."""
    integers = array_of(weight.integers).astype(np.int8)
    scales = array_of(weight.scale)
    if not turned:
        integers = integers.T
    outputs, inputs = integers.shape
    blocks = -(-inputs // _BLOCK)
    along_inputs = weight.axis == (1 if turned else 0)
    if weight.block:
        return integers, scales if turned else scales.T
    if scales.size == 1 or not along_inputs:
        return integers, np.broadcast_to(scales.reshape(-1, 1), (outputs, blocks))
    raise AssertionError("a scale for each input cannot be one of the weight's quantization")


def packed_bytes(integers: Array) -> Array:
    """(outputs, inputs) of int4 as (outputs, blocks, 16) bytes; what fills the last block is zero."""
    outputs, inputs = integers.shape
    blocks = -(-inputs // _BLOCK)
    padded = np.zeros((outputs, blocks * _BLOCK), np.uint8) + _ZERO
    padded[:, :inputs] = (integers.astype(np.int16) + _ZERO).astype(np.uint8)
    pairs = padded.reshape(outputs, blocks, _BLOCK // 2, 2)
    return np.asarray(pairs[..., 0] | pairs[..., 1] << 4, np.uint8)

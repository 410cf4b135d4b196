"""Signed integers → unsigned ones, which compute the same and which x86 multiplies.

On x86, ONNX Runtime itself makes activations unsigned before it fuses ``DequantizeLinear → operator →
QuantizeLinear``, but not those of a QuantizeLinear that has several readers: such an operator stays float, as do the
convolutions before and behind every residual sum.  Its Arm kernels take either.
Source: ONNX Runtime, ``QDQS8ToU8Transformer`` and ``QDQIsInt8Allowed``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.byte_sums import MOST, greatest_sums
from convertkit.onnx.edit import add_constant
from convertkit.onnx.onnxruntime_compat import cuts_sums

_SHIFT = 128
_ZERO_POINT = 2
_SAYS_ITS_TYPE = 21
_CONTRIB = "com.microsoft"


class _Product(NamedTuple):
    """Input indices of a product whose activations come first: weight and both zero points."""

    weight: int
    data_point: int
    weight_point: int


_PRODUCTS: Mapping[tuple[str, str], _Product] = {
    ("", "ConvInteger"): _Product(1, 2, 3),
    ("", "MatMulInteger"): _Product(1, 2, 3),
    ("", "QLinearConv"): _Product(3, 2, 5),
    ("", "QLinearMatMul"): _Product(3, 2, 5),
    (_CONTRIB, "QLinearConv"): _Product(3, 2, 5),
    (_CONTRIB, "QGemm"): _Product(3, 2, 5),
    (_CONTRIB, "MatMulIntegerToFloat"): _Product(1, 4, 5),
    (_CONTRIB, "QAttention"): _Product(1, 6, 7),
}
"""Products of integers; source: ONNX's schemas and ONNX Runtime's contrib schemas."""
_QDQ = frozenset({"Conv", "Gemm", "MatMul"})
_BYTES = frozenset({ir.DataType.INT8, ir.DataType.UINT8})


def make_unsigned(model: ir.Model, signed: Collection[ir.Node] = ()) -> int:
    """Shift every int8 activation that is only read by DequantizeLinear by 128, in place; how many there were.

    Numbers stay what they were, up to the ties of ONNX Runtime's fused kernels.  Integer inputs and outputs of the
    model keep their dtype, as do weights, and what the QuantizeLinear nodes of ``signed`` write.
    """
    moved: dict[ir.Value, ir.Value] = {}
    shifted = 0
    for node in model.graph:
        if node.op_type != "QuantizeLinear" or node in signed or node.outputs[0].is_graph_output():
            continue
        readers = [reader for reader, _ in node.outputs[0].uses()]
        pair = (node, *readers)
        points = [point for each in pair if (point := _signed_point(each)) is not None]
        if len(points) < len(pair) or any(each.op_type != "DequantizeLinear" for each in readers):
            continue
        for each, point in zip(pair, points, strict=True):
            if point not in moved:
                moved[point] = _unsigned(model.graph, point)
            each.replace_input_with(_ZERO_POINT, moved[point])
        node.outputs[0].type = ir.TensorType(ir.DataType.UINT8)
        shifted += 1
    for point in moved:
        if point.name is not None and not point.uses():
            del model.graph.initializers[point.name]
    return shifted


def _signed_point(node: ir.Node) -> ir.Value | None:
    """The node's int8 zero point, if it is an initializer."""
    point = node.inputs[_ZERO_POINT] if len(node.inputs) > _ZERO_POINT else None
    if point is None or not point.is_initializer() or point.const_value is None:
        return None
    return point if point.const_value.dtype == ir.DataType.INT8 else None


def _unsigned(graph: ir.Graph, point: ir.Value) -> ir.Value:
    """``point`` + 128 as a new initializer."""
    assert point.const_value is not None
    array = (point.const_value.numpy().astype(np.int16) + _SHIFT).astype(np.uint8)
    return add_constant(graph, f"{point.name}_unsigned", array, separator="")


def widen_weights(model: ir.Model) -> int:
    """Make int8 weights whose sums of two products exceed 16 bits uint8, in place; how many there were.

    Only beside unsigned activations: no kernel multiplies signed ones by unsigned weights.  Numbers stay the same.
    """
    found = tuple(_cut(model.graph, frozenset({ir.DataType.UINT8})))
    for value in found:
        unsigned = _unsigned(model.graph, value)
        for node, index in tuple(value.uses()):
            place = _zero_point_of(node, index, _BYTES)
            assert place is not None
            node.replace_input_with(index, unsigned)
            _set_point(model.graph, node, place, unsigned)
        del model.graph.initializers[str(value.name)]
    return len(found)


def widen_operands(model: ir.Model, kinds: Collection[str], index: int) -> int:
    """Make int8 constants that only operators of ``kinds`` read, as input ``index``, uint8, in place; how many."""
    found = {}
    for node in model.graph:
        if node.op_type != "DequantizeLinear" or node.domain or "block_size" in node.attributes:
            continue
        stored, uses = node.inputs[0], tuple(node.outputs[0].uses())
        if stored is None or stored.dtype != ir.DataType.INT8 or not stored.is_initializer() or not uses:
            continue
        if all(use.node.op_type in kinds and not use.node.domain and use.idx == index for use in uses):
            found[node] = stored
    for node, stored in found.items():
        unsigned = _unsigned(model.graph, stored)
        node.replace_input_with(0, unsigned)
        _set_point(model.graph, node, _ZERO_POINT, unsigned)
        if not stored.uses() and not stored.is_graph_output():
            del model.graph.initializers[str(stored.name)]
    return len(found)


def uncut(model: ir.Model) -> ir.Model:
    """``model``, or where this processor would cut its sums a copy with unsigned integers, which computes the same."""
    if not (cuts_sums() and has_cut_sums(model)):
        return model
    copy = model.clone()
    make_unsigned(copy)
    widen_weights(copy)
    return copy


def for_sessions(model: ir.Model) -> ir.Model:
    """``model``, or a copy that computes the same where ONNX Runtime would cut its sums, or might not load it."""
    copy = uncut(model)
    if copy is model and spreads_signed(model):
        copy = model.clone()
        make_unsigned(copy)
    return copy


def spreads_signed(model: ir.Model) -> bool:
    """Whether ONNX Runtime 1.31 may fail to load a model on x86: one of opset 21 or newer with signed activations.

    Behind a Reshape or a Transpose whose reader stays float it writes a QuantizeLinear that says INT8, as it may from
    opset 21 on, and then makes the zero points of all unsigned, this one's among them.
    """
    newest = model.graph.opset_imports.get("", 1)
    found = (node for node in model.graph if node.op_type == "QuantizeLinear" and not node.domain)
    return newest >= _SAYS_ITS_TYPE and any(_signed_point(node) is not None for node in found)


def has_cut_sums(model: ir.Model) -> bool:
    """Whether x86 without VNNI may cut sums of two products of the model at 16 bits."""
    return next(_cut(model.graph, _BYTES), None) is not None


def _cut(graph: ir.Graph, data: frozenset[ir.DataType]) -> Iterator[ir.Value]:
    """int8 weights that only products with activations of the types ``data`` read, and whose sums exceed 16 bits."""
    for value in graph.initializers.values():
        uses = tuple(value.uses())
        if value.dtype != ir.DataType.INT8 or value.const_value is None or not uses:
            continue
        if value.is_graph_input() or value.is_graph_output():
            continue
        if any(_zero_point_of(node, index, data) is None for node, index in uses):
            continue
        if any(_exceeds(node, value.const_value.numpy()) for node, _ in uses):
            yield value


def _zero_point_of(node: ir.Node, index: int, data: frozenset[ir.DataType]) -> int | None:
    """Where the zero point of a weight is, if input ``index`` of ``node`` is the weight of a product of bytes."""
    if (node.domain, node.op_type) == (_CONTRIB, "DynamicQuantizeMatMul"):
        return 3 if index == 1 else None  # float activations, which it makes unsigned
    product = _PRODUCTS.get((node.domain, node.op_type))
    if product is not None:
        return product.weight_point if index == product.weight and _type(node, product.data_point) in data else None
    if node.op_type != "DequantizeLinear" or node.domain or index or "block_size" in node.attributes:
        return None
    uses = tuple(node.outputs[0].uses())
    return _ZERO_POINT if uses and all(_multiplies(*use, data) for use in uses) else None


def _type(node: ir.Node, zero_point: int) -> ir.DataType | None:
    """The type of the first input; where the file does not tell it, its zero point or its maker does."""
    read, point = ((*node.inputs, *(None,) * 8)[place] for place in (0, zero_point))
    known = next((value.dtype for value in (read, point) if value is not None and value.dtype is not None), None)
    maker = None if read is None else read.producer()
    if known is None and maker is not None and maker.op_type == "DynamicQuantizeLinear" and not maker.domain:
        return ir.DataType.UINT8
    return known


def _multiplies(node: ir.Node, index: int, data: frozenset[ir.DataType]) -> bool:
    """Whether ``node`` multiplies activations that are integers of the types ``data`` by its second input."""
    read = node.inputs[0] if node.op_type in _QDQ and not node.domain and index == 1 else None
    maker = None if read is None else read.producer()
    if maker is None or maker.op_type != "DequantizeLinear":
        return False
    return _type(maker, _ZERO_POINT) in data


def _exceeds(node: ir.Node, integers: Array) -> bool:
    reader = next(iter(node.outputs[0].uses())).node if node.op_type == "DequantizeLinear" else node
    rows = integers.astype(np.int32)
    if "Conv" in reader.op_type:
        if reader.attributes.get_int("group", 1) == len(rows) > 1 and rows.shape[1] == 1:
            return False  # depthwise kernels widen first
        taps = int(np.prod(rows.shape[2:]))
        return bool((greatest_sums(rows.reshape(len(rows), -1), taps) > MOST).any())
    transposed = reader.attributes.get_int("transB", 0) == 1
    along_sum = rows if transposed or rows.ndim == 1 else np.swapaxes(rows, -1, -2)
    return bool((greatest_sums(along_sum, 1) > MOST).any())


def _set_point(graph: ir.Graph, node: ir.Node, place: int, weight: ir.Value) -> None:
    """Add 128 to the zero point at input ``place``, which may be left out."""
    old = node.inputs[place] if len(node.inputs) > place else None
    if old is not None and old.const_value is not None:
        node.replace_input_with(place, _unsigned(graph, old))
        return
    scale = node.inputs[1] if node.op_type == "DequantizeLinear" else None
    shape = () if scale is None or scale.const_value is None else scale.const_value.numpy().shape
    point = add_constant(graph, f"{weight.name}_zero_point", np.full(shape, _SHIFT, np.uint8), separator="")
    node.resize_inputs(max(len(node.inputs), place + 1))
    node.replace_input_with(place, point)

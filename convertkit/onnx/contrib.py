"""ONNX Runtime's own operators, as its optimiser and exporters write them, in ONNX's.

Optimised files hold com.microsoft operators that no other runtime knows.  Each is rewritten into what it is a fusion
of; a form without a rule keeps its node, and the target refuses it by name.
Source: the schemas and texts of ONNX Runtime's contrib operators.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.contrib_attention import attention, multi_head_attention
from convertkit.onnx.contrib_grouped import grouped_query_attention
from convertkit.onnx.contrib_images import activated, channels_last_conv, channels_last_max_pool, fused_conv
from convertkit.onnx.contrib_integers import (
    dequantize_linear,
    dynamic_quantize_matmul,
    matmul_integer_to_float,
    quantize_linear,
    quantized_attention,
)
from convertkit.onnx.contrib_rotary import rotary_embedding
from convertkit.onnx.fusion import Fusion, Results, Rule, replace_node

CONTRIB = "com.microsoft"
_KEPT = (ir.AttrInt64("keepdims", 1),)
_INT32 = (ir.AttrInt64("to", int(ir.DataType.INT32)),)
_ONNX_SINCE: Mapping[str, float] = {"LayerNormalization": 17, "SimplifiedLayerNormalization": np.inf}
"""Operators of ONNX Runtime that carry ONNX's domain, and the opset since which ONNX has them."""


def name_domains(model: ir.Model) -> None:
    """Give operators that ONNX Runtime keeps in ONNX's own domain, and ONNX does not have there, theirs; in place.

    Its optimiser writes LayerNormalization into models of opset 14, and SimplifiedLayerNormalization into any.
    """
    opset = model.graph.opset_imports.get("", 1)
    for node in model.graph.all_nodes():
        if node.domain == "" and opset < _ONNX_SINCE.get(node.op_type, 0):
            node.domain = CONTRIB
            model.graph.opset_imports.setdefault(CONTRIB, 1)


def decompose_contrib(model: ir.Model) -> bool:
    """Rewrite ONNX Runtime's operators, in place; False where there are none with a rule."""
    found = False
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in list(graph):
            rule = _RULES.get((node.domain, node.op_type))
            if rule is not None:
                found |= replace_node(model, graph, node, rule)
    if found and not any(node.domain == CONTRIB for node in model.graph.all_nodes()):
        model.graph.opset_imports.pop(CONTRIB, None)
    return found


def _gelu(f: Fusion) -> Results:
    return [f.gelu(f.input(0))]


def _bias_gelu(f: Fusion) -> Results:
    return [f.gelu(f.op("Add", f.input(0), f.input(1)))]


def _fast_gelu(f: Fusion) -> Results:
    """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³)))``."""
    bias = f.given(1)
    x = f.input(0) if bias is None else f.op("Add", f.input(0), bias)
    cube = f.op("Mul", f.op("Mul", x, x), x)
    inner = f.op("Add", x, f.op("Mul", cube, f.number(0.044715)))
    bent = f.op("Tanh", f.op("Mul", inner, f.number(np.sqrt(2 / np.pi))))
    return [f.op("Mul", f.op("Mul", x, f.number(0.5)), f.op("Add", bent, f.number(1.0)))]


def _quick_gelu(f: Fusion) -> Results:
    x = f.input(0)
    return [f.op("Mul", x, f.op("Sigmoid", f.op("Mul", x, f.number(f.real("alpha", 1.702)))))]


def _swish(f: Fusion) -> Results:
    """ONNX's own since opset 24: ONNX Runtime has no kernel for it."""
    x, alpha = f.input(0), f.real("alpha", 1.0)
    return [f.op("Mul", x, f.op("Sigmoid", x if alpha == 1.0 else f.op("Mul", x, f.number(alpha))))]


def _fused_matmul(f: Fusion) -> Results:
    sides = [_side(f, place, name) for place, name in enumerate(_TRANSPOSED)]
    product = f.op("MatMul", *sides)
    alpha = f.real("alpha", 1.0)
    return [product if alpha == 1.0 else f.op("Mul", product, f.number(alpha))]


_TRANSPOSED = ("transA", "transB")


def _side(f: Fusion, place: int, name: str) -> ir.Value:
    """An operand as MatMul has it; ``transBatch`` says that its batch stands before the last axis."""
    x = f.input(place)
    if f.whole(name.replace("trans", "transBatch")):
        rank = f.rank(x)
        order = [*range(1, rank - 1), 0, rank - 1]
        if f.whole(name):
            order[-2:] = order[:-3:-1]
        return f.op("Transpose", x, attributes=[ir.AttrInt64s("perm", order)])
    return f.swapped(x) if f.whole(name) else x


def _fused_gemm(f: Fusion) -> Results:
    kept = [f.node.attributes[name] for name in ("alpha", "beta", *_TRANSPOSED) if name in f.node.attributes]
    bias = f.given(2)
    product = f.op("Gemm", f.input(0), f.input(1), *([] if bias is None else [bias]), attributes=kept)
    names = [name for name in ("activation_alpha", "activation_beta") if name in f.node.attributes]
    return [activated(f, product, [f.real(name, 0.0) for name in names])]


def _bias_add(f: Fusion) -> Results:
    return [f.op("Add", f.op("Add", f.input(0), f.input(1)), f.input(2))]


def _bias_split_gelu(f: Fusion) -> Results:
    """The left half of the last axis times the GELU of the right half."""
    total = f.op("Add", f.input(0), f.input(1))
    halves = [ir.AttrInt64("axis", -1), ir.AttrInt64("num_outputs", 2)]
    left, right = f.ops("Split", total, attributes=halves, count=2)
    return [f.op("Mul", left, f.gelu(right))]


def _skip_layer_normalization(f: Fusion) -> Results:
    """The normalised sum, and as fourth output the sum itself."""
    total, beta = _skipped(f, 4), f.given(3)
    operands = [total, f.input(2), *([] if beta is None else [beta])]
    attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", f.real("epsilon", 1e-12))]
    return [f.op("LayerNormalization", *operands, attributes=attributes), None, None, total]


def _skip_simplified(f: Fusion) -> Results:
    total = _skipped(f, 3)
    return [_root_mean_square(f, total, f.input(2), f.real("epsilon", 1e-12)), None, None, total]


def _layer_normalization(f: Fusion) -> Results:
    """ONNX's own before ONNX had it."""
    kept = list(f.node.attributes.values())
    operands = [value for value in f.node.inputs if value is not None]
    return f.ops("LayerNormalization", *operands, attributes=kept, count=len(f.node.outputs))


def _simplified_layer_normalization(f: Fusion) -> Results:
    if f.node.attributes.get_int("axis", -1) not in (-1, f.rank(f.input(0)) - 1):
        raise Unsupported("an axis that is not the last", subject=f.title)
    return [_root_mean_square(f, f.input(0), f.input(1), f.real("epsilon", 1e-5))]


def _skipped(f: Fusion, bias_place: int) -> ir.Value:
    bias = f.given(bias_place)
    total = f.op("Add", f.input(0), f.input(1))
    return total if bias is None else f.op("Add", total, bias)


def _root_mean_square(f: Fusion, x: ir.Value, scale: ir.Value, epsilon: float) -> ir.Value:
    mean = f.op("ReduceMean", f.op("Mul", x, x), f.ints(-1), attributes=[ir.AttrInt64("keepdims", 1)])
    return f.op("Mul", f.op("Div", x, f.op("Sqrt", f.op("Add", mean, f.number(epsilon)))), scale)


def _embed(f: Fusion) -> Results:
    """Words, positions and segments looked up, added and normalised."""
    words, segments = f.input(0), f.given(1)
    mask, places = f.given(7), f.given(8)
    total = f.op("Gather", f.input(2), words)
    if places is None:
        length = f.op("Gather", f.op("Shape", words), f.ints(1))
        rows = f.op("Slice", f.input(3), f.ints(0), length, f.ints(0))
        total = f.op("Add", total, rows)
    else:
        total = f.op("Add", total, f.op("Gather", f.input(3), places))
    if segments is not None:
        total = f.op("Add", total, f.op("Gather", f.input(4), segments))
    attributes = [ir.AttrInt64("axis", -1), ir.AttrFloat32("epsilon", f.real("epsilon", 1e-12))]
    result = f.op("LayerNormalization", total, f.input(5), f.input(6), attributes=attributes)
    if mask is None:  # the lengths are 0 then, as ONNX Runtime has them
        batch = f.op("Gather", f.op("Shape", words), f.ints(0))
        lengths = f.op("Expand", f.tensor(np.array(0, np.int32)), batch)
    else:
        ones = f.op(
            "Cast", f.op("Equal", mask, f.tensor(np.array(1, np.int32))), attributes=_INT32
        )  # 1 counts, 2 does not
        lengths = f.op("ReduceSum", ones, f.ints(1), attributes=[ir.AttrInt64("keepdims", 0)])
    return [result, lengths, total]


def _matmul_bits(f: Fusion) -> Results:
    """Weights of 2, 4 or 8 bits in blocks along the inner axis, low bits first, as the floats that they stand for."""
    if f.given(4) is not None:
        raise Unsupported("reordered groups (g_idx)", subject=f.title)
    bits, block, rows, inner = (f.whole(name, default) for name, default in
                                (("bits", 4), ("block_size", 32), ("N", 0), ("K", 0)))  # fmt: skip
    blocks = -(-inner // block)
    integers = _unpacked(f.constant(1), bits).reshape(rows, blocks, -1)[:, :, :block]
    scales = f.constant(2).reshape(rows, blocks, 1).astype(np.float32)
    points = f.given(3)
    zeros: Array = np.array(1 << (bits - 1), np.float32)
    if points is not None:
        stored = f.constant(3)
        if stored.dtype == np.uint8:
            stored = _unpacked(stored.reshape(rows, -1), bits)[:, :blocks]
        zeros = stored.reshape(rows, blocks, 1).astype(np.float32)
    weight = ((integers.astype(np.float32) - zeros) * scales).reshape(rows, -1)[:, :inner]
    product = f.op("MatMul", f.input(0), f.tensor(np.ascontiguousarray(weight.T)))
    bias = f.given(5)
    return [product if bias is None else f.op("Add", product, bias)]


def _gather_block_quantized(f: Fusion) -> Results:
    """Rows of a table of 2, 4 or 8 bits in blocks along an axis, as the floats that they stand for."""
    bits, block, axis = f.whole("bits", 4), f.whole("block_size", 128), f.whole("quantize_axis", 1)
    stored, scales, points = f.constant(0), f.constant(2), f.given(3)
    is_bytes = f.input(0).dtype == ir.DataType.UINT8
    packed = is_bytes and bits < 8
    integers = (_unpacked(stored, bits) if packed else stored).astype(np.float32)
    axis %= integers.ndim
    zeros: Array = np.array(1 << (bits - 1) if is_bytes else 0, np.float32)
    if points is not None:
        found = _unpacked(f.constant(3), bits)[..., : scales.shape[-1]] if packed else f.constant(3)
        zeros = _along(found.astype(np.float32), block, integers.shape, axis)
    table = (integers - zeros) * _along(scales.astype(np.float32), block, integers.shape, axis)
    rows = f.tensor(np.ascontiguousarray(table.astype(scales.dtype)))
    return [f.op("Gather", rows, f.input(1), attributes=[ir.AttrInt64("axis", f.whole("gather_axis"))])]


def _along(values: Array, block: int, shape: tuple[int, ...], axis: int) -> Array:
    """One value for each block as one for each element."""
    return np.repeat(values, block, axis).take(range(shape[axis]), axis)


def _distances(f: Fusion) -> Results:
    """``CDist``: between all rows of two tables, by their squares and their products."""
    first, second = f.input(0), f.input(1)
    squares = [f.op("ReduceSum", f.op("Mul", x, x), f.ints(-1), attributes=_KEPT) for x in (first, second)]
    product = f.op("Mul", f.op("MatMul", first, f.swapped(second)), f.number(2.0))
    apart = f.op("Relu", f.op("Sub", f.op("Add", squares[0], f.op("Transpose", squares[1])), product))
    return [f.op("Sqrt", apart) if f.node.attributes.get_string("metric", "sqeuclidean") == "euclidean" else apart]


def _unpacked(stored: Array, bits: int) -> Array:
    parts = [(stored >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*stored.shape[:-1], -1)


_RULES: Mapping[tuple[str, str], Rule] = {
    ("", "Swish"): _swish,
    (CONTRIB, "Attention"): attention,
    (CONTRIB, "BiasAdd"): _bias_add,
    (CONTRIB, "BiasGelu"): _bias_gelu,
    (CONTRIB, "BiasSplitGelu"): _bias_split_gelu,
    (CONTRIB, "CDist"): _distances,
    (CONTRIB, "DequantizeLinear"): dequantize_linear,
    (CONTRIB, "DynamicQuantizeMatMul"): dynamic_quantize_matmul,
    (CONTRIB, "EmbedLayerNormalization"): _embed,
    (CONTRIB, "FastGelu"): _fast_gelu,
    (CONTRIB, "FusedConv"): fused_conv,
    (CONTRIB, "FusedGemm"): _fused_gemm,
    (CONTRIB, "FusedMatMul"): _fused_matmul,
    (CONTRIB, "GatherBlockQuantized"): _gather_block_quantized,
    (CONTRIB, "Gelu"): _gelu,
    (CONTRIB, "GroupQueryAttention"): grouped_query_attention,
    (CONTRIB, "LayerNormalization"): _layer_normalization,
    (CONTRIB, "MatMulIntegerToFloat"): matmul_integer_to_float,
    (CONTRIB, "MatMulNBits"): _matmul_bits,
    (CONTRIB, "MultiHeadAttention"): multi_head_attention,
    (CONTRIB, "NhwcConv"): channels_last_conv,
    (CONTRIB, "NhwcFusedConv"): channels_last_conv,
    (CONTRIB, "NhwcMaxPool"): channels_last_max_pool,
    (CONTRIB, "QAttention"): quantized_attention,
    (CONTRIB, "QuantizeLinear"): quantize_linear,
    (CONTRIB, "QuickGelu"): _quick_gelu,
    (CONTRIB, "RotaryEmbedding"): rotary_embedding,
    (CONTRIB, "SimplifiedLayerNormalization"): _simplified_layer_normalization,
    (CONTRIB, "SkipLayerNormalization"): _skip_layer_normalization,
    (CONTRIB, "SkipSimplifiedLayerNormalization"): _skip_simplified,
    (CONTRIB, "TransposeMatMul"): _fused_matmul,
}
"""Operators that have a rule, by domain and name; of ONNX's own one that ONNX Runtime does not run."""

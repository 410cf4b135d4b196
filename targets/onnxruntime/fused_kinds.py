"""Which rows of the cost tables the kernels of ONNX Runtime have, the fused ones of its own domain among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.targets.onnxruntime.as_fused import WAYS_OUT

_FAST_TAPS = 25
_BYTES = frozenset({ir.DataType.INT8, ir.DataType.UINT8})
_FUSED: Mapping[str, str] = {
    "FusedConv": "Conv", "NhwcFusedConv": "Conv", "FusedGemm": "Gemm", "QGemm": "Gemm", "FusedMatMul": "MatMul",
    "NhwcMaxPool": "MaxPool",
}  # fmt: skip
_OF_BYTES = ("QLinear", "NhwcMaxPool")
_FREE = frozenset({
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Size", "Dropout", "Constant", "Range",
})  # fmt: skip
"""What keeps the bytes where they are, or reads sizes."""
_ROWS: Mapping[str, str] = {
    **{op: op for op in (
        "Add", "Mul", "Sigmoid", "LeakyRelu", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "Gelu", "Relu",
        "HardSigmoid", "HardSwish", "Tanh", "Erf", "Exp", "Sqrt", "Pow", "Softmax", "LayerNormalization", "Transpose",
        "QuantizeLinear",
    )},
    "DequantizeLinear": "QuantizeLinear", "DynamicQuantizeLinear": "QuantizeLinear", "FastGelu": "Gelu",
    "GlobalMaxPool": "GlobalAveragePool", "BiasGelu": "Gelu",
    # No table has a row for these: that of an operator whose kernel does about as much.
    **dict.fromkeys(("Sub", "Div", "Max", "Min", "PRelu", "Sum", "Where", "Equal", "Less", "Greater", "And", "Or",
                     "Mod", "LessOrEqual", "GreaterOrEqual", "BatchNormalization"), "Add"),
    **dict.fromkeys(("Clip", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "Cast", "Not", "ThresholdedRelu"), "Relu"),
    **dict.fromkeys(("Log", "Reciprocal", "Sin", "Cos", "Softplus", "Elu", "Selu", "Mish"), "Exp"),
    **dict.fromkeys(("Split", "Pad", "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Slice",
                     "GatherElements", "GatherND", "ConstantOfShape", "ScatterND", "Trilu"), "Slice"),
    **dict.fromkeys(("ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ArgMax", "ArgMin", "CumSum"), "ReduceMean"),
    "LogSoftmax": "Softmax", "InstanceNormalization": "LayerNormalization", "GroupNormalization": "LayerNormalization",
    "SimplifiedLayerNormalization": "LayerNormalization",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Priced:
    """Work of a row of the tables: multiply-adds or elements of the larger side, and elements read and written."""

    row: str
    integer: bool
    work: float
    elements: float = 0.0


def priced(node: ir.Node) -> tuple[Priced, ...]:
    """What a node computes, in rows; empty for what keeps its bytes, ``Unsupported`` for what no row stands for."""
    kind = node.op_type.removeprefix("QLinear")
    kind = _FUSED.get(kind, kind)
    if kind in _FREE:
        return ()
    if kind in _PRODUCTS:
        return _PRODUCTS[kind](node)
    if kind in ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"):
        return (_plain(node, "LayerNormalization"), _plain(node, "Add"))
    if kind == "QuickGelu":
        return (_plain(node, "Sigmoid"), _plain(node, "Mul.gated"))
    if kind == "Resize":
        mode = node.attributes.get_string("mode", "nearest")
        return (_plain(node, "Resize" if mode == "nearest" else "Resize.interpolated"),)
    if kind == "ReduceMean":
        return (_plain(node, "ReduceMean.maps" if _is_of_maps(node) else "ReduceMean"),)
    if kind not in _ROWS:
        raise _unknown(node, f"no cost table knows {node.op_type}, so the time of the file cannot be estimated")
    return (_plain(node, _ROWS[kind]),)


def _unknown(node: ir.Node, reason: str) -> Unsupported:
    return Unsupported(reason, subject=str(node.outputs[0].name), ways_out=WAYS_OUT)


def _plain(node: ir.Node, row: str) -> Priced:
    """By the elements of the larger side; a slice reads what it writes."""
    written = sum(map(_elements, node.outputs))
    read = 0 if row == "Slice" else max((_elements(value) for value in _data(node)), default=0)
    moved = row in ("QuantizeLinear", "Slice", "Transpose", "Resize", "Resize.interpolated", "Concat", "MaxPool")
    integer = node.op_type.startswith(_OF_BYTES) or (moved and _is_integer(node.outputs[0]))
    return Priced(row, integer and row != "QuantizeLinear", float(max(written, read)))


def _data(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs if value is not None and value.const_value is None]


def _is_integer(value: ir.Value) -> bool:
    return value.dtype in _BYTES


def _is_of_maps(node: ir.Node) -> bool:
    first = node.inputs[0]
    made = node.outputs[0]
    return first is not None and len(first.shape or ()) == 4 and _elements(made) == math.prod(_sizes(first)[:2])


def _conv(node: ir.Node) -> tuple[Priced, ...]:
    integer = node.op_type == "QLinearConv"
    first, weight = node.inputs[0], node.inputs[3 if integer else 1]
    shape, written = _sizes(weight), _elements(node.outputs[0])
    if len(shape) > 4:
        raise _unknown(node, "no cost table knows convolutions in three dimensions")
    groups = node.attributes.get_int("group", 1)
    row = "Conv.pointwise" if math.prod(shape[2:]) == 1 else "Conv"
    if groups > 1:
        large = math.prod(shape[2:]) > _FAST_TAPS
        row = "Conv.grouped" if shape[1] != 1 else "Conv.depthwise_large" if large else "Conv.depthwise"
    return (Priced(row, integer, float(written * math.prod(shape[1:])), float(_elements(first) + written)),)


def _transposed(node: ir.Node) -> tuple[Priced, ...]:
    read = _elements(node.inputs[0])
    work = read * math.prod(_sizes(node.inputs[1])[1:])
    return (Priced("ConvTranspose", False, float(work), float(read + _elements(node.outputs[0]))),)


def _product(node: ir.Node) -> tuple[Priced, ...]:
    """Of matrices; what quantizes the rows that it reads does that besides."""
    first, second = node.inputs[0], node.inputs[3 if node.op_type in ("QGemm", "QLinearMatMul") else 1]
    written = _elements(node.outputs[0])
    sizes = _sizes(first)
    deep = sizes[0 if node.attributes.get_int("transA", 0) and len(sizes) == 2 else -1] if sizes else 1
    fixed = second is not None and second.const_value is not None
    row = "Gemm" if node.op_type in ("Gemm", "FusedGemm", "QGemm") else "MatMul" if fixed else "MatMul.dynamic"
    touched = written + sum(map(_elements, _data(node)))
    integer = node.op_type not in ("Gemm", "FusedGemm", "MatMul", "FusedMatMul")
    found = Priced(row, integer, float(written * deep), float(touched))
    if node.op_type != "DynamicQuantizeMatMul":
        return (found,)
    return (Priced("QuantizeLinear", False, float(_elements(first))), found)


_PRODUCTS: Mapping[str, Callable[[ir.Node], tuple[Priced, ...]]] = {
    "Conv": _conv,
    "ConvTranspose": _transposed,
    **dict.fromkeys(("Gemm", "MatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), _product),
}


def _sizes(value: ir.Value | None) -> tuple[int, ...]:
    if value is None:
        return ()
    if value.const_value is not None:
        return tuple(map(int, value.const_value.numpy().shape))
    return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape or ())


def _elements(value: ir.Value | None) -> int:
    return math.prod(_sizes(value)) if value is not None and value.name else 0

"""What TensorRT's ONNX parser takes of a graph, told without TensorRT.

Sources: ``operators.toml``, and for the rules below what onnx-tensorrt's docs/operators.md restricts for TensorRT 10.15
and the parser of TensorRT-RTX 1.7 refuses, too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx_ir as ir

from convertkit.onnx.specs import dtype_name

_MOST_OF_TOPK = 3840
NEWEST = "11.0"
"""The newest release that the table knows."""
_UNKNOWN_TYPES = frozenset(
    {
        ir.DataType.INT16,
        ir.DataType.UINT16,
        ir.DataType.UINT32,
        ir.DataType.UINT64,
        ir.DataType.UINT4,
        ir.DataType.STRING,
        ir.DataType.COMPLEX64,
        ir.DataType.COMPLEX128,
        ir.DataType.FLOAT8E4M3FNUZ,
        ir.DataType.FLOAT8E5M2,
        ir.DataType.FLOAT8E5M2FNUZ,
    }
)
_NEWER_TYPES: Mapping[str, frozenset[ir.DataType]] = {
    "8.6": frozenset({ir.DataType.BFLOAT16, ir.DataType.FLOAT8E4M3FN, ir.DataType.INT4})
}
"""By release, the types that later ones have.  Source: docs/operators.md of onnx-tensorrt."""
_QUANTIZED = frozenset({ir.DataType.INT8, ir.DataType.INT4})
_QDQ = frozenset({"QuantizeLinear", "DequantizeLinear"})
_READ_BYTES = frozenset({"Cast", "CastLike", "Identity"})
"""What may read uint8, which TensorRT knows at the network's edges alone."""
_RESIZE_PLACES = frozenset({"half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners"})


@dataclass(frozen=True, slots=True)
class Parsers:
    """By operator the first release of TensorRT that parses it, by release the newest opset, and what RTX lacks.

    ``no_bfloat16`` are operators of floats that TensorRT does not have in bfloat16.
    """

    since: Mapping[str, str]
    opsets: Mapping[str, int]
    rtx_lacks: frozenset[str]
    no_bfloat16: frozenset[str]


@cache
def parsers() -> Parsers:
    """The table of ``operators.toml``."""
    table = tomllib.loads(Path(__file__).with_name("operators.toml").read_text(encoding="utf-8"))
    since = {name: release for release, names in table["since"].items() for name in names}
    return Parsers(since, table["opsets"], frozenset(table["rtx"]["lacks"]), frozenset(table["bfloat16"]["lacks"]))


def fault(node: ir.Node, release: str = NEWEST) -> str:
    """Why the parser of ``release`` does not take ``node``, empty where it does as far as that can be told."""
    if node.domain not in ("", "ai.onnx"):
        return f"{node.domain}::{node.op_type} is not an operator of ONNX"
    since = parsers().since.get(node.op_type)
    if since is None:
        return f"TensorRT's parser has no {node.op_type}"
    if numbers(since) > numbers(release):
        return f"the parser of TensorRT {release} has no {node.op_type}; that of {since} has it"
    older = _OLDER_RULES.get(node.op_type, _any)(node) or _integers(node) if release in _NEWER_TYPES else ""
    return older or _RULES.get(node.op_type, _any)(node) or _types(node, release)


def numbers(release: str) -> tuple[int, ...]:
    """``10.15`` as numbers, by which releases are ordered."""
    return tuple(int(part) for part in release.split("."))


def _types(node: ir.Node, release: str) -> str:
    """Values of types that TensorRT lacks, or has at other places only."""
    for value in (*node.inputs, *node.outputs):
        if value is not None and isinstance(value.type, ir.SequenceType | ir.OptionalType):
            return f"{value.name} is {value.type}, and TensorRT has tensors alone"
        if value is not None and value.dtype in _NEWER_TYPES.get(release, frozenset()):
            return f"{value.name} is {dtype_name(value.dtype)}, a type that TensorRT {release} does not have"
        if value is not None and value.dtype in _UNKNOWN_TYPES:
            return f"{value.name} is {dtype_name(value.dtype)}, a type that TensorRT does not have"
    for value in node.inputs:
        if value is None or value.dtype is None:
            continue
        if value.dtype == ir.DataType.UINT8 and node.op_type not in _READ_BYTES:
            return f"{value.name} is uint8, which TensorRT takes as an input of the model and casts, nothing else"
        if value.dtype in _QUANTIZED and value.const_value is not None and node.op_type not in _QDQ:
            return f"the constant {value.name} is {dtype_name(value.dtype)}, which DequantizeLinear alone reads"
    for value in node.outputs:
        if value.dtype == ir.DataType.UINT8 and not value.is_graph_output():
            return f"{value.name} is uint8 inside of the model; TensorRT has it at inputs and outputs alone"
    return ""


def _any(node: ir.Node) -> str:
    return ""


def _integers(node: ir.Node) -> str:
    """int8 outside of pairs: TensorRT 8.6 parses such nodes and builds no engine."""
    if node.op_type in _QDQ:
        return ""
    found = next((each.name for each in node.inputs if each is not None and each.dtype == ir.DataType.INT8), None)
    return f"{found} is int8 outside of QuantizeLinear and DequantizeLinear" if found else ""


def _kernel(node: ir.Node) -> str:
    weight = node.inputs[1]
    pair = weight.producer() if weight is not None else None
    stored = weight is not None and weight.const_value is not None
    behind = pair is not None and pair.op_type == "DequantizeLinear"
    return "" if stored or behind else "a kernel that is computed: TensorRT 8.6 needs a constant"


def _power(node: ir.Node) -> str:
    whole = (
        each.name for each in node.inputs if each is not None and each.dtype in (ir.DataType.INT32, ir.DataType.INT64)
    )
    found = next(whole, None)
    return f"{found} is a whole number: TensorRT 8.6 has powers of floats" if found else ""


def _vector(node: ir.Node) -> str:
    ranks = [len(each.shape) for each in node.inputs if each is not None and each.shape is not None]
    several = len(ranks) == 2 and ranks[0] == 1 and ranks[1] > 2
    return "a vector times several matrices: TensorRT 8.6 does not parse it" if several else ""


def _only_output(node: ir.Node) -> str:
    """For operators with optional outputs of which TensorRT has the first."""
    more = [value.name for value in node.outputs[1:] if value.name]
    return f"TensorRT has the first output alone, not {', '.join(map(str, more))}" if more else ""


def _pool(node: ir.Node) -> str:
    dilations = node.attributes.get_ints("dilations", ())
    if any(each != 1 for each in dilations):
        return f"dilations={list(dilations)}: TensorRT's pooling has none"
    return _only_output(node)


def _lp_pool(node: ir.Node) -> str:
    power = node.attributes.get_int("p", 2)
    return _pool(node) if power in (1, 2) else f"p={power}: TensorRT's LpPool has 1 and 2"


def _training(node: ir.Node) -> str:
    return "training_mode=1: TensorRT runs inference alone" if node.attributes.get_int("training_mode", 0) else ""


def _mod(node: ir.Node) -> str:
    value = node.inputs[0]
    real = value is not None and value.dtype is not None and value.dtype.is_floating_point()
    return "fmod=0 of floats: TensorRT's Mod needs fmod=1" if real and not node.attributes.get_int("fmod", 0) else ""


def _tensor_scatter(node: ir.Node) -> str:
    mode = node.attributes.get_string("mode", "linear")
    return "" if mode == "linear" else f"mode={mode}: TensorRT has linear"


def _resize(node: ir.Node) -> str:
    places = node.attributes.get_string("coordinate_transformation_mode", "half_pixel")
    policy = node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if node.attributes.get_int("antialias", 0):
        return "antialias=1: TensorRT has no such resizing"
    if places not in _RESIZE_PLACES:
        return f"coordinate_transformation_mode={places}: TensorRT has {', '.join(sorted(_RESIZE_PLACES))}"
    return "" if policy == "stretch" else f"keep_aspect_ratio_policy={policy}: TensorRT has stretch"


def _top_k(node: ir.Node) -> str:
    count = node.inputs[1]
    if count is None or count.const_value is None:
        return ""
    wanted = int(count.const_value.numpy().ravel()[0])
    return f"K={wanted}: TensorRT takes {_MOST_OF_TOPK} at most" if wanted > _MOST_OF_TOPK else ""


def _lstm(node: ir.Node) -> str:
    return "input_forget=1: TensorRT has no coupled gates" if node.attributes.get_int("input_forget", 0) else ""


def _axes(node: ir.Node) -> str:
    """For operators whose second input has to be known when the engine is built."""
    axes = (*node.inputs, None)[1]
    given = axes is not None and axes.is_graph_input() and axes.const_value is None
    return f"the axes {axes.name} are an input: TensorRT needs constants" if given and axes is not None else ""


def _scatter_nd(node: ir.Node) -> str:
    reduction = node.attributes.get_string("reduction", "none")
    return "" if reduction == "none" else f"reduction={reduction}: TensorRT's ScatterND has none"


_OLDER_RULES: Mapping[str, Callable[[ir.Node], str]] = {
    "Conv": _kernel,
    "ConvTranspose": _kernel,
    "MatMul": _vector,
    "Pow": _power,
}
"""What TensorRT 8.6 does not take beside that.  Source: its parser, run on ONNX's node suite."""

_RULES: Mapping[str, Callable[[ir.Node], str]] = {
    "AveragePool": _pool,
    "BatchNormalization": _training,
    "LayerNormalization": _only_output,
    "LpPool": _lp_pool,
    "LSTM": _lstm,
    "MaxPool": _pool,
    "Mod": _mod,
    **{name: _axes for name in parsers().since if name.startswith("Reduce") or name in ("Squeeze", "Unsqueeze")},
    "Resize": _resize,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
}

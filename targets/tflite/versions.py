"""The lowest operator version that a signature needs.

Old phones run old runtimes, so nothing is emitted at a higher version than its types ask for.
Rules: TensorFlow's ``tools/versioning/op_version.cc``, stored as data here.
"""

from __future__ import annotations

from convertkit.targets.tflite.graph import Operation
from convertkit.targets.tflite.tensor import Tensor

# The version that a data type of the deciding input asks for, where nothing else matters.
_BY_DTYPE: dict[str, dict[str, int]] = {
    "ABS": {"int32": 5, "int16": 4, "int8": 2, "uint8": 2},
    "ADD": {"int64": 4, "int16": 5, "int8": 2},
    "ARG_MAX": {"bool": 3, "int8": 2},
    "ARG_MIN": {"bool": 3, "int8": 2},
    "AVERAGE_POOL_2D": {"int16": 3, "int8": 2},
    "BATCH_MATMUL": {"int16": 3, "int8": 2},
    "BATCH_TO_SPACE_ND": {"int16": 4, "int8": 2},
    "BROADCAST_TO": {"int8": 3, "int16": 3},
    "CONCATENATION": {"uint32": 4, "int16": 3, "int8": 2},
    "DEPTH_TO_SPACE": {"int8": 2},
    "DEQUANTIZE": {"int4": 6, "int16": 3, "float16": 3, "int8": 2},
    "DYNAMIC_UPDATE_SLICE": {"int8": 2},
    "EQUAL": {"int16": 5, "string": 3, "int8": 2},
    "EXP": {"int8": 2, "int16": 2},
    "FLOOR_DIV": {"int16": 3, "int8": 3, "float32": 2},
    "FLOOR_MOD": {"int16": 2, "int8": 2},
    "GATHER_ND": {"bool": 5, "int16": 3, "string": 2},
    "GELU": {"int8": 2},
    "GREATER": {"int8": 2},
    "GREATER_EQUAL": {"int16": 3, "int8": 2},
    "L2_NORMALIZATION": {"int8": 2},
    "LEAKY_RELU": {"int16": 2},
    "LESS": {"int16": 3, "int8": 2},
    "LESS_EQUAL": {"int8": 2},
    "LOG": {"int8": 2, "int16": 2},
    "LOG_SOFTMAX": {"int8": 2},
    "LOGISTIC": {"int16": 3, "int8": 2},
    "MAXIMUM": {"int16": 4, "int8": 2},
    "MAX_POOL_2D": {"int16": 3, "int8": 2},
    "MEAN": {"int16": 3, "int8": 2},
    "MINIMUM": {"int16": 4, "int8": 2},
    "MIRROR_PAD": {"int16": 3, "int8": 2},
    "MUL": {"uint32": 7, "complex64": 6, "int64": 5, "int16": 7, "int8": 2},
    "NOT_EQUAL": {"int16": 4, "string": 3, "int8": 2},
    "PACK": {"uint32": 4, "int16": 3, "int8": 2},
    "PAD": {"bool": 5, "int16": 3, "int8": 2},
    "PADV2": {"bool": 5, "int16": 3, "int8": 2},
    "RANGE": {"int64": 2},
    "REDUCE_MAX": {"int16": 3, "int8": 2},
    "REDUCE_MIN": {"int16": 3, "int8": 2},
    "REDUCE_PROD": {"int8": 2, "int16": 2},
    "RELU": {"int16": 3, "int8": 2, "uint8": 2},
    "RELU6": {"int16": 3, "int8": 2},
    "REVERSE_V2": {"int8": 3, "bool": 2},
    "RSQRT": {"int16": 3, "int8": 2},
    "SELECT": {"uint32": 4, "int16": 3, "int8": 2},
    "SELECT_V2": {"uint32": 2},
    "SIGN": {"int32": 2},
    "SLICE": {"uint32": 6, "int16": 4, "string": 3, "int8": 2},
    "SOFTMAX": {"int16": 3, "int8": 2},
    "SPACE_TO_BATCH_ND": {"int16": 4, "int8": 2},
    "SPACE_TO_DEPTH": {"int8": 2},
    "SQUARED_DIFFERENCE": {"int8": 2},
    "SQUEEZE": {"string": 2},
    "STRIDED_SLICE": {"uint32": 7, "string": 5, "bool": 3, "int8": 2},
    "SUB": {"int64": 4, "int16": 5, "int8": 2},
    "SUM": {"int8": 2, "int16": 2},
    "TANH": {"int16": 3, "int8": 2},
    "TILE": {"int8": 3, "string": 2},
    "TOPK_V2": {"int16": 3, "int8": 2},
    "TRANSPOSE": {"int16": 5, "bool": 3, "int8": 2},
    "UNPACK": {"int16": 4, "bool": 3, "int8": 2, "uint8": 2},
}
_BROADCASTS_ABOVE_RANK_4 = {"SUB": 3, "DIV": 2, "MAXIMUM": 3, "MINIMUM": 3}
_ABOVE_RANK_4 = {"SLICE": 5, "STRIDED_SLICE": 4, "PAD": 4, "PADV2": 4, "TRANSPOSE": 4}
_NOT_RANK_4 = {"SPACE_TO_BATCH_ND": 3, "BATCH_TO_SPACE_ND": 3}
_CAST_TYPES = {
    "uint16": 4, "int4": 6, "int8": 3, "float64": 5, "float16": 5, "bfloat16": 7,
}  # fmt: skip


def lowest_version(operation: Operation) -> int:
    """The lowest version of ``operation``'s code that defines its signature."""
    special = _SPECIAL.get(operation.code)
    if special is not None:
        return special(operation)
    x = _deciding_input(operation)
    if x is None:
        return 1
    version = _BY_DTYPE.get(operation.code, {}).get(x.dtype, 1)
    if x.rank > 4:
        version = max(version, _ABOVE_RANK_4.get(operation.code, 1))
        version = max(version, 6 if operation.code == "TRANSPOSE" and x.rank > 5 else 1)
    if x.rank != 4:
        version = max(version, _NOT_RANK_4.get(operation.code, 1))
    if operation.code in _BROADCASTS_ABOVE_RANK_4 and _broadcasts_above_rank_4(operation):
        version = max(version, _BROADCASTS_ABOVE_RANK_4[operation.code])
    return version


def _deciding_input(operation: Operation) -> Tensor | None:
    place = {"SELECT": 1, "SELECT_V2": 1, "SPLIT": 1}.get(operation.code, 0)
    return operation.inputs[place] if len(operation.inputs) > place else None


def _broadcasts_above_rank_4(operation: Operation) -> bool:
    shapes = [tensor.shape for tensor in operation.inputs if tensor is not None]
    return len(set(shapes)) > 1 and max(len(shape) for shape in shapes) > 4


def _types(operation: Operation, count: int) -> tuple[str, ...]:
    return tuple("" if tensor is None else tensor.dtype for tensor in operation.inputs[:count])


def _per_channel(operation: Operation, place: int) -> bool:
    tensor = operation.inputs[place]
    return tensor is not None and tensor.quantization is not None and len(tensor.quantization.scale) > 1


def _conv_2d(operation: Operation) -> int:
    x, w = operation.inputs[:2]
    assert x is not None
    assert w is not None
    if x.shape[3] != w.shape[3]:
        return 6  # grouped
    versions = {("int16", "int8"): 4, ("int8", "int8"): 3, ("int8", "int4"): 7}
    if _types(operation, 2) == ("float32", "int8"):
        return 5 if _per_channel(operation, 1) else 2
    return versions.get((x.dtype, w.dtype), 1)


def _depthwise(operation: Operation) -> int:
    kinds = _types(operation, 2)
    if kinds == ("float32", "int8"):
        return 6 if _per_channel(operation, 1) else 4
    dilated = operation.options.get("dilation_w_factor", 1) != 1 or operation.options.get("dilation_h_factor", 1) != 1
    versions = {("int16", "int8"): 5, ("int8", "int8"): 3, ("int8", "int4"): 7}
    return versions.get((kinds[0], kinds[1]), 2 if dilated else 1)


def _fully_connected(operation: Operation) -> int:
    kinds = _types(operation, 2)
    if kinds[0] in ("float32", "int8", "int16") and kinds[1] == "int8" and _per_channel(operation, 1):
        return 12  # older kernels read the first channel's scale only
    if kinds == ("int16", "int8"):
        return 7
    if kinds[1] == "int4":
        return 10
    if kinds == ("float32", "int8"):
        return 9 if operation.options.get("asymmetric_quantize_inputs") else 3
    if len(operation.inputs) == 2 or operation.inputs[2] is None:
        return 6
    if operation.options.get("keep_num_dims"):
        return 5
    return 4 if kinds[0] == "int8" else 1


def _gather(operation: Operation) -> int:
    kinds = _types(operation, 2)
    if kinds[0] == "int4":
        return 7
    if kinds[1] == "int16":
        return 6
    if operation.options.get("batch_dims", 0) != 0:
        return 5
    return {"int16": 4, "bool": 3, "int8": 2}.get(kinds[0], 1)


def _transpose_conv(operation: Operation) -> int:
    if operation.options.get("fused_activation_function", 0):
        return 4
    if len(operation.inputs) == 4 and operation.inputs[3] is not None:
        return 3
    return 2 if _types(operation, 2)[1] == "int8" else 1


def _split(operation: Operation) -> int:
    return {"int16": 4, "int32": 3, "int8": 2}.get(_types(operation, 2)[1], 1)


def _split_v(operation: Operation) -> int:
    return 2 if _types(operation, 1)[0] in ("int8", "int16") else 1


def _resize(operation: Operation) -> int:
    kind = _types(operation, 1)[0]
    if kind == "int16":
        return 4
    nearest = operation.code == "RESIZE_NEAREST_NEIGHBOR"
    if operation.options.get("half_pixel_centers") or (nearest and operation.options.get("align_corners")):
        return 3
    return 2 if kind == "int8" else 1


def _mul(operation: Operation) -> int:
    x, y = operation.inputs[:2]
    assert x is not None
    assert y is not None
    out = operation.outputs[0]
    if x.dtype == "int16" and x.is_quantized:
        return 4
    if x.quantization and y.quantization and out.quantization:
        ratio = x.quantization.scale[0] * y.quantization.scale[0] / out.quantization.scale[0]
        return 3 if ratio >= 1 else 2 if x.dtype == "int8" else 1
    return _BY_DTYPE["MUL"].get(x.dtype, 1)


def _add(operation: Operation) -> int:
    x = operation.inputs[0]
    assert x is not None
    return 3 if x.dtype == "int16" and x.is_quantized else _BY_DTYPE["ADD"].get(x.dtype, 1)


def _abs(operation: Operation) -> int:
    x = operation.inputs[0]
    assert x is not None
    return 3 if x.dtype == "int16" and x.is_quantized else _BY_DTYPE["ABS"].get(x.dtype, 1)


def _quantize(operation: Operation) -> int:
    out = operation.outputs[0]
    if "int4" in (*_types(operation, 1), out.dtype):
        return 4
    if out.quantization is not None and len(out.quantization.scale) > 1:
        return 3
    return 2 if "int16" in (*_types(operation, 1), out.dtype) else 1


def _dequantize(operation: Operation) -> int:
    kind = _types(operation, 1)[0]
    if kind == "int8" and _per_channel(operation, 0):
        return 5
    return _BY_DTYPE["DEQUANTIZE"].get(kind, 1)


def _cast(operation: Operation) -> int:
    kinds = (*_types(operation, 1), operation.outputs[0].dtype)
    return max((_CAST_TYPES.get(kind, 1) for kind in kinds), default=1)


def _fill(operation: Operation) -> int:
    kinds = {"float16": 4, "int8": 3, "int16": 3, "bool": 2, "string": 2}
    return kinds.get(_types(operation, 2)[1], 1)


def _broadcast_to(operation: Operation) -> int:
    return max(2, _BY_DTYPE["BROADCAST_TO"].get(_types(operation, 1)[0], 2))


def _strided_slice(operation: Operation) -> int:
    x = operation.inputs[0]
    assert x is not None
    version = _BY_DTYPE["STRIDED_SLICE"].get(x.dtype, 1)
    if operation.options.get("ellipsis_mask") or operation.options.get("new_axis_mask"):
        version = max(version, 6)
    return max(version, 4) if x.rank > 4 else version


_SPECIAL = {
    "ABS": _abs,
    "ADD": _add,
    "BROADCAST_TO": _broadcast_to,
    "CAST": _cast,
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEQUANTIZE": _dequantize,
    "FILL": _fill,
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "MUL": _mul,
    "QUANTIZE": _quantize,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE_CONV": _transpose_conv,
}

"""Element types as model servers call them."""

from __future__ import annotations

from convertkit.artifact import TensorSpec
from convertkit.errors import Unsupported

_NAMES = {
    "bool": ("BOOL", "TYPE_BOOL"),
    "uint8": ("UINT8", "TYPE_UINT8"),
    "uint16": ("UINT16", "TYPE_UINT16"),
    "uint32": ("UINT32", "TYPE_UINT32"),
    "uint64": ("UINT64", "TYPE_UINT64"),
    "int8": ("INT8", "TYPE_INT8"),
    "int16": ("INT16", "TYPE_INT16"),
    "int32": ("INT32", "TYPE_INT32"),
    "int64": ("INT64", "TYPE_INT64"),
    "float16": ("FP16", "TYPE_FP16"),
    "float32": ("FP32", "TYPE_FP32"),
    "float64": ("FP64", "TYPE_FP64"),
    "string": ("BYTES", "TYPE_STRING"),
    "bfloat16": ("BF16", "TYPE_BF16"),
}
"""By our name: the one of the Open Inference Protocol (version 2), and the one of Triton's model configuration."""
_NOT_IN_JSON = frozenset({"float16", "bfloat16"})
"""Whose values the protocol has no JSON for: they travel as raw bytes alone."""


def protocol_type(spec: TensorSpec) -> str:
    """How the Open Inference Protocol calls the dtype; ``Unsupported`` for one that its JSON does not have."""
    if spec.dtype not in _NAMES or spec.dtype in _NOT_IN_JSON:
        raise Unsupported(f"{spec.dtype} has no JSON in the Open Inference Protocol", subject=spec.name)
    return _NAMES[spec.dtype][0]


def triton_type(spec: TensorSpec) -> str:
    """How Triton's model configuration calls the dtype; ``Unsupported`` for one that it does not have."""
    if spec.dtype not in _NAMES:
        raise Unsupported(f"Triton has no element type for {spec.dtype}", subject=spec.name)
    return _NAMES[spec.dtype][1]


def numpy_type(protocol: str) -> str:
    """Our name of a type of the protocol; ``KeyError`` for an unknown one."""
    return {theirs: ours for ours, (theirs, _) in _NAMES.items()}[protocol]

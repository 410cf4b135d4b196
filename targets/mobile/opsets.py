"""Whether an app's ONNX Runtime surely knows a model's operators."""

from __future__ import annotations

import re

from convertkit.errors import Unsupported
from convertkit.targets.mobile.formats import format_of
from convertkit.targets.ort_mobile import reading

COMPARED_WITH = "1.31.1"
_LATER = """BranchwiseRMSNorm CausalConvWithState DynamicSparseAttention EngramGate GatedAdd GatedDeltaNet GatedRMSNorm
    HyperConnectionPostMix HyperConnectionPreMix LinearAttention LinearAttentionGate MRotaryEmbedding
    MatMulBlockQuantizedFp4Weight MatMulBlockQuantizedFp8Weight MatMulNBitsMlp MatMulNBitsQkv NGramHashMapping
    PackedSparseAttentionIndexer ScaledSiLU SparseAttentionIndexer SparsePagedAttention
    VarlenCausalConvWithState VarlenNGramHashMapping"""
LATER = frozenset(re.findall(r"\w+", _LATER))
"""Operators of ONNX Runtime's own that :data:`COMPARED_WITH` registers and 1.24.2, the oldest library of a package,
does not.  Source: ``get_all_operator_schema`` of both releases."""


def check_opset(model: bytes, most: int | None, library: str) -> None:
    """``Unsupported`` for an ONNX or ``.ort`` model of a newer opset than ``most``; None is for other files.

    A ``.ort`` file holds fused operators, too, of which ``library`` has to know each.
    """
    if most is None:
        return
    is_ort = format_of(model) == "ort"
    opset = reading.opset(model) if is_ort else _opset(model)
    if opset > most:
        raise Unsupported(
            f"the model is of opset {opset}, and {library} surely knows {most}", ways_out=(f"--opset {most}",)
        )
    if later := sorted(reading.fused(model) & LATER if is_ort else ()):
        raise Unsupported(
            f"ONNX Runtime fused operators to {', '.join(later)}, which {library} may not know",
            ways_out=("the runtime onnxruntime, whose .onnx is fused on the phone",),
        )


def _opset(model: bytes) -> int:
    import onnx

    proto = onnx.load_from_string(model)
    return max((each.version for each in proto.opset_import if not each.domain), default=0)

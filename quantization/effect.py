"""What a quantization came to: the precision that was asked for, the one that the graph has, and where it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import onnx_ir as ir

from convertkit.profile import KEEP_FLOAT, QuantProfile
from convertkit.quantization.graph.work import PRODUCTS, multiply_adds
from convertkit.quantization.search.quality import Quality

Effective = Literal["int8", "int16x8", "mixed", "weights-only", "w8", "w4", "fp8", "fp16", "bf16", "float32"]
_MOSTLY = 0.95
"""The share of the multiply-adds from which on a model counts as one of integers, or of E4M3."""


def effect(model: ir.Model, requested: str, profile: QuantProfile) -> Mapping[str, object]:
    """``requested`` and ``effective`` precision, and the shares of multiply-adds that integers (or E4M3) compute.

    ``integer_macs_share`` includes ``on_the_fly_macs_share``: int8 weights, and activations that the target makes
    integers at each call.  Where only weights are stored, the target alone knows how it multiplies by them.
    """
    if requested not in ("int8", "int16x8", "fp8"):
        return {"requested": requested, "effective": _stored(model)}
    work = {"static": 0.0, "on the fly": 0.0, "float": 0.0}
    for node in model.graph:
        work[_computed(node, profile)] += multiply_adds(node)
    every = sum(work.values())
    static, dynamic = (work[key] / every if every else 0.0 for key in ("static", "on the fly"))
    if not every and any(node.op_type == "QuantizeLinear" for node in model.graph):
        static = 1.0
    became: Effective = "int8" if requested == "int8" else "int16x8"
    if requested == "fp8":
        became = "fp8" if static >= _MOSTLY else "mixed" if static else "float32"
    elif not static:
        became = "float32" if _stored(model) == "float32" else "weights-only"
    elif static + dynamic < _MOSTLY:
        became = "mixed"
    return {
        "requested": requested,
        "effective": became,
        "integer_macs_share": static + dynamic,
        "on_the_fly_macs_share": dynamic,
    }


def held_out(quality: Quality | None, *, is_all: bool = False) -> Mapping[str, object] | None:
    """The quality on held-out samples; ``seen`` where calibration has used them, too, being too few to be parted."""
    if quality is None:
        return None
    return {
        "samples": quality.samples,
        "seen": is_all,
        "snr_db": quality.snr_db,
        "snr_db_median": quality.median_db,
        "snr_db_p5": quality.p5_db,
        "agreement": quality.agreement,
        "expected_drop": quality.drop,
        "reconstruction_db": quality.reconstruction_db,
    }


def _stored(model: ir.Model) -> Effective:
    """The narrowest kind of weights, rows of a table that are looked up among them."""
    kinds = {v.dtype for v in model.graph.initializers.values() if any(map(_makes_real, _readers(v))) or _is_table(v)}
    narrow: dict[ir.DataType, Effective] = {
        ir.DataType.INT4: "w4",
        ir.DataType.INT8: "w8",
        ir.DataType.FLOAT16: "fp16",
        ir.DataType.BFLOAT16: "bf16",
    }
    kinds |= {v.dtype for node in model.graph for v in node.outputs} & {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
    return next((name for kind, name in narrow.items() if kind in kinds), "float32")


def _readers(value: ir.Value) -> list[ir.Node]:
    return [use.node for use in value.uses() if use.idx == 0]


def _is_table(value: ir.Value) -> bool:
    """Whether rows of a constant are looked up in integers, and made real behind that."""
    rows = [row for node in _readers(value) if node.op_type == "Gather" for row in node.outputs]
    return any(node.op_type == "DequantizeLinear" for row in rows for node in _readers(row))


def _makes_real(node: ir.Node) -> bool:
    """Whether a node makes a constant of few bits a float32 one."""
    source = node.inputs[0] if node.inputs else None
    return node.op_type in ("DequantizeLinear", "Cast") and source is not None and source.is_initializer()


def _computed(node: ir.Node, profile: QuantProfile) -> str:
    """How a matrix operator is computed; everything else has no multiply-adds."""
    if node.op_type not in PRODUCTS or node.domain or KEEP_FLOAT in node.metadata_props:
        return "float"
    makers = [value.producer() for value in node.inputs[:2] if value is not None]
    real = [maker for maker in makers if maker is None or maker.op_type != "DequantizeLinear"]
    stored = [maker for maker in makers if maker is not None and _makes_real(maker)]
    if not real and len(stored) < len(makers):
        return "static"
    return "on the fly" if stored and node.op_type in profile.dynamic else "float"

"""What OpenVINO's integer kernels take, measured in the graph that its CPU plugin executes.

The plugin reads a QuantizeLinear/DequantizeLinear pair as its own FakeQuantize and gives the operators below integer
kernels.  Activations may have a zero point everywhere but in transposed convolutions and in products of two
activations, which stay float with one: queries and keys have none.  Where no result lies on a tie, these kernels
compute the integers that the graph says.  A sum behind a convolution is fused into it and rounded once, so the
convolution's own result has no pair.

x86 without VNNI adds two products of an unsigned and a signed byte in 16 bits, and saturates: unless a file is for
processors with VNNI alone, no two weights that meet are greater together (``byte_sums``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convertkit.profile import MOVED, WEIGHTED, OpRule, QuantProfile
from convertkit.recipe import ExportOptions

_PLAIN = OpRule(float_output=True)

_INT8: Mapping[str, OpRule] = {
    **{kind: rule for kind, rule in WEIGHTED.items() if kind != "ConvTranspose"},
    **{kind: replace(WEIGHTED[kind], float_output=True) for kind in ("Conv", "Gemm", "MatMul")},
    "ConvTranspose.positive": replace(WEIGHTED["ConvTranspose"], float_output=True),
    "Add.maps": _PLAIN,
    "Sub.maps": _PLAIN,
    "AveragePool": OpRule(data=(0,)),
    "GlobalAveragePool": OpRule(data=(0,)),
    "ReduceMean.maps": OpRule(data=(0,)),
    **MOVED,
    "Resize.nearest": OpRule(data=(0,), same_scale=True),
}

_SCORES: Mapping[str, OpRule] = {
    "MatMul.scores": OpRule(data=(0, 1), constants=False, float_output=True, centered=True)
}
"""Queries times keys, of 8 bits both: only where products of such bytes may be asked for."""


def profile(options: ExportOptions, *, byte_sums: bool) -> QuantProfile:
    """The profile for ``options.precision``; without ``byte_sums`` for processors with VNNI alone."""
    if options.precision == "w8":
        return QuantProfile("openvino w8", "int8", False, WEIGHTED, bias="float32", weight_only=True)
    if options.precision == "w4":
        return QuantProfile(
            "openvino w4",
            "int8",
            False,
            WEIGHTED,
            weight="int4",
            weight_range=(-7, 7),
            bias="float32",
            weight_only=True,
            block=64,
        )
    return QuantProfile(
        "openvino int8" if byte_sums else "openvino int8 with VNNI",
        "int8",
        False,
        _INT8 if byte_sums else {**_INT8, **_SCORES},
        byte_sums="in a tap" if byte_sums else None,
        bias="float32",
        tie_free=True,
        tables=True,
        writes_float=True,
        fused_sums=True,
        fused_gates=True,
    )

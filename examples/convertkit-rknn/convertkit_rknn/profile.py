"""What RKNN-Toolkit2 reads as a quantized model: int8 with a zero point, weights per channel, biases in float.

Found by compiling and simulating: uint8 activations with int32 biases end the toolkit with an IndexError.  What stays
in float the NPU computes in float16, as the simulator does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convertkit.profile import MOVED, WEIGHTED, OpRule, QuantProfile
from convertkit.recipe import ExportOptions
from convertkit_rknn.long_strides import write_long_strides

_INT8: Mapping[str, OpRule] = {
    **WEIGHTED,
    "Conv": replace(WEIGHTED["Conv"], float_output=True),
    "MatMul.dynamic": OpRule(data=(0, 1)),
    "Add": OpRule(constants=False),
    "Mul": OpRule(constants=False),
    "SpaceToDepth": MOVED["Transpose"],
    "AveragePool": OpRule(data=(0,)),
    "GlobalAveragePool": OpRule(data=(0,)),
    **MOVED,
}

_STEPS = (-126, 126)
"""Of weights: 127 is what the toolkit does not take as it is, see :mod:`.weight_steps`."""


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    return QuantProfile(
        "rknn int8",
        "int8",
        False,
        _INT8,
        weight_range=_STEPS,
        bias="float32",
        tie_free=True,
        fused_sums=True,
        written_out=write_long_strides,
    )

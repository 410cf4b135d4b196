"""What XNNPACK's integer kernels take, by the partitioner of ExecuTorch 1.5.

Activations are int8 with a zero point, weights int8 per channel, and biases float, which the delegate makes integers of
the product's scale.  An operator is delegated in integers where each of its inputs comes from a DequantizeLinear and
its only reader is a QuantizeLinear; average pools and activation functions of several steps stay float.
"""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.profile import MOVED, WEIGHTED, OpRule, QuantProfile
from convertkit.recipe import ExportOptions

_VALUES = OpRule(constants=False)

_INT8: Mapping[str, OpRule] = {
    **WEIGHTED,
    "Add": _VALUES,
    "Sub": _VALUES,
    "Mul": _VALUES,
    "GlobalAveragePool": OpRule(data=(0,)),
    **MOVED,
}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    return QuantProfile("executorch int8", "int8", False, _INT8, bias="float32", tie_free=True)

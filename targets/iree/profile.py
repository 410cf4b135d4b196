"""What becomes integers for IREE: it executes Q/DQ graphs as they stand, and stores int8 weights as such.

With zero points, and scales that leave no tie, the module computes the integers that the graph says.
"""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.profile import MOVED, WEIGHTED, OpRule, QuantProfile
from convertkit.recipe import ExportOptions

_PLAIN = OpRule()

_INT8: Mapping[str, OpRule] = {
    **WEIGHTED,
    "MatMul.dynamic": OpRule(data=(0, 1)),
    "Add": _PLAIN,
    "Mul": _PLAIN,
    "AveragePool": OpRule(data=(0,)),
    "GlobalAveragePool": OpRule(data=(0,)),
    **MOVED,
}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    return QuantProfile("iree int8", "int8", False, _INT8, tie_free=True)

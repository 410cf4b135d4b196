"""Which weights MNN stores as integers: those of convolutions and of products with a stored matrix.

Its compression is symmetric, one scale for each channel of the output, from -127 or -7: the largest weight of each
channel is one of these ends.
"""

from __future__ import annotations

from convertkit.profile import WEIGHTED, QuantProfile
from convertkit.recipe import ExportOptions

_WEIGHTED = {kind: rule for kind, rule in WEIGHTED.items() if kind != "ConvTranspose"}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    if options.precision == "w4":
        return QuantProfile(
            "mnn w4", "int8", False, _WEIGHTED, weight="int4", weight_range=(-7, 7), bias="float32", weight_only=True,
            block=64, integer_rows=False,
        )  # fmt: skip
    return QuantProfile("mnn w8", "int8", False, _WEIGHTED, bias="float32", weight_only=True, integer_rows=False)

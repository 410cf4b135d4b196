"""Which weights become integers: those that a table of 256 numbers holds, so one scale for the whole tensor."""

from __future__ import annotations

from dataclasses import replace

from convertkit.profile import WEIGHTED, QuantProfile
from convertkit.recipe import ExportOptions

_TABLES = {kind: replace(rule, per_tensor=True) for kind, rule in WEIGHTED.items()}


def profile(options: ExportOptions) -> QuantProfile:
    """The profile for ``options.precision``."""
    return QuantProfile("ncnn w8", "int8", False, _TABLES, bias="float32", weight_only=True, integer_rows=False)

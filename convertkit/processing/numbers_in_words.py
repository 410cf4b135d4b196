"""Numbers among the words of ``--preprocess`` and ``--postprocess``."""

from __future__ import annotations

import math


def number(text: str) -> float:
    """NaN for what is not a finite number."""
    try:
        found = float(text)
    except ValueError:
        return math.nan
    return found if math.isfinite(found) else math.nan

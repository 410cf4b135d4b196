"""Small integers in int32."""

from __future__ import annotations

import numpy as np

from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.tensor import Tensor


def wrapped(b: Builder, x: Tensor, dtype: str) -> Tensor:
    """int32 numbers as an integer type of less bits holds them: modulo its range."""
    kind = np.iinfo(dtype)
    count = b.full(float(kind.max) - float(kind.min) + 1, x)
    if kind.min == 0:
        return b.op("mod", x=x, y=count)
    low = b.full(float(kind.min), x)
    return b.op("add", x=b.op("mod", x=b.op("sub", x=x, y=low), y=count), y=low)

"""Operators that the twin computes itself, by domain and name."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.onnx.twin.call import Handler
from convertkit.onnx.twin.handlers import (
    choosing,
    control,
    convolutions,
    elementary,
    norms,
    pooling,
    products,
    quantized,
    recurrent,
    reductions,
    resizing,
    sequences,
    types,
)

_MODULES = (
    choosing, control, convolutions, elementary, norms, pooling, products, quantized, recurrent, reductions, resizing,
    sequences, types,
)  # fmt: skip
HANDLERS: Mapping[tuple[str, str], Handler] = {
    ("", name): handler for module in _MODULES for name, handler in module.HANDLERS.items()
}

"""Weights stored as float16."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from convertkit.onnx.casts import cast_node
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.profile import STAYS_FLOAT
from convertkit.quantization.graph.units import constant, is_constant, is_float
from convertkit.quantization.weights.short import FLOAT16

_LEAST_NORMAL = 2.0**-14
_LEAST_WEIGHTS = 64


def store_half(model: ir.Model, wanted: Callable[[ir.Value], bool] | None = None) -> tuple[str, ...]:
    """Weights as float16 behind a Cast, in place; returns the names of those that stay float32, being out of range.

    ``wanted`` says which of them; without it all that have 64 numbers.
    """
    kept = []
    for value in tuple(model.graph.initializers.values()):
        if not is_constant(value) or not is_float(value) or constant(value).size < _LEAST_WEIGHTS:
            continue
        if all(STAYS_FLOAT in use.node.metadata_props for use in value.uses()):
            continue
        if wanted is not None and not wanted(value):
            continue
        if not fits_half(constant(value)):
            kept.append(str(value.name))
            continue
        uses = tuple(value.uses())
        name = str(value.name)
        stored = add_constant(model.graph, f"{name}_half", constant(value).astype(np.float16))
        cast = cast_node(stored, ir.DataType.FLOAT, f"{name}_float")
        model.graph.insert_before(next(iter(model.graph)), cast)
        for use in uses:
            use.node.replace_input_with(use.idx, cast.outputs[0])
    drop_unused(model.graph)
    return tuple(kept)


def fits_half(array: np.typing.NDArray[np.floating]) -> bool:
    """Whether float16 keeps the array: no overflow, and nothing of weight vanishes among subnormals."""
    magnitude = np.abs(array)
    if not np.isfinite(array).all() or magnitude.max(initial=0.0) > FLOAT16.greatest:
        return False
    small = (magnitude > 0) & (magnitude < _LEAST_NORMAL)
    # Small weights may lose digits beside large ones; a tensor that is small as a whole may not.
    return not small.any() or magnitude.max() > 64 * _LEAST_NORMAL

"""Weights as places in a table: MIL's ``constexpr_lut_to_dense``.

Source: coremltools, mil/ops/defs, iOS16/constexpr_ops.py and iOS18/compression.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from coremltools.converters.mil.mil import types

from convertkit.artifact import Array
from convertkit.targets.coreml.palettes import distinct, places_in

TABLED: Mapping[str, tuple[str, ...]] = {
    "conv": ("weight",),
    "conv_transpose": ("weight",),
    "linear": ("weight",),
    "matmul": ("x", "y"),
    "gather": ("x",),
}
"""Operations and their arguments that may be tables."""
_MARKS = {2: types.np_uint2_dtype, 4: types.np_uint4_dtype, 6: types.np_uint6_dtype, 8: np.dtype(np.uint8)}


def packed(array: Array, table: Array, bits: int, *, whole: bool) -> dict[str, Array]:
    """Arguments of the operation: of iOS 18, with places in the weight's shape, where ``whole``, else in bytes."""
    places = places_in(array, distinct(table))
    if whole:
        mark = _MARKS[bits]
        narrow = places.astype(np.uint8).astype(mark)
        return {"indices": narrow, "lut": table.reshape(*[1] * array.ndim, -1, 1)}
    each = (places.reshape(-1, 1) >> np.arange(bits)) & 1
    raw = np.packbits(each.astype(np.uint8).reshape(-1), bitorder="little")
    return {"indices": raw, "lut": table, "shape": np.array(array.shape, np.uint32)}

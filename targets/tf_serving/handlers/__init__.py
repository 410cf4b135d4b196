"""TFLite's operators as TensorFlow's: a handler each."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.targets.tf_serving.call import Handler
from convertkit.targets.tf_serving.handlers.control import CONTROL
from convertkit.targets.tf_serving.handlers.elementwise import ELEMENTWISE
from convertkit.targets.tf_serving.handlers.indexing import INDEXING
from convertkit.targets.tf_serving.handlers.moves import MOVES
from convertkit.targets.tf_serving.handlers.products import PRODUCTS
from convertkit.targets.tf_serving.handlers.quantized import QUANTIZED
from convertkit.targets.tf_serving.handlers.reductions import REDUCTIONS
from convertkit.targets.tf_serving.handlers.windows import WINDOWS

HANDLERS: Mapping[str, Handler] = {
    **ELEMENTWISE,
    **REDUCTIONS,
    **MOVES,
    **INDEXING,
    **PRODUCTS,
    **WINDOWS,
    **CONTROL,
    **QUANTIZED,
}

CONSTANTS: Mapping[str, tuple[int, ...]] = {
    "EXPAND_DIMS": (1,), "SPLIT": (0,), "SPLIT_V": (1, 2), "ARG_MAX": (1,), "ARG_MIN": (1,),
    **dict.fromkeys(("SUM", "MEAN", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD", "REDUCE_ALL", "REDUCE_ANY"), (1,)),
}  # fmt: skip
"""Inputs that a handler asks of ``Call.constant``: these have to be stored in the file."""

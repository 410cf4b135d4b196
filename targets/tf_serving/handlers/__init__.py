"""TFLite's operators as TensorFlow's: a handler each."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.targets.tf_serving.call import Handler
from convertkit.targets.tf_serving.handlers.control import CONTROL
from convertkit.targets.tf_serving.handlers.elementwise import ELEMENTWISE
from convertkit.targets.tf_serving.handlers.indexing import INDEXING
from convertkit.targets.tf_serving.handlers.moves import MOVES
from convertkit.targets.tf_serving.handlers.products import PRODUCTS
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
}

"""TFLite's operators as TensorFlow's: a handler each."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.targets.tf_serving.call import Handler
from convertkit.targets.tf_serving.operators.control import CONTROL
from convertkit.targets.tf_serving.operators.elementwise import ELEMENTWISE
from convertkit.targets.tf_serving.operators.indexing import INDEXING
from convertkit.targets.tf_serving.operators.moves import MOVES
from convertkit.targets.tf_serving.operators.products import PRODUCTS
from convertkit.targets.tf_serving.operators.reductions import REDUCTIONS
from convertkit.targets.tf_serving.operators.windows import WINDOWS

HANDLERS: Mapping[str, Handler] = {
    **ELEMENTWISE,
    **REDUCTIONS,
    **MOVES,
    **INDEXING,
    **PRODUCTS,
    **WINDOWS,
    **CONTROL,
}

"""MXNet's operators in NumPy and float64, from its documentation and sources: what the graph is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convertkit.artifact import Array
from convertkit.converters.mxnet.attributes import Attributes
from convertkit.converters.mxnet.evaluate.elements import ELEMENTS
from convertkit.converters.mxnet.evaluate.layers import LAYERS
from convertkit.converters.mxnet.evaluate.moves import MOVES
from convertkit.converters.mxnet.evaluate.recurrent import RECURRENT

Results = Array | tuple[Array, ...]
EVALUATORS: Mapping[str, Callable[..., Results]] = {**ELEMENTS, **LAYERS, **MOVES, **RECURRENT}
"""By the operator's name: attributes and operands in, results out."""


def evaluated(kind: str, attributes: Attributes, operands: list[Array]) -> tuple[Array, ...]:
    """All results of one node."""
    found = EVALUATORS[kind](attributes, *operands)
    return found if isinstance(found, tuple) else (found,)

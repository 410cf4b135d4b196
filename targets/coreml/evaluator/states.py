"""State between calls: what is read of a buffer.  Writing one is :class:`Evaluator`'s, which holds them."""

from __future__ import annotations

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table

states = Table()


@states.computes("read_state")
def read_state(input: Array) -> Array:
    """What the buffer holds.  Source: coremltools, ``ops/defs/iOS18/states.py``."""
    return input

"""State between calls: buffers, and what is read of one.  Writing one is :class:`Evaluator`'s, which holds them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.table import Table
from convertkit.targets.coreml.package.program import Block, Feature

states = Table()


@states.computes("read_state")
def read_state(input: Array) -> Array:
    """What the buffer holds.  Source: coremltools, ``ops/defs/iOS18/states.py``."""
    return input


def fresh(block: Block, states: Iterable[Feature]) -> dict[str, Array]:
    """State as ``makeState()`` gives it: zeros, by the buffers' names."""
    kinds = dict(block.inputs)
    return {
        state.name: np.zeros([size or 0 for size in kinds[state.name].shape], kinds[state.name].dtype)
        for state in states
    }

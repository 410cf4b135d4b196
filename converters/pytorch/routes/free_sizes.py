"""Free sizes of a model's inputs and of its state, as the ladder asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.pytorch.model.leaves import Leaf


def is_dynamic(leaves: Sequence[Leaf]) -> bool:
    """Whether a size of the inputs is free."""
    return any(isinstance(dim, str) for leaf in leaves for dim in leaf.shape)


def implied(leaves: Sequence[Leaf], fixed: Sequence[Leaf]) -> dict[str, int]:
    """What ``fixed`` says of the sizes that are free in ``leaves`` and that the user did not give."""
    return {
        dim: size
        for leaf, before in zip(leaves, fixed, strict=True)
        for dim, size in zip(leaf.shape, before.shape, strict=True)
        if isinstance(dim, str) and isinstance(size, int) and not leaf.given
    }


def at_fixed(fixed: Sequence[Leaf], initial: Mapping[str, Array]) -> dict[str, Array]:
    """State for a batch of one, spread to the shapes of ``fixed``."""
    shapes = {leaf.name: [dim for dim in leaf.shape if isinstance(dim, int)] for leaf in fixed}
    return {name: np.array(np.broadcast_to(value, shapes[name])) for name, value in initial.items()}

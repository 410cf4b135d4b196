"""A feed as an artifact takes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array, TensorSpec
from convertkit.errors import FeedError
from convertkit.stage import Feed


def encoded(inputs: Sequence[TensorSpec], feed: Feed, fixed: str | None = None) -> dict[str, Array]:
    """The arrays of ``inputs`` by name, in the artifact's own element types.

    An artifact of fixed sizes is given by what to call it, in ``fixed``: then shapes are checked.  Raises ``FeedError``
    for an array that is missing or has another shape.
    """
    found = dict[str, Array]()
    for spec in inputs:
        if spec.name not in feed:
            raise FeedError(f"the feed has no array for input {spec.name}")
        found[spec.name] = value = spec.encode(np.asarray(feed[spec.name]))
        if fixed is not None and value.shape != spec.shape:
            raise FeedError(f"input {spec.name} has the shape {value.shape}, the {fixed} {spec.shape}")
    return found

"""Golden vectors: the inputs that a test on a device is given, from the user's samples or drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.parity.feeds import generated_feed
from convertkit.stage import Feed, FeedSource
from convertkit.state import initial_state

MOST_VECTORS = 3


@dataclass(frozen=True, slots=True)
class Vector:
    """One call: arrays by name, as what the test gives them to has them."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    @property
    def size_bytes(self) -> int:
        return sum(each.nbytes for each in (*self.inputs.values(), *self.outputs.values()))


def golden_feeds(artifact: Artifact, calibration: FeedSource | None, seed: int) -> Iterator[dict[str, Array]]:
    """Up to three feeds of all inputs in the source's layout, state at its start: samples, else generated ones."""
    feeds = _generated(artifact.inputs, seed) if calibration is None else islice(calibration, MOST_VECTORS)
    states = initial_state(artifact)
    for feed in islice(feeds, MOST_VECTORS):
        yield {name: np.asarray(value) for name, value in {**states, **feed}.items()}


def _generated(inputs: Sequence[TensorSpec], seed: int) -> Iterator[Feed]:
    """Real numbers for an integer interface, too; whole numbers that nobody has bounded are 0 and 1."""
    drawn = [replace(spec, dtype="float32") if spec.quantization else spec for spec in inputs if not spec.is_state]
    bounded = all(spec.value_range or "float" in spec.dtype for spec in drawn)
    rng = np.random.default_rng(seed)
    for kind in range(MOST_VECTORS):
        yield generated_feed(drawn, {}, rng, kind if bounded else 0)

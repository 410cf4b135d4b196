"""Golden vectors: the inputs that a test on a device is given, from the user's samples or drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import TypeVar

import numpy as np

from convertkit.artifact import Array, Artifact, TensorSpec
from convertkit.errors import SourceError, ToolError
from convertkit.parity.feeds import generated_feed
from convertkit.stage import Feed
from convertkit.state import initial_state

T = TypeVar("T")
MOST_VECTORS = 3


@dataclass(frozen=True, slots=True)
class Vector:
    """One call: arrays by name, as what the test gives them to has them."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]

    @property
    def size_bytes(self) -> int:
        return sum(each.nbytes for each in (*self.inputs.values(), *self.outputs.values()))


def golden_feeds(
    artifact: Artifact, calibration: Iterable[Feed] | None, seed: int, most: int = MOST_VECTORS
) -> Iterator[dict[str, Array]]:
    """Up to ``most`` feeds of all inputs in the source's layout, state at its start: samples, else generated ones."""
    feeds = _generated(artifact.inputs, seed) if calibration is None else iter(calibration)
    states = initial_state(artifact)
    for feed in islice(feeds, most):
        yield {name: np.asarray(value) for name, value in {**states, **feed}.items()}


def answered(
    artifact: Artifact,
    calibration: Iterable[Feed] | None,
    seed: int,
    run: Callable[[dict[str, Array]], T],
    most: int = MOST_VECTORS,
) -> Iterator[tuple[dict[str, Array], T]]:
    """The feeds of :func:`golden_feeds`, each with what ``run`` gives for it.

    Where the model fails on a generated feed, whole numbers that nobody has bounded become 1 in it, as a divisor has to
    be other than 0; what ``run`` raises then is raised, and what it raises for a sample.
    """
    for feed in golden_feeds(artifact, calibration, seed, most):
        try:
            got = run(feed)
        except (SourceError, ToolError):
            if calibration is not None:
                raise
            feed = with_ones(artifact.inputs, feed)  # noqa: PLW2901 - it takes the place of the other
            got = run(feed)
        yield feed, got


def with_ones(inputs: Sequence[TensorSpec], feed: Mapping[str, Array]) -> dict[str, Array]:
    """``feed`` with 1 in place of all whole numbers that nobody has bounded."""
    free = {spec.name for spec in inputs if not (spec.is_state or spec.value_range or spec.quantization)}
    return {
        name: np.ones_like(value) if name in free and value.dtype.kind in "iu" else value
        for name, value in feed.items()
    }


def _generated(inputs: Sequence[TensorSpec], seed: int) -> Iterator[Feed]:
    """Real numbers for an integer interface, too; whole numbers that nobody has bounded are 0 and 1."""
    drawn = [replace(spec, dtype="float32") if spec.quantization else spec for spec in inputs if not spec.is_state]
    bounded = all(spec.value_range or "float" in spec.dtype for spec in drawn)
    rng = np.random.default_rng(seed)
    for kind in count():
        yield generated_feed(drawn, {}, rng, kind % MOST_VECTORS if bounded else 0)

"""Running a model from its fresh state on generated inputs, whatever earlier runs did to it."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch.describe.embedding_bags import has_bags, offsets_of
from convertkit.converters.pytorch.model.attributes import Path, read, restore, snapshot, write
from convertkit.converters.pytorch.model.check_inputs import check_feed
from convertkit.converters.pytorch.model.failures import brief, way_without_gpu
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.provenance import user_line
from convertkit.converters.pytorch.model.state import Session, Slot, check_start, find_slots, lifted
from convertkit.converters.pytorch.model.subject import Subject
from convertkit.errors import ConvertKitError, SourceError
from convertkit.parity.feeds import generated_feed
from convertkit.stage import Feed


class Prober:
    """One model and its fresh state; ``seed`` is that of the feeds that choose a route, on which it is run."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject = subject
        self.fresh: Mapping[Path, Any] = snapshot(subject)
        self._seed = seed
        self._results: dict[_Call, dict[str, Array]] = {}

    def run(
        self, leaves: Sequence[Leaf], sizes: Mapping[str, int], turn: int, *, keep: bool = False
    ) -> dict[str, Array]:
        """Outputs for a check feed; ``keep`` leaves the state as the call made it."""
        feed = check_feed(leaves, sizes, self._seed, turn)
        try:
            with told(feed):
                outputs = self.subject.compute(leaves, feed)
            self._results[_call(leaves, sizes, turn)] = outputs
            return outputs
        finally:
            if not keep:
                restore(self.subject, self.fresh)

    def output_names(self, leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> tuple[str, ...]:
        """The names that the model itself gives its outputs, which inputs may have, too."""
        try:
            return self.subject.output_names(leaves, check_feed(leaves, sizes, self._seed, 0))
        finally:
            restore(self.subject, self.fresh)

    def with_offsets(self, leaves: tuple[Leaf, ...], sizes: Mapping[str, int]) -> tuple[Leaf, ...]:
        """The inputs, those that say where bags begin drawn as such."""
        if not has_bags(self.subject):
            return leaves
        try:
            return offsets_of(self.subject, leaves, check_feed(leaves, sizes, self._seed, 0))
        finally:
            restore(self.subject, self.fresh)

    def known(self, leaves: Sequence[Leaf], sizes: Mapping[str, int], turn: int) -> dict[str, Array] | None:
        """What a model without state is known to compute for a check feed, None where it has not run on it."""
        return self._results.get(_call(leaves, sizes, turn))

    def slots(self, leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> tuple[Slot, ...]:
        """Attributes that calls at these sizes change, without what a call makes for itself and keeps."""
        try:
            slots = find_slots(self.subject, lambda turn: self.run(leaves, sizes, turn, keep=True))
        finally:
            restore(self.subject, self.fresh)
        made = [slot for slot in slots if slot.unset or slot.path not in self.fresh]
        if not made or not self._forgets(leaves, sizes):
            return slots
        return tuple(slot for slot in slots if slot not in made)

    def _forgets(self, leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> bool:
        """Whether calls compute after others what they compute first."""
        turns = range(1, 3)
        try:
            first = [self.run(leaves, sizes, turn) for turn in turns]
            self.run(leaves, sizes, 0, keep=True)
            later = [self.run(leaves, sizes, turn, keep=True) for turn in turns]
        finally:
            restore(self.subject, self.fresh)
        return all(map(_same_outputs, first, later))

    def sequence(
        self, leaves: Sequence[Leaf], slots: Sequence[Slot], feeds: Sequence[Feed]
    ) -> tuple[list[dict[str, Array]], dict[Path, Any]]:
        """Outputs and states of calls one after the other, and what the settled numbers are at their end."""
        session = Session(self.subject, slots)
        every = (*leaves, *(slot.leaf() for slot in lifted(slots)))
        outputs = []
        try:
            for feed in feeds:
                with told(feed):
                    outputs.append(session.run(every, feed))
            constants = [slot.path for slot in slots if slot.constant is not None]
            return outputs, {path: read(self.subject.module, path) for path in constants}
        finally:
            restore(self.subject, self.fresh)

    def depends(self, leaves: Sequence[Leaf], sizes: Mapping[str, int], slot: Slot) -> bool:
        """Whether a call's results depend on what the slot held before it: else it is not state, only written.

        Raises ``Unsupported`` where they do and there was nothing before the first call.
        """
        matters = self._matters(leaves, sizes, slot)
        if matters:
            check_start(slot, self.fresh)
        return matters

    def _matters(self, leaves: Sequence[Leaf], sizes: Mapping[str, int], slot: Slot) -> bool:
        if slot.number or slot.dtype[:5] not in ("float", "int32", "int64"):
            return True
        self.run(leaves, sizes, 0, keep=True)
        settled = snapshot(self.subject)
        expected = self.run(leaves, sizes, 1, keep=True), read(self.subject.module, slot.path)
        restore(self.subject, settled)
        write(self.subject.module, slot.path, torch.full_like(read(self.subject.module, slot.path), 7))
        got = self.run(leaves, sizes, 1, keep=True), read(self.subject.module, slot.path)
        restore(self.subject, self.fresh)
        return not (torch.equal(expected[1], got[1]) and _same_outputs(expected[0], got[0]))


_Call = tuple[int, tuple[object, ...]]
"""All that a check feed depends on, within one export."""


def _call(leaves: Sequence[Leaf], sizes: Mapping[str, int], turn: int) -> _Call:
    return turn, tuple(
        (leaf.name, leaf.with_dims(sizes).shape, leaf.dtype, leaf.value_range, leaf.rising) for leaf in leaves
    )


def _generated(leaves: Sequence[Leaf], sizes: Mapping[str, int], turn: int) -> Feed:
    return generated_feed([leaf.spec() for leaf in leaves], sizes, np.random.default_rng(turn), turn)


def generated(leaves: Sequence[Leaf], sizes: Mapping[str, int], count: int) -> list[Feed]:
    """Feeds for calls one after the other."""
    return [_generated(leaves, sizes, turn) for turn in range(count)]


_PLAIN = (RuntimeError, ValueError, IndexError, TypeError, torch.jit.Error)
"""Errors whose text says enough without their type."""


@contextmanager
def told(feed: Feed) -> Iterator[None]:
    """What the model raises, as a sentence that names the shapes it was given and the line of the model's code."""
    try:
        yield
    except ConvertKitError:
        raise
    except Exception as error:  # a user's forward may raise anything
        shapes = ", ".join(f"{name} {list(value.shape)} {value.dtype}" for name, value in feed.items())
        kind = "" if isinstance(error, _PLAIN) else f"{type(error).__name__}: "
        text = brief(error)
        said = text if text.startswith(type(error).__name__) else kind + text
        line = user_line("".join(traceback.format_tb(error.__traceback__)))
        place = f" ({line})" if line and not line.startswith("<") else ""
        raise SourceError(f"the model fails on {shapes}: {said}{place}{way_without_gpu(text)}") from error


def _same_outputs(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return all(np.array_equal(value, b[name], equal_nan=value.dtype.kind in "fc") for name, value in a.items())

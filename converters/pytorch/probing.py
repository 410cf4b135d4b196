"""Running a model on generated inputs to learn its interface (in a fork of the worker)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array
from convertkit.converters.pytorch.constants import compared_integers
from convertkit.converters.pytorch.examples import Example, traced_examples
from convertkit.converters.pytorch.inputs import BATCH, example_sizes, free_batch, leaves_of
from convertkit.converters.pytorch.leaves import Leaf, to_json
from convertkit.converters.pytorch.programs import program_examples
from convertkit.converters.pytorch.state import Slot, find_slots, initial, lifted, read, restore, snapshot, write
from convertkit.converters.pytorch.subject import Subject
from convertkit.converters.pytorch.weights import brief
from convertkit.errors import SourceError, UsageError
from convertkit.parity.feeds import generated_feed

_SECOND, _THIRD = 2, 5
"""Batch sizes at which a free batch must work; the parity proof uses 1 and 3."""


@dataclass(frozen=True, slots=True)
class Description:
    """A model's interface: with a free batch where it computes at several sizes, and with the sizes it came with."""

    leaves: tuple[Leaf, ...]
    fixed: tuple[Leaf, ...]
    outputs: tuple[str, ...]
    sizes: tuple[Mapping[str, int], ...]
    slots: tuple[Slot, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For the worker's pipe."""
        return {
            "leaves": to_json(self.leaves),
            "fixed": to_json(self.fixed),
            "outputs": self.outputs,
            "sizes": self.sizes,
            "slots": [slot.as_json() for slot in self.slots],
            "notes": self.notes,
        }


def describe(
    subject: Subject, path: Path, options: Sequence[Mapping[str, Any]]
) -> tuple[Description, dict[str, Array]]:
    """The interface, and the initial value of every state input by name."""
    fresh = snapshot(subject)
    prober = _Prober(subject, fresh)
    found, notes = prober.with_scalars(leaves_of(subject, _examples(subject, path), options))
    base = example_sizes(found, found)
    slots = find_slots(subject, lambda turn: prober.run(found, base, turn, keep=True))
    slots = tuple(slot for slot in slots if prober.depends(found, base, slot))
    leaves, fixed, more = _stateful(found, base) if lifted(slots) else prober.with_free_batch(found)
    sizes = example_sizes(leaves, fixed)
    outputs = tuple(prober.run(leaves, sizes, 0))
    state = {STATE_PREFIX + slot.name: initial(subject.module, slot) for slot in lifted(slots)}
    own = tuple(slot.leaf() for slot in lifted(slots))
    following = tuple(NEXT_STATE_PREFIX + slot.name for slot in lifted(slots))
    return Description(
        (*leaves, *own),
        (*fixed, *own),
        (*outputs, *following),
        (sizes, *_further_sizes(leaves)),
        slots,
        (*notes, *more, *_state_notes(slots)),
    ), state


def _examples(subject: Subject, path: Path) -> Sequence[Example] | Mapping[str, Example] | None:
    if subject.kind == "torchscript":
        return traced_examples(path)
    return program_examples(subject)


def _stateful(found: tuple[Leaf, ...], base: Mapping[str, int]) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...], list[str]]:
    """State has the batch in its shape, so the batch is what the example has."""
    fixed = tuple(leaf.with_dims(base) for leaf in found)
    named = sorted(base)
    note = f"dimensions {', '.join(named)} are fixed: the model keeps state of that size" if named else ""
    return fixed, fixed, [note] if note else []


def _state_notes(slots: Sequence[Slot]) -> list[str]:
    notes = []
    if carried := [slot.name for slot in lifted(slots)]:
        notes.append(f"state became inputs and outputs: {', '.join(carried)}")
    if settled := [f"{slot.name} = {slot.constant}" for slot in slots if slot.constant is not None]:
        notes.append(f"settled by the first call and fixed: {', '.join(settled)}")
    return notes


def _further_sizes(leaves: Sequence[Leaf]) -> tuple[dict[str, int], ...]:
    names = sorted({dim for leaf in leaves for dim in leaf.shape if isinstance(dim, str)})
    return tuple(dict.fromkeys(names, size) for size in (_SECOND, _THIRD)) if names else ()


class _Prober:
    """Runs the model from its fresh state, whatever earlier runs did to it."""

    def __init__(self, subject: Subject, fresh: Mapping[tuple[str, ...], Any]) -> None:
        self._subject = subject
        self._fresh = fresh

    def run(
        self, leaves: Sequence[Leaf], sizes: Mapping[str, int], turn: int, *, keep: bool = False
    ) -> dict[str, Array]:
        """Outputs for a generated feed; ``keep`` leaves the state as the call made it."""
        specs = [leaf.spec() for leaf in leaves]
        feed = generated_feed(specs, sizes, np.random.default_rng(turn), turn)
        try:
            return self._subject.compute(leaves, feed)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, torch.jit.Error) as error:
            shapes = ", ".join(f"{name} {list(value.shape)} {value.dtype}" for name, value in feed.items())
            raise SourceError(f"the model fails on {shapes}: {brief(error)}") from error
        finally:
            if not keep:
                restore(self._subject, self._fresh)

    def depends(self, leaves: Sequence[Leaf], sizes: Mapping[str, int], slot: Slot) -> bool:
        """Whether a call's results depend on what the slot held before it: else it is no state, only written."""
        if slot.number or slot.dtype[:5] not in ("float", "int32", "int64"):
            return True
        self.run(leaves, sizes, 0, keep=True)
        settled = snapshot(self._subject)
        expected = self.run(leaves, sizes, 1, keep=True), read(self._subject.module, slot.path)
        restore(self._subject, settled)
        write(self._subject.module, slot.path, torch.full_like(read(self._subject.module, slot.path), 7))
        got = self.run(leaves, sizes, 1, keep=True), read(self._subject.module, slot.path)
        restore(self._subject, self._fresh)
        return not (torch.equal(expected[1], got[1]) and _same_outputs(expected[0], got[0]))

    def with_free_batch(self, fixed: tuple[Leaf, ...]) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...], list[str]]:
        """The leaves with a free batch where the model computes with it, as they came, and what to tell."""
        reason = ""
        for only_first in (False, True):
            freed = free_batch(fixed, only_first)
            if freed is None:
                return fixed, fixed, []
            try:
                for size in (_SECOND, _THIRD):
                    self.run(freed, {BATCH: size}, 0)
            except SourceError as error:
                reason = str(error)
                continue
            return freed, fixed, [f"the batch is free, as dimension {BATCH}; --static {BATCH}=1 fixes it"]
        batch = next(leaf.shape[0] for leaf in fixed if leaf.shape)
        return fixed, fixed, [f"the batch is fixed at {batch}, as in the example that the model came with: {reason}"]

    def with_scalars(self, leaves: tuple[Leaf, ...]) -> tuple[tuple[Leaf, ...], list[str]]:
        """Python numbers that only some values suit get the one that works, where there is one."""
        notes: list[str] = []
        for scalar in [leaf for leaf in leaves if leaf.scalar and leaf.value_range is None and leaf.dtype == "int64"]:
            working = [value for value in compared_integers(self._subject) if self._works(leaves, scalar, value)]
            if len(working) > 1:
                choice = " or ".join(f"--input {scalar.name}::int64[{value},{value + 1})" for value in working)
                raise UsageError(f"{scalar.name} decides what the model does; choose its value\n  try   {choice}")
            if working:
                leaves = _with_value(leaves, scalar, working[0])
                notes.append(f"{scalar.name} is {working[0]}, the only value that the model takes with these shapes")
        return leaves, notes

    def _works(self, leaves: tuple[Leaf, ...], scalar: Leaf, value: int) -> bool:
        try:
            chosen = _with_value(leaves, scalar, value)
            self.run(chosen, example_sizes(chosen, chosen), 0)
        except SourceError:
            return False
        return True


def _same_outputs(a: Mapping[str, Array], b: Mapping[str, Array]) -> bool:
    return all(np.array_equal(value, b[name], equal_nan=value.dtype.kind in "fc") for name, value in a.items())


def _with_value(leaves: tuple[Leaf, ...], scalar: Leaf, value: int) -> tuple[Leaf, ...]:
    chosen = dataclasses.replace(scalar, value_range=(float(value), float(value + 1)))
    return tuple(chosen if leaf.name == scalar.name else leaf for leaf in leaves)

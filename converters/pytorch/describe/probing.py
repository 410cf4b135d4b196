"""Running a model on generated inputs to learn its interface (in a fork of the worker)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, TensorSpec
from convertkit.converters.pytorch.describe.batch import SECOND, THIRD, Stays, check_samples, followed
from convertkit.converters.pytorch.describe.bounds import (
    at_lowest,
    counted_as_drawn,
    exemplary,
    shortened,
    takes,
    takes_highest,
    widened,
)
from convertkit.converters.pytorch.describe.capture import refuse_training
from convertkit.converters.pytorch.describe.constants import compared_integers
from convertkit.converters.pytorch.describe.input_suggestions import request
from convertkit.converters.pytorch.describe.inputs import (
    ShapesUnsaid,
    example_sizes,
    flags_only,
    free_batch,
    free_following,
    leaves_of,
)
from convertkit.converters.pytorch.describe.left_out import left_out_notes, with_mask
from convertkit.converters.pytorch.describe.notes import renaming_notes, state_notes
from convertkit.converters.pytorch.describe.outputs import output_specs
from convertkit.converters.pytorch.describe.prober import Prober
from convertkit.converters.pytorch.describe.size_bounds import exported_sizes, within_bounds
from convertkit.converters.pytorch.model.check_inputs import turns
from convertkit.converters.pytorch.model.examples import Example
from convertkit.converters.pytorch.model.leaves import BATCH, Leaf, counted, to_json
from convertkit.converters.pytorch.model.programs import program_examples
from convertkit.converters.pytorch.model.state import Slot, initial, lifted
from convertkit.converters.pytorch.model.subject import Subject
from convertkit.converters.pytorch.read.examples import traced_examples
from convertkit.errors import SourceError, Unsupported, UsageError
from convertkit.parity.free_sizes import attempts, named_sizes

_LARGEST_BATCH = 64
"""Larger sizes of what a module holds are taken for channels and lengths."""
_NO_SIZES: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Description:
    """A model's interface: with a dynamic batch where it computes at several sizes, and with the sizes it came with."""

    leaves: tuple[Leaf, ...]
    fixed: tuple[Leaf, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: tuple[Mapping[str, int], ...]
    slots: tuple[Slot, ...]
    fixed_slots: tuple[Slot, ...]
    notes: tuple[str, ...]
    fixed_notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """For the worker's pipe."""
        return {
            "leaves": to_json(self.leaves),
            "fixed": to_json(self.fixed),
            "outputs": [(spec.name, spec.shape, spec.dtype) for spec in self.outputs],
            "sizes": self.sizes,
            "slots": [slot.as_json() for slot in self.slots],
            "fixed_slots": [slot.as_json() for slot in self.fixed_slots],
            "notes": self.notes,
            "fixed_notes": self.fixed_notes,
        }


def describe(
    subject: Subject, path: Path, options: Sequence[Mapping[str, Any]], seed: int
) -> tuple[Description, dict[str, Array]]:
    """The interface, and the initial value of every state input by name."""
    refuse_training(subject)
    prober = Prober(subject, seed)
    examples = _examples(subject, path)
    try:
        asked = leaves_of(subject, examples, options)
    except ShapesUnsaid as unsaid:
        raise request(subject, unsaid, options, lambda flags: _takes(prober, examples, flags)) from unsaid
    asked = prober.with_offsets(asked, example_sizes(asked, asked))
    asked, masked = with_mask(prober, asked)
    own = leaves_of(subject, examples, ()) if subject.exported_batch else ()
    _check_exported(own, asked, subject.exported_batch)
    found, base, notes = _at_some_size(prober, asked)
    slots = tuple(slot for slot in prober.slots(found, base) if prober.depends(found, base, slot))
    if lifted(slots):
        free = followed(prober, found, base, slots)
        leaves, freed, trials, more = free.leaves, free.slots, free.sizes, list(free.notes)
        fixed = tuple(leaf.with_dims(base) for leaf in found)
    else:
        leaves, fixed, more = _with_free_batch(prober, found, own)
        first = {**example_sizes(leaves, fixed), **base}
        freed, trials = slots, (first, *within_bounds(prober, leaves, first, further_sizes(leaves, base)))
    computed = prober.run(leaves, trials[0], 0)
    _check_real(leaves, computed)
    outputs = output_specs((computed, trials[0]), None if slots else _at_another_size(prober, leaves, trials))
    names = [spec.name for spec in outputs]
    named = (*renaming_notes(prober, leaves, trials[0], names), *masked, *left_out_notes(prober, leaves, fixed))
    state = {STATE_PREFIX + slot.name: initial(subject.module, slot, {}) for slot in lifted(freed)}
    following = tuple(TensorSpec(NEXT_STATE_PREFIX + slot.name, slot.shape, slot.dtype) for slot in lifted(freed))
    description = Description(
        (*leaves, *(slot.leaf() for slot in lifted(freed))),
        (*fixed, *(slot.leaf() for slot in lifted(slots))),
        (*outputs, *following),
        trials,
        freed,
        slots,
        (*notes, *more, *named, *state_notes(freed)),
        (*notes, *named, *state_notes(slots)),
    )
    return description, state


def _takes(
    prober: Prober, examples: Sequence[Example] | Mapping[str, Example] | None, options: Sequence[Mapping[str, Any]]
) -> None:
    """Raise where the model does not compute with these flags, at several sizes of what they leave free.

    Names that only fit while their sizes are the same are told apart by other ones for each.
    """
    found, base, _ = _at_some_size(prober, leaves_of(prober.subject, examples, options))
    apart = {name: size if size > THIRD else size + place for place, (name, size) in enumerate(base.items())}
    for sizes in (apart, *further_sizes(found, base)):
        prober.run(found, sizes, 0)


def _check_exported(own: Sequence[Leaf], asked: Sequence[Leaf], batch: int) -> None:
    """Raise ``UsageError`` where ``--input`` asks for other sizes than the batch of a program that has only numbers."""
    for leaf, fixed in zip(asked, own, strict=False):
        changed = [(axis, size) for axis, size in enumerate(fixed.shape) if leaf.shape[axis] != size]
        if wrong := [f"{size} at axis {axis}" for axis, size in changed if size != batch]:
            raise UsageError(
                f"--input {leaf.name}: the program was exported with {wrong[0]}; only its batch can be another one\n"
                "  try   torch.export.export(model, inputs, dynamic_shapes=…) for other dynamic sizes"
            )


def _check_real(leaves: Sequence[Leaf], outputs: Mapping[str, Array]) -> None:
    """Raise ``Unsupported`` where a complex tensor goes in or comes out."""
    given = [leaf.name for leaf in leaves if leaf.dtype.startswith("complex")]
    made = [name for name, value in outputs.items() if value.dtype.kind == "c"]
    if names := [*given, *made]:
        word, way = ("input", "view_as_complex") if given else ("output", "view_as_real")
        raise Unsupported(
            f"the {word} {names[0]!r} is complex, and runtimes take and return real tensors only",
            ways_out=(f"torch.{way} in forward: real and imaginary parts along a last axis",),
        )


def _at_another_size(
    prober: Prober, leaves: Sequence[Leaf], sizes: Sequence[Mapping[str, int]]
) -> tuple[Mapping[str, Array], Mapping[str, int]] | None:
    """What the model is known to compute at other sizes than the first; None where it has not run there."""
    others = [(turn, size) for turn, size in turns(sizes) if size != sizes[0]]
    found = ((prober.known(leaves, size, turn), size) for turn, size in others)
    return next(((outputs, size) for outputs, size in found if outputs is not None), None)


def _at_some_size(prober: Prober, leaves: tuple[Leaf, ...]) -> tuple[tuple[Leaf, ...], dict[str, int], list[str]]:
    """The inputs, sizes of their named dimensions at which the model computes, and what to tell.

    State of a fixed size may allow one size only, which is then among its own.
    """
    try:
        found, sizes, notes = _sized(prober, leaves)
    except SourceError as error:
        narrow = at_lowest(flags_only(leaves), exemplary(leaves))
        if narrow == leaves:
            raise _with_ranges(prober, leaves, error) from error
        try:
            found, sizes, notes = _sized(prober, narrow)
        except SourceError:
            raise _with_ranges(prober, leaves, error) from error
        found, told = _widest(prober, found, leaves, sizes)
        return found, sizes, [*notes, *told]
    lowest = at_lowest(flags_only(found), exemplary(found))
    if not takes_highest(prober, found, sizes) and takes(prober, lowest, sizes):  # what was drawn missed the bad places
        found, told = _widest(prober, lowest, found, sizes)
        notes = [*notes, *told]
    return found, sizes, notes


def _with_ranges(prober: Prober, leaves: tuple[Leaf, ...], error: SourceError) -> SourceError:
    """The same error with the ranges to give: that which works, where the user gave one that is too large."""
    ways = [f"--input '{each.name}::{each.dtype}[LOW,HIGH)' with what it may be" for each in counted(leaves)]
    told = [leaf for leaf in exemplary(leaves, told=True) if leaf.told]
    try:
        found, sizes, _ = _sized(prober, at_lowest(leaves, told))
    except SourceError:
        return SourceError("\n  try   ".join((str(error), *ways)))
    for leaf in shortened(widened(prober, found, told, sizes), leaves):
        low, high = leaf.value_range or (0, 0)
        ways.append(f"--input '{leaf.name}::{leaf.dtype}[{low:.0f},{high:.0f})', as the model fails on {high:.0f}")
    return SourceError("\n  try   ".join((str(error), *ways)))


def _widest(
    prober: Prober, narrow: tuple[Leaf, ...], leaves: tuple[Leaf, ...], sizes: Mapping[str, int]
) -> tuple[tuple[Leaf, ...], list[str]]:
    """``narrow`` with the ranges of ``leaves`` where the model takes those too, and what to tell of the others."""
    for leaf in counted(leaves):
        narrow = counted_as_drawn(prober, narrow, leaf, sizes)
    narrow = widened(prober, narrow, exemplary(leaves), sizes)
    notes: list[str] = []
    for leaf in shortened(narrow, leaves):
        high = f"{leaf.value_range[1]:.0f}" if leaf.value_range else ""
        drawn = "0 and 1" if high == "2" else f"numbers below {high}"
        way = f"--input '{leaf.name}::{leaf.dtype}[0,M)' tells the range"
        notes.append(f"{leaf.name} is tried with {drawn}, as the model fails on numbers beyond; {way}")
    return narrow, notes


def _sized(prober: Prober, leaves: tuple[Leaf, ...]) -> tuple[tuple[Leaf, ...], dict[str, int], list[str]]:
    failure: SourceError | None = None
    for sizes in _candidates(prober, leaves):
        try:
            found, notes = _with_scalars(prober, leaves, sizes)
            for turn in (0, 1) if counted(found) else (0,):  # the first has small numbers only
                prober.run(found, sizes, turn)
        except SourceError as error:
            failure = failure or error
            continue
        return found, sizes, notes
    assert failure is not None
    raise failure


def _candidates(prober: Prober, leaves: tuple[Leaf, ...]) -> Iterator[dict[str, int]]:
    """Sizes of named dimensions, small ones first; those of images and of recordings where there are inner ones."""
    preferred = example_sizes(leaves, leaves)
    yield preferred
    held = (value.shape[:2] for value in prober.fresh.values() if isinstance(value, torch.Tensor))
    own = sorted({size for shape in held for size in shape if 0 < size <= _LARGEST_BATCH})
    yield from (dict.fromkeys(preferred, size) for size in (1, *own) if preferred)
    specs = [leaf.spec() for leaf in leaves]
    count = attempts(specs)
    yield from (dict(named_sizes(specs, attempt, 0)) for attempt in range(count) if count > 1)
    yield from exported_sizes(prober, list(preferred))


def _examples(subject: Subject, path: Path) -> Sequence[Example] | Mapping[str, Example] | None:
    if subject.kind == "torchscript":
        return traced_examples(path)
    return program_examples(subject)


def further_sizes(leaves: Sequence[Leaf], base: Mapping[str, int] = _NO_SIZES) -> tuple[dict[str, int], ...]:
    """Sizes of the dynamic dimensions, other ones than the example's, at which every route is judged too.

    Of those that are known to be longer (``base``), multiples: a window may need that length.
    """
    names = sorted({dim for leaf in leaves for dim in leaf.shape if isinstance(dim, str)})
    if not names:
        return ()
    return tuple(
        {name: base[name] * times if base.get(name, 0) > SECOND else size for name in names}
        for times, size in enumerate((SECOND, THIRD), 2)
    )


def _check_given(prober: Prober, given: tuple[Leaf, ...], own: tuple[Leaf, ...]) -> None:
    try:
        check_samples(prober, given, own)
    except Stays as reason:
        own_batch = prober.subject.exported_batch
        raise SourceError(f"the program, exported with the batch {own_batch}, takes no other: {reason}") from reason


def _with_free_batch(
    prober: Prober, fixed: tuple[Leaf, ...], own: tuple[Leaf, ...]
) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...], list[str]]:
    """The leaves with a dynamic batch where the model computes with it, as they came, and what to tell.

    ``own`` are the inputs of an exported program whose batch is a number; another one has to be proven.
    """
    reason = prober.subject.fixed
    guesses = (free_following(fixed, prober.subject.follows), free_batch(fixed), free_batch(fixed, only_first=True))
    variants = list(dict.fromkeys(freed for freed in guesses if freed is not None))
    if not variants:
        _check_given(prober, fixed, own)
        return fixed, fixed, []
    for freed in () if prober.subject.fixed else variants:
        try:
            example = example_sizes(freed, fixed)
            for turn, size in turns((example, *further_sizes(freed)))[-2:]:
                prober.run(freed, size, turn)
            if example.get(BATCH) != 1:  # which the verification uses
                prober.run(freed, {**example, BATCH: 1}, 0)
            check_samples(prober, freed, own)
        except (SourceError, Stays) as error:
            reason = reason or str(error)
            continue
        return freed, fixed, [f"the batch is dynamic, as dimension {BATCH}; --static {BATCH}=1 fixes it"]
    batch = next(leaf.shape[0] for leaf in fixed if leaf.shape)
    if isinstance(batch, str):  # it is dynamic already, and the other input's first size is not one
        return fixed, fixed, []
    return fixed, fixed, [f"the batch is fixed at {batch}, as in the example that the model came with: {reason}"]


def _with_scalars(
    prober: Prober, leaves: tuple[Leaf, ...], sizes: Mapping[str, int]
) -> tuple[tuple[Leaf, ...], list[str]]:
    """Python numbers that only some values suit get the one that works, where there is one."""
    notes: list[str] = []
    for scalar in [leaf for leaf in leaves if leaf.scalar and leaf.value_range is None and leaf.dtype == "int64"]:
        working = [value for value in compared_integers(prober.subject) if _works(prober, leaves, sizes, scalar, value)]
        if len(working) > 1:
            choice = " or ".join(f"--input '{scalar.name}::int64[{value},{value + 1})'" for value in working)
            raise UsageError(f"{scalar.name} decides what the model does; choose its value\n  try   {choice}")
        if working:
            leaves = _with_value(leaves, scalar, working[0])
            notes.append(f"{scalar.name} is {working[0]}, the only value that the model takes with these shapes")
    return leaves, notes


def _works(prober: Prober, leaves: tuple[Leaf, ...], sizes: Mapping[str, int], scalar: Leaf, value: int) -> bool:
    try:
        prober.run(_with_value(leaves, scalar, value), sizes, 0)
    except SourceError:
        return False
    return True


def _with_value(leaves: tuple[Leaf, ...], scalar: Leaf, value: int) -> tuple[Leaf, ...]:
    chosen = dataclasses.replace(scalar, value_range=(float(value), float(value + 1)))
    return tuple(chosen if leaf.name == scalar.name else leaf for leaf in leaves)

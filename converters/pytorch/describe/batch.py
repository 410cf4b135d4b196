"""Whether a module's state follows the batch of its inputs, and along which axis: found by running it.

A module may make its state anew for every batch, or let it broadcast: then its own calls show the axis.  Or a buffer
has one size, and the module computes with another one as soon as the buffer has it (a cache, a ring of samples): then
an axis is the batch where every sample of a larger batch gives what it gives on its own, over several calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convertkit.artifact import Array, Dim
from convertkit.converters.pytorch.describe.inputs import free_batch, free_following, free_second
from convertkit.converters.pytorch.describe.prober import Prober, generated
from convertkit.converters.pytorch.model.leaves import BATCH, TIME, Leaf
from convertkit.converters.pytorch.model.state import Slot, differs_along, lifted
from convertkit.errors import SourceError, Unsupported
from convertkit.stage import Feed

SECOND, THIRD = 2, 5
"""Batch sizes at which a dynamic batch must work; the parity proof uses 1 and 3."""
_CALLS = 3
_MOST_CHOICES = 64
_ALIKE = 1e-4
"""Of the largest value: a sample's result in a batch, summed in another order, and on its own."""

_OTHER_VALUES = "'{}' starts with other values for each sample"

Choice = tuple[Slot, ...]


class Stays(Exception):
    """Why state does not follow the batch."""


@dataclass(frozen=True, slots=True)
class Followed:
    """The interface of a model with state: what of it is dynamic, and the sizes at which that was tried."""

    leaves: tuple[Leaf, ...]
    slots: tuple[Slot, ...]
    sizes: tuple[Mapping[str, int], ...]
    notes: tuple[str, ...]


def followed(prober: Prober, found: tuple[Leaf, ...], base: Mapping[str, int], slots: Sequence[Slot]) -> Followed:
    """The inputs with what can be dynamic of them; ``base`` gives sizes at which ``slots`` were found."""
    reasons = []
    for variant in _variants(prober, found, base):
        sizes = _sizes_of(variant.leaves, found, base)
        try:
            return _free(prober, variant, sizes, slots)
        except (Stays, SourceError, Unsupported) as error:
            reasons.append(str(error))
    fixed = tuple(leaf.with_dims(base) for leaf in found)
    if not reasons:
        return Followed(fixed, tuple(slots), ({},), ())
    names = ", ".join(repr(slot.name) for slot in lifted(slots) if slot.shape)
    note = f"the batch is fixed at {_batch(fixed)}: the state {names} does not follow another one: {reasons[0]}"
    return Followed(fixed, tuple(slots), ({},), (note,))


@dataclass(frozen=True, slots=True)
class _Variant:
    """Inputs that may be dynamic as they are here; ``proven`` where samples must compute as on their own."""

    leaves: tuple[Leaf, ...]
    proven: bool


def _variants(prober: Prober, found: tuple[Leaf, ...], base: Mapping[str, int]) -> Iterator[_Variant]:
    """What could be dynamic: all that the user named, then the batch alone; else the batch, where nobody fixed it.

    Along the leading axis of a time-first module samples are not samples: there the second one is tried, too.
    """
    guessed = bool(prober.subject.exported_batch)
    if base:
        yield _Variant(found, guessed)
        leading = {leaf.shape[0] for leaf in found if leaf.shape}
        if rest := {name: size for name, size in base.items() if name not in leading}:
            yield _Variant(tuple(leaf.with_dims(rest) for leaf in found), guessed)
        return
    following = free_following(found, prober.subject.follows)
    first = [following, *(free_batch(found, only_first) for only_first in (False, True))]
    second = None if guessed else free_second(found)
    yield from (_Variant(leaves, True) for leaves in (*first, second) if leaves is not None)
    if not guessed:
        yield from (_Variant(leaves, False) for leaves in first if leaves is not None)


def _sizes_of(leaves: Sequence[Leaf], found: Sequence[Leaf], base: Mapping[str, int]) -> dict[str, int]:
    """The sizes of what is dynamic in ``leaves`` at which the state was found."""
    sizes = dict(base)
    for leaf, before in zip(leaves, found, strict=True):
        for dim, size in zip(leaf.shape, before.shape, strict=True):
            if isinstance(dim, str) and isinstance(size, int):
                sizes[dim] = size
    return {dim: sizes[dim] for leaf in leaves for dim in leaf.shape if isinstance(dim, str)}


def _free(prober: Prober, variant: _Variant, base: Mapping[str, int], slots: Sequence[Slot]) -> Followed:
    """The state with the axes that follow; raises ``Stays`` or ``SourceError`` where one does not."""
    leaves = variant.leaves
    trials = tuple({name: size + place for place, name in enumerate(base)} for size in (SECOND, THIRD))
    batch = BATCH if BATCH in base else next(iter(base))
    try:
        chosen = _by_itself(prober, leaves, base, slots, trials)
        if variant.proven:
            _as_alone(prober, leaves, chosen, base, batch)
    except (SourceError, Stays) as error:
        chosen = _resized(prober, leaves, base, slots, batch, str(error))
    for slot in lifted(chosen):
        if differs_along(prober.subject.module, slot):
            raise Stays(_OTHER_VALUES.format(slot.name))
    sizes = (dict(base), *trials)
    if not any(BATCH in leaf.shape and not leaf.given for leaf in leaves):
        return Followed(leaves, chosen, sizes, ())
    second = not any(leaf.shape[:1] == (BATCH,) for leaf in leaves)
    in_time = (second or not variant.proven) and _is_sequence(prober, leaves, chosen, trials[-1], int(second))
    if second and not in_time:
        raise Stays("the second axis is not a batch either")
    if in_time and not second:
        return _as_time(leaves, chosen, sizes)
    return Followed(
        leaves, chosen, sizes, (f"the batch is dynamic, as dimension {BATCH}; --static {BATCH}=1 fixes it",)
    )


def _is_sequence(
    prober: Prober, leaves: tuple[Leaf, ...], choice: Choice, sizes: Mapping[str, int], batch_axis: int
) -> bool:
    """Whether what lies along the leading axis depends on what comes before it and on nothing behind: it is time."""
    (feed,) = generated(leaves, sizes, 1)
    free = [leaf.name for leaf in leaves if leaf.shape[batch_axis : batch_axis + 1] == (BATCH,)]
    (before,), _ = prober.sequence(leaves, choice, [feed])
    first, last = ({**feed, **{name: _changed(feed[name], place) for name in free}} for place in (0, -1))
    ((of_first,), _), ((of_last,), _) = (prober.sequence(leaves, choice, [each]) for each in (first, last))
    length = feed[free[0]].shape[0]
    rows = [name for name, value in before.items() if value.ndim and value.shape[0] == length > 1]
    forward = any(not np.array_equal(before[name][-1], of_first[name][-1], equal_nan=True) for name in rows)
    backward = any(not np.array_equal(before[name][:-1], of_last[name][:-1], equal_nan=True) for name in rows)
    return forward and not backward


def _changed(values: Array, place: int) -> Array:
    changed = values.copy()
    changed[place] = values[place - 1]
    return changed


def _as_time(leaves: tuple[Leaf, ...], slots: Choice, sizes: Sequence[Mapping[str, int]]) -> Followed:
    """The same interface, what was called the batch under the name of time."""
    renamed = tuple(replace(leaf, shape=_renamed(leaf.shape)) for leaf in leaves)
    states = tuple(
        replace(slot, shape=_renamed(slot.shape), constant=TIME if slot.constant == BATCH else slot.constant)
        for slot in slots
    )
    named = tuple({TIME if name == BATCH else name: size for name, size in each.items()} for each in sizes)
    return Followed(
        renamed, states, named, (f"the length is dynamic, as dimension {TIME}; --static {TIME}=1 fixes it",)
    )


def _renamed(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return tuple(TIME if dim == BATCH else dim for dim in shape)


def _by_itself(
    prober: Prober,
    leaves: tuple[Leaf, ...],
    base: Mapping[str, int],
    slots: Sequence[Slot],
    trials: Sequence[Mapping[str, int]],
) -> Choice:
    """The slots as the module itself sizes them."""
    chosen = tuple(slots)
    for sizes in trials:
        found = {slot.path: slot for slot in prober.slots(leaves, sizes)}
        chosen = tuple(_matched(slot, found.get(slot.path), base, sizes) for slot in chosen)
    return chosen


def _matched(slot: Slot, other: Slot | None, base: Mapping[str, int], sizes: Mapping[str, int]) -> Slot:
    """``slot``, found at ``base``, with the names that explain how it was found at ``sizes``."""
    if other is None or (slot.constant is None) != (other.constant is None) or len(slot.shape) != len(other.shape):
        raise Stays(f"{slot.name!r} is another kind of state at {_told(sizes)}")
    if slot.constant is not None:
        assert other.constant is not None
        return replace(slot, constant=_explained(slot.name, slot.constant, other.constant, base, sizes))
    shape = [_dim(slot.name, a, b, base, sizes) for a, b in zip(slot.shape, other.shape, strict=True)]
    return replace(slot, shape=tuple(shape))


def _explained(
    name: str,
    before: bool | int | float | str,
    after: bool | int | float | str,
    base: Mapping[str, int],
    sizes: Mapping[str, int],
) -> bool | int | float | str:
    if isinstance(before, str | int) and isinstance(after, int) and not isinstance(before, bool):
        return _dim(name, before, after, base, sizes)
    if before != after:
        raise Stays(f"{name!r} is {before} at {_told(base)} and {after} at {_told(sizes)}")
    return before


def _dim(name: str, before: Dim, after: Dim, base: Mapping[str, int], sizes: Mapping[str, int]) -> Dim:
    if before == after or (isinstance(before, str) and sizes[before] == after):
        return before
    for dim, size in base.items():
        if size == before and sizes[dim] == after:
            return dim
    raise Stays(f"{name!r} has the size {before} at {_told(base)} and {after} at {_told(sizes)}")


def _resized(
    prober: Prober,
    leaves: tuple[Leaf, ...],
    base: Mapping[str, int],
    slots: Sequence[Slot],
    name: str,
    reason: str,
) -> Choice:
    """The first choice of axes with which every sample of a larger batch computes as it does on its own."""
    for choice in itertools.islice(_choices(slots, name, base[name]), _MOST_CHOICES):
        if varied := [slot.name for slot in choice if differs_along(prober.subject.module, slot)]:
            reason = _OTHER_VALUES.format(varied[0])
            continue
        try:
            return _as_alone(prober, leaves, choice, base, name)
        except (SourceError, Stays):
            continue
    raise Stays(reason)


def _choices(slots: Sequence[Slot], name: str, batch: int) -> Iterator[Choice]:
    """Axes of the state that may be the batch, alike for attributes of one name and shape; most likely ones first."""
    kinds = {_kind(slot): slot for slot in slots if slot.constant is None and slot.shape}
    options: list[list[int | None]] = []
    for slot in kinds.values():
        axes = [axis for axis, size in enumerate(slot.shape) if size == batch]
        options.append([*axes, *([] if 0 in axes else [0]), None])
    for choice in itertools.product(*options):
        chosen = dict(zip(kinds, choice, strict=True))
        if any(axis is not None for axis in choice):
            yield tuple(_along(slot, chosen.get(_kind(slot)), name) for slot in slots)


def _kind(slot: Slot) -> tuple[str, tuple[Dim, ...]]:
    names = [part for part in slot.path if not part.isdecimal()]
    return names[-1] if names else "", slot.shape


def _along(slot: Slot, axis: int | None, name: str) -> Slot:
    if axis is None or slot.constant is not None:
        return slot
    return replace(slot, shape=(*slot.shape[:axis], name, *slot.shape[axis + 1 :]), resized=True)


def check_samples(prober: Prober, leaves: tuple[Leaf, ...], own: tuple[Leaf, ...]) -> None:
    """Raise ``Stays`` where samples of another batch than the program's ``own`` do not compute as on their own.

    For a program without state whose sizes follow the batch by guesses; any other has no ``own``.
    """
    if not own:
        return
    batch = prober.subject.exported_batch
    shapes = [
        tuple(BATCH if dim != size else size for dim, size in zip(leaf.shape, fixed.shape, strict=True))
        for leaf, fixed in zip(leaves, own, strict=True)
    ]
    freed = tuple(replace(leaf, shape=shape) for leaf, shape in zip(leaves, shapes, strict=True))
    if any(BATCH in shape for shape in shapes):
        _as_alone(prober, freed, (), {BATCH: batch}, BATCH, (3,), calls=1)


def _as_alone(
    prober: Prober,
    leaves: tuple[Leaf, ...],
    choice: Choice,
    base: Mapping[str, int],
    name: str,
    larger: Sequence[int] = (SECOND, THIRD),
    calls: int = _CALLS,
) -> Choice:
    """``choice``, where samples in a batch compute as they do on their own; its numbers may follow the batch, too."""
    alone = tuple(slot if slot.constant is not None else _concrete(slot, base) for slot in choice)
    for times in larger:
        sizes = {**base, name: times * base[name]}
        feeds = generated(leaves, sizes, calls)
        whole, numbers = prober.sequence(leaves, choice, feeds)
        parts = [prober.sequence(leaves, alone, _part(leaves, feeds, name, times, place))[0] for place in range(times)]
        for call, outputs in enumerate(whole):
            _check_alike(outputs, [part[call] for part in parts])
        choice = tuple(
            slot
            if slot.constant is None
            else replace(slot, constant=_explained(slot.name, slot.constant, numbers[slot.path], base, sizes))
            for slot in choice
        )
    return choice


def _concrete(slot: Slot, sizes: Mapping[str, int]) -> Slot:
    shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in slot.shape)
    constant = sizes[slot.constant] if isinstance(slot.constant, str) else slot.constant
    return replace(slot, shape=shape, constant=constant)


def _part(leaves: Sequence[Leaf], feeds: Sequence[Feed], name: str, times: int, place: int) -> list[Feed]:
    axes = {leaf.name: leaf.shape.index(name) for leaf in leaves if name in leaf.shape}
    return [
        {key: np.split(value, times, axes[key])[place] if key in axes else value for key, value in feed.items()}
        for feed in feeds
    ]


def _check_alike(whole: Mapping[str, Array], parts: Sequence[Mapping[str, Array]]) -> None:
    for name, value in whole.items():
        pieces = [part[name] for part in parts]
        if pieces[0].ndim != value.ndim:  # squeeze() drops an axis of one sample
            raise Stays(f"{name} has {value.ndim} axes for a batch, {pieces[0].ndim} for a sample")
        axes = [axis for axis, size in enumerate(value.shape) if size != pieces[0].shape[axis]]
        if len(axes) > 1:
            raise Stays(f"{name} changes in more than the batch")
        joined = np.concatenate(pieces, axes[0]) if axes else np.broadcast_to(pieces[0], value.shape)
        expected = [joined] if axes else pieces
        scale = float(np.abs(value.astype(np.float64)).max(initial=0.0))
        for each in expected:
            if each.shape != value.shape or not np.allclose(each, value, rtol=0, atol=_ALIKE * scale, equal_nan=True):
                raise Stays(f"{name} of a sample depends on the others in its batch")


def _batch(leaves: Sequence[Leaf]) -> Dim:
    return next(leaf.shape[0] for leaf in leaves if leaf.shape)


def _told(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())

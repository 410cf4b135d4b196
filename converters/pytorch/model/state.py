"""State that ``forward`` keeps in the module: found by running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Dim
from convertkit.converters.pytorch.model.attributes import (
    Keys,
    Path,
    read,
    restore,
    same_value,
    script_attributes,
    snapshot,
    trim,
    write,
)
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.subject import Subject, to_array, to_tensor
from convertkit.errors import SourceError, Unsupported
from convertkit.stage import Outputs
from convertkit.state import state_sizes

_NUMBERS = (bool, int, float)
_FIXED_SIZE = ("a buffer of fixed size with a position, or the state as an argument and a result of forward",)


@dataclass(frozen=True, slots=True)
class Slot:
    """One attribute that changes from call to call.

    A ``constant`` is a number that settles with the first call; it is not an input, the artifact holds
    the settled value; the name of a dimension stands for that dimension's size.  A tensor that is ``resized`` has
    a fixed size in the module, which computes with other ones as soon as that attribute has them.  One that is
    ``unset`` is None before the first call: zeros stand for that.
    """

    path: Path
    shape: tuple[Dim, ...]
    dtype: str
    number: bool = False
    constant: bool | int | float | str | None = None
    resized: bool = False
    unset: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.path)

    def leaf(self) -> Leaf:
        """The slot as an input."""
        return Leaf(STATE_PREFIX + self.name, "", self.shape, self.dtype, given=True)

    def as_json(self) -> dict[str, Any]:
        """For the worker's pipe."""
        return {
            "path": list(self.path),
            "shape": list(self.shape),
            "dtype": self.dtype,
            "number": self.number,
            "constant": self.constant,
            "resized": self.resized,
            "unset": self.unset,
        }


def slots_from_json(values: Sequence[Mapping[str, Any]]) -> tuple[Slot, ...]:
    """Slots from what :meth:`Slot.as_json` made."""
    return tuple(Slot(**{**value, "path": tuple(value["path"]), "shape": tuple(value["shape"])}) for value in values)


def lifted(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    """The slots that become inputs and outputs."""
    return tuple(slot for slot in slots if slot.constant is None)


class Session:
    """A subject that is called again and again, its state visible as ``state.*`` and ``next_state.*``.

    State that comes in equal to what the module holds is not written, so a fresh module's first call is
    its own.  A batch of another size begins a new sequence.
    """

    def __init__(self, subject: Subject, slots: Sequence[Slot]) -> None:
        self._subject = subject
        self._slots = lifted(slots)
        self._fresh = snapshot(subject) if any(isinstance(dim, str) for slot in slots for dim in slot.shape) else {}
        self._sizes: Mapping[str, int] | None = None
        self._held: Mapping[str, Array] = {}

    def run(self, leaves: Sequence[Leaf], feed: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs, then the next state."""
        sizes = state_sizes({leaf.name: leaf.shape for leaf in leaves}, feed)
        if sizes != self._sizes:
            self._begin(sizes)
        for slot in self._slots:
            given = feed.get(STATE_PREFIX + slot.name)
            if given is not None and not _same(given, self._held[slot.name]):
                write(self._subject.module, slot.path, given.item() if slot.number else to_tensor(given))
        plain = [leaf for leaf in leaves if leaf.parameter]
        outputs = self._subject.compute(plain, feed)
        self._held = {slot.name: to_array(read(self._subject.module, slot.path)) for slot in self._slots}
        return {**outputs, **{NEXT_STATE_PREFIX + name: value for name, value in self._held.items()}}

    def _begin(self, sizes: Mapping[str, int]) -> None:
        restore(self._subject, self._fresh)
        self._sizes = sizes
        self._held = {slot.name: initial(self._subject.module, slot, sizes) for slot in self._slots}
        for slot in self._slots:
            if slot.resized:
                write(self._subject.module, slot.path, to_tensor(self._held[slot.name]))


def initial(module: Any, slot: Slot, sizes: Mapping[str, int]) -> Array:
    """The slot's value before the first call; zeros where the module makes the tensor during it.

    Named dimensions have the size that ``sizes`` gives them, else 1.  Whether zeros stand for "nothing yet" is proven
    by comparing a fresh module's calls with the artifact's.
    """
    value = read(module, slot.path)
    if slot.number:
        return to_array(value).astype(slot.dtype, copy=False)
    shape = tuple(sizes.get(dim, 1) if isinstance(dim, str) else dim for dim in slot.shape)
    held = to_array(value) if isinstance(value, torch.Tensor | bool | int | float) else np.zeros((), slot.dtype)
    if held.ndim == len(shape):
        held = held[tuple(slice(0, 1) if isinstance(dim, str) else slice(None) for dim in slot.shape)]
    if held.ndim > len(shape) or any(have not in (1, want) for have, want in zip(held.shape[::-1], shape[::-1])):
        return np.zeros(shape, slot.dtype)
    return np.broadcast_to(held, shape).astype(slot.dtype)


def differs_along(module: Any, slot: Slot) -> bool:
    """Whether the module holds start values that are not the same along a named dimension of the slot."""
    value = read(module, slot.path)
    if not isinstance(value, torch.Tensor) or value.dim() != len(slot.shape):
        return False
    axes = [axis for axis, dim in enumerate(slot.shape) if isinstance(dim, str) and value.shape[axis] > 1]
    return any(not torch.equal(value, value.narrow(axis, 0, 1).expand_as(value)) for axis in axes)


def find_slots(subject: Subject, call: Callable[[int], Outputs]) -> tuple[Slot, ...]:
    """Attributes that three calls change; ``call`` runs the module on its n-th feed.

    Raises ``Unsupported``, naming the attribute, where its shape or length changes with every call.
    """
    attributes = script_attributes(subject.module) if subject.kind == "torchscript" else ()
    before = snapshot(subject, attributes)
    history = []
    for turn in range(3):
        call(turn)
        history.append(snapshot(subject, attributes))
    for path in _growing(before, history):
        _refuse_growth(subject, before, call, path)
    paths = [path for path in history[0] if any(not same_value(before.get(path), each.get(path)) for each in history)]
    paths = [path for path in paths if not isinstance(history[0][path], Keys)]
    paths = [path for path in paths if not _settles_as_tensor(before, history, path)]
    restore(subject, before)
    return tuple(_slot(path, [each.get(path) for each in history], before) for path in paths)


def _growing(before: Mapping[Path, Any], history: Sequence[Mapping[Path, Any]]) -> list[Path]:
    """Lists and dicts that hold more after every call."""
    lengths = {
        path: [len(each[path]) for each in (before, *history)]
        for path, keys in before.items()
        if isinstance(keys, Keys) and all(isinstance(each.get(path), Keys) for each in history)
    }
    return [path for path, counts in lengths.items() if all(a < b for a, b in pairwise(counts))]


def _refuse_growth(subject: Subject, before: Mapping[Path, Any], call: Callable[[int], Outputs], path: Path) -> None:
    """Raise ``Unsupported`` where what a list or dict holds beyond its start decides the result: it is not a log."""
    whole: list[Outputs] = []
    cut: list[Outputs] = []
    for results, forgets in ((whole, False), (cut, True)):
        restore(subject, before)
        for turn in range(2):
            if forgets:
                trim(subject.module, path, before[path])
            try:
                results.append(call(turn))
            except SourceError:
                results.append({})
    restore(subject, before)
    if not all(_equal(a, b) for a, b in zip(whole, cut, strict=True)):
        raise Unsupported(f"the state {'.'.join(path)!r} holds more after every call", ways_out=_FIXED_SIZE)


def check_start(slot: Slot, fresh: Mapping[Path, Any]) -> None:
    """Raise ``Unsupported`` for state that does not exist before the first call."""
    if slot.path not in fresh:
        raise Unsupported(
            f"the state {slot.name!r} does not exist before the first call, which gives a different result from later"
            " ones",
            ways_out=("a tensor as its start value in __init__",),
        )


def _settles_as_tensor(before: Mapping[Path, Any], history: Sequence[Mapping[Path, Any]], path: Path) -> bool:
    return path in before and before[path] is None and all(each.get(path) is None for each in history)


def _slot(path: Path, values: Sequence[Any], before: Mapping[Path, Any]) -> Slot:
    name = ".".join(path)
    first = values[0]
    if all(isinstance(value, _NUMBERS) for value in values):
        if all(value == first for value in values):
            return Slot(path, (), _number_dtype(first), number=True, constant=first)
        return Slot(path, (), _number_dtype(first), number=True)
    if not all(isinstance(value, torch.Tensor) for value in values):
        kinds = ", ".join(type(value).__name__ for value in values)
        raise Unsupported(f"the state {name!r} changes its type from call to call: {kinds}")
    shapes = [tuple(value.shape) for value in values]
    if len(set(shapes)) > 1:
        raise Unsupported(
            f"the state {name!r} grows from call to call: {', '.join(str(list(shape)) for shape in shapes)}",
            ways_out=_FIXED_SIZE,
        )
    return Slot(path, shapes[0], to_array(first).dtype.name, unset=path in before and before[path] is None)


def _number_dtype(value: bool | int | float) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def _equal(a: Outputs, b: Outputs) -> bool:
    return a.keys() == b.keys() and all(_same(value, b[name]) for name, value in a.items())


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")

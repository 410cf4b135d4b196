"""State that ``forward`` keeps in the module: found by running it, read and written by path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from convertkit.artifact import NEXT_STATE_PREFIX, STATE_PREFIX, Array, Dim
from convertkit.converters.pytorch.compat import modules, scripts
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.subject import Subject, to_array, to_tensor
from convertkit.errors import SourceError, Unsupported
from convertkit.stage import Outputs
from convertkit.state import state_sizes

Path = tuple[str, ...]
_NUMBERS = (bool, int, float)
_FIXED_SIZE = ("a buffer of fixed size with a position, or the state as an argument and a result of forward",)
_NOT_STATE = frozenset({"training", "_is_full_backward_hook", "call_super_init", "dump_patches"})


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
    attributes = _script_attributes(subject.module) if subject.kind == "torchscript" else ()
    before = snapshot(subject, attributes)
    history = []
    for turn in range(3):
        call(turn)
        history.append(snapshot(subject, attributes))
    for path in _growing(before, history):
        _refuse_growth(subject, before, call, path)
    paths = [path for path in history[0] if any(not _same_value(before.get(path), each.get(path)) for each in history)]
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
                _trim(subject.module, path, before[path])
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


def snapshot(subject: Subject, attributes: Sequence[Path] = ()) -> dict[Path, Any]:
    """Copies of all tensors and numbers that the module's attributes hold, by path, and the keys of lists and dicts.

    ``attributes`` are those of a script, where they are known already.
    """
    if subject.kind == "torchscript":
        known = attributes or _script_attributes(subject.module)
        values = dict(pair for each in known for pair in _values(_read_script(subject.module, each), each))
    else:
        values = dict(_eager_values(subject.module))
    return {
        path: value.detach().clone() if isinstance(value, torch.Tensor) else value for path, value in values.items()
    }


def _read_script(module: Any, path: Path) -> Any:
    """The attribute of a ScriptModule; of an archive's own classes Python can hold no objects."""
    try:
        return read(module, path)
    except RuntimeError as error:
        raise Unsupported(
            f"the attribute {'.'.join(path)!r} lies in an object of a script class, which no archive lets be read",
            ways_out=("tensors as attributes of the module itself",),
        ) from error


def restore(subject: Subject, values: Mapping[Path, Any]) -> None:
    """Write back what :func:`snapshot` took; parameters are left alone."""
    with torch.no_grad():
        for path, value in values.items():
            if isinstance(value, Keys):
                _trim(subject.module, path, value)
            elif not _same_value(read(subject.module, path), value):
                write(subject.module, path, value.clone() if isinstance(value, torch.Tensor) else value)


def _trim(module: Any, path: Path, keys: Keys) -> None:
    """Let a list or dict have those keys again; a value that was lost is None until it is written."""
    held = read(module, path)
    if _keys(held) == keys:
        return
    if isinstance(held, dict):
        kept = {key: held.get(key) for key in keys}
        held.clear()
        held.update(kept)
    else:
        held[:] = [held[place] if place < len(held) else None for place in range(len(keys))]
    if isinstance(read(module, path[:-1]), torch.jit.ScriptModule):
        write(module, path, held)  # of which Python saw a copy


def read(module: Any, path: Path) -> Any:
    """The attribute at ``path``; names lead through modules, lists, tuples and dicts."""
    return inside(module, path)


def inside(value: Any, path: Path) -> Any:
    """The same for any value."""
    for name in path:
        if isinstance(value, list | tuple):
            value = value[int(name)]
        elif isinstance(value, dict):
            value = value[name]
        else:
            value = getattr(value, name)
    return value


def write(module: Any, path: Path, value: Any) -> None:
    """Set the attribute at ``path``; of a ScriptModule's lists and dicts Python sees copies, which go back whole."""
    owner = read(module, path[:-1])
    if isinstance(owner, tuple):
        place = int(path[-1])
        write(module, path[:-1], (*owner[:place], value, *owner[place + 1 :]))
        return
    if not isinstance(owner, list | dict):
        setattr(owner, path[-1], value)
        return
    if isinstance(owner, list):
        owner[int(path[-1])] = value
    else:
        owner[path[-1]] = value
    if isinstance(read(module, path[:-2]), torch.jit.ScriptModule):
        write(module, path[:-1], owner)


def _script_attributes(module: Any) -> tuple[Path, ...]:
    """Attributes that ``forward`` reads or writes, parameters left out."""
    graph = scripts.inlined(module.forward.graph)
    objects: dict[str, Path] = {next(iter(graph.inputs())).debugName(): ()}
    found: dict[Path, None] = {}
    _collect(graph, objects, found)
    parameters = {tuple(name.split(".")) for name, _ in module.named_parameters()}
    return tuple(path for path in found if path not in parameters)


def _collect(block: Any, objects: dict[str, Path], found: dict[Path, None]) -> None:
    for node in block.nodes():
        if node.kind() in ("prim::GetAttr", "prim::SetAttr"):
            owner = objects.get(next(iter(node.inputs())).debugName())
            if owner is not None:
                path = (*owner, node.s("name"))
                if node.kind() == "prim::GetAttr" and node.output().type().kind() in ("ClassType", "InterfaceType"):
                    objects[node.output().debugName()] = path
                else:
                    found[path] = None
        for inner in node.blocks():
            _collect(inner, objects, found)


def _eager_values(module: torch.nn.Module) -> Iterator[tuple[Path, Any]]:
    for name, each in module.named_modules():
        prefix = tuple(name.split(".")) if name else ()
        for attribute, value in modules.attributes(each).items():
            if not attribute.startswith("__") and attribute not in _NOT_STATE and attribute not in modules.OWN:
                yield from _values(value, (*prefix, attribute))


class Keys(tuple[object, ...]):
    """Of a dict, and of a list the places."""


def _keys(value: Any) -> Keys:
    return Keys(value if isinstance(value, dict) else range(len(value)))


def _equal(a: Outputs, b: Outputs) -> bool:
    return a.keys() == b.keys() and all(_same(value, b[name]) for name, value in a.items())


def _values(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if value is None or (
        isinstance(value, torch.Tensor | bool | int | float) and not isinstance(value, torch.nn.Parameter)
    ):
        yield path, value
    elif type(value) in (list, tuple):
        if type(value) is list:
            yield path, _keys(value)
        for place, item in enumerate(value):
            yield from _values(item, (*path, str(place)))
    elif type(value) is dict:
        yield path, _keys(value)
        for key, item in value.items():
            if isinstance(key, str):
                yield from _values(item, (*path, key))


def _same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


def _same_value(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
        return bool(same)
    return type(a) is type(b) and bool(a == b)

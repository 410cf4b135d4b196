"""Weights out of checkpoints that hold objects of classes, too: none of those is imported, none of their code runs.

A checkpoint keeps its optimizer, its settings and often the whole module beside the tensors.  Unpickling calls whatever
the file names, so here it may name what makes tensors and containers; anything else becomes an :class:`Inert`, which
keeps what it was given and does nothing with it.  ``torch.load`` takes this module as its ``pickle_module``.
"""

from __future__ import annotations

import collections
import pickle
from collections.abc import Callable, Mapping
from typing import IO, Any, Self

import torch

from convertkit.converters.pytorch.compat import files
from convertkit.errors import SourceError

_MOST_MODULES = 100_000


class Inert:
    """What an object of a class that nobody imports was made of: the mapping that it is, or its attributes."""

    dump_patches = False  # torch asks old modules for it

    def __new__(cls, *_args: Any, **_keywords: Any) -> Self:
        made = super().__new__(cls)
        made.held = {}
        return made

    def __init__(self, *_args: Any, **_keywords: Any) -> None:
        self.held: dict[Any, Any]

    def __call__(self, *_args: Any, **_keywords: Any) -> Inert:
        return Inert()

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, Mapping):
            self.held.update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.held[key] = value

    def append(self, value: Any) -> None:
        """An item of what was a list, none of which is a weight with a name."""

    def extend(self, values: Any) -> None:
        """Items, as above."""

    def mapping(self) -> dict[Any, Any]:
        """The mapping that the object is; of a module its state_dict."""
        return _state_of(self) if "_modules" in self.held else self.held


def _state_of(module: Inert) -> dict[str, Any]:
    """What ``torch.nn.Module.state_dict`` would give: parameters, then buffers that persist, then those of children."""
    state: dict[str, Any] = {}
    waiting = [("", module)]
    for _ in range(_MOST_MODULES):
        if not waiting:
            return state
        prefix, each = waiting.pop()
        unsaved = _names(each.held.get("_non_persistent_buffers_set") or ())
        own = {**_dict(each.held.get("_parameters")), **_dict(each.held.get("_buffers"))}
        state |= {f"{prefix}{name}": own[name] for name in own if own[name] is not None and name not in unsaved}
        children = _dict(each.held.get("_modules")).items()
        waiting += [(f"{prefix}{name}.", child) for name, child in children if isinstance(child, Inert)][::-1]
    raise SourceError("the file holds modules within modules without end; it is damaged or hostile")


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> frozenset[str]:
    return frozenset(value) if isinstance(value, set | frozenset | list | tuple) else frozenset()


def _made(make: Callable[..., Any], _kind: Any, args: tuple[Any, ...], _state: Any) -> Any:
    """A tensor of a subclass, without the subclass; ``make`` was named by the file and is one of those below."""
    return make(*args)


def _parameter(data: Any, *_: Any) -> Any:
    return data


_KNOWN: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch", "Size"): tuple,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
    **files.REBUILT,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._tensor", "_rebuild_from_type_v2"): _made,
}
_DTYPES = {str(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}


class Unpickler(pickle.Unpickler):
    """Makes tensors and containers, and an :class:`Inert` of anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _KNOWN:
            return _KNOWN[module, name]
        if module == "torch" and f"torch.{name}" in _DTYPES:
            return _DTYPES[f"torch.{name}"]
        return type("Inert", (Inert,), {})


def load(stream: IO[bytes], *, encoding: str = "ASCII") -> Any:
    """The object that a pickle in front of ``stream`` makes."""
    return Unpickler(stream, encoding=encoding).load()

"""Weights from files into the module that a factory made (runs in the worker)."""

from __future__ import annotations

import difflib
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

from convertkit.converters.pytorch.load import safe_unpickler
from convertkit.converters.pytorch.load.wrappers import without_compiled
from convertkit.converters.pytorch.model.failures import brief
from convertkit.converters.pytorch.read.shards import shards
from convertkit.converters.pytorch.read.sniff import examine
from convertkit.errors import SourceError, UsageError

_STATE_KEYS = (
    *("state_dict", "model_state_dict", "model", "net", "module", "weights", "params"),
    *("ema", "ema_state_dict", "state_dict_ema", "model_ema"),  # a moving average only where nothing else is
)
_DAMAGED = (*(RuntimeError, ValueError, EOFError, OSError), *(LookupError, TypeError, AttributeError, AssertionError))
"""What torch raises for weights that are not as it writes them."""
_NAMED = 5
_ALIKE = 0.8
_DEEPEST = 8


def stored_weights(path: str, kind: str) -> dict[str, torch.Tensor]:
    """The tensors in a file, or in the files of an index, by name; nothing in them is executed."""
    if kind == "sharded":
        return {name: value for each in shards(Path(path)) for name, value in _stored(str(each)).items()}
    return _stored(path)


def _stored(path: str) -> dict[str, torch.Tensor]:
    found = examine(Path(path))
    try:
        if found is not None and found.kind == "safetensors":
            from safetensors.torch import load_file

            return dict(load_file(path))
        stored = _unpickled(path)
    except (pickle.UnpicklingError, *_DAMAGED) as error:
        raise SourceError(f"{Path(path).name}: torch cannot read these weights: {brief(error)}") from error
    weights = _state_dict(stored)
    if weights is None:
        raise SourceError(f"{Path(path).name} holds no state_dict: {_content(stored)}")
    return weights


def _unpickled(path: str) -> object:
    """What the file holds; of objects whose classes torch does not know, what they were made of."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=safe_unpickler)


def _state_dict(stored: object, depth: int = 0, seen: set[int] | None = None) -> dict[str, torch.Tensor] | None:
    """The mapping of names to tensors, in a checkpoint under one of the usual keys, else the only one that there is.

    Each object is looked at once: a few bytes of pickle may hold one mapping in another more often than there is time.
    """
    seen = set() if seen is None else seen
    if id(stored) in seen:
        return None
    seen.add(id(stored))
    if isinstance(stored, safe_unpickler.Inert):
        stored = stored.mapping()
    if not isinstance(stored, Mapping) or depth > _DEEPEST:
        return None
    tensors = {str(name): value for name, value in stored.items() if isinstance(value, torch.Tensor)}
    if tensors and len(tensors) == len(stored):
        return tensors
    for key in _STATE_KEYS:
        if key in stored and (found := _state_dict(stored[key], depth + 1, seen)) is not None:
            return found
    if tensors:
        return tensors
    inner = [found for value in stored.values() if (found := _state_dict(value, depth + 1, seen)) is not None]
    named = [found for found in inner if any("." in name for name in found)]
    return named[0] if len(named) == 1 else inner[0] if len(inner) == 1 else None


def _content(stored: object) -> str:
    if isinstance(stored, Mapping):
        return f"its keys are {_some(str(key) for key in stored)}"
    return f"it is a {type(stored).__name__}"


def fill(module: torch.nn.Module, weights: Mapping[str, torch.Tensor], file: str, factory: str) -> None:
    """Load the weights; ``UsageError`` naming what is missing, surplus or of another shape.

    A tensor that the module shares under two names may be stored under one of them, and batch norms of
    old files count no batches.
    """
    held = module.state_dict(keep_vars=True)
    weights = _without_prefix(without_compiled(weights), list(held))
    stored = {id(held[name]) for name in weights if name in held}
    missing = [name for name in held if name not in weights and id(held[name]) not in stored]
    missing = sorted(name for name in missing if not name.endswith("num_batches_tracked"))
    surplus = sorted(set(weights) - set(held))
    if missing or surplus:
        hint = _part(list(held), list(weights), factory) or _renamed(missing, surplus)
        raise UsageError(f"{file} does not fit {factory}: {_difference(missing, surplus)}{hint}")
    try:
        module.load_state_dict(weights, strict=False)
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:] if line.strip()]
        raise UsageError(f"{file} does not fit {factory}: {lines[0] if lines else brief(error)}") from error


def _without_prefix(weights: Mapping[str, torch.Tensor], wanted: list[str]) -> dict[str, torch.Tensor]:
    """The weights below the prefix that wrappers (DataParallel, Lightning, torch.compile, averages) put before them.

    What lies outside the prefix belongs to the wrapper.  Where several fit, the trained weights come before
    their moving average.
    """
    if not set(wanted).isdisjoint(weights):
        return dict(weights)
    ends = {f".{name}": name for name in wanted}
    found: Counter[str] = Counter()
    for name in weights:
        for start in (place for place, letter in enumerate(name) if letter == "."):
            if name[start:] in ends:
                found[name[: start + 1]] += 1
    if not found:
        return dict(weights)
    prefix = min(found, key=lambda each: (-found[each], "ema" in each, each))
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def _part(held: Sequence[str], stored: Sequence[str], factory: str) -> str:
    """What to write where the weights are those of a part of the module, which the factory wraps."""
    ends = {each.removesuffix(name) for each in held for name in stored[:1] if each.endswith(f".{name}")}
    fits = [start for start in sorted(ends) if {start + name for name in stored} <= set(held)]
    if not fits:
        return ""
    part = fits[0].removesuffix(".")
    return (
        f"\n  try   a function that returns the part {part!r}, whose weights these are: def made(): return"
        f" {factory.partition(':')[2]}().get_submodule({part!r})"
    )


def _renamed(missing: Sequence[str], surplus: Sequence[str]) -> str:
    """The name in the file that is most like one that is missing."""
    close = {name: difflib.get_close_matches(name, surplus, 1, _ALIKE) for name in missing}
    pair = next(((name, like[0]) for name, like in close.items() if like), None)
    return "" if pair is None else f"\n  try   renaming, where {pair[1]} in the file is {pair[0]} of the module"


def _difference(missing: list[str], surplus: list[str]) -> str:
    parts = [f"it lacks {_some(missing)}"] if missing else []
    return ", ".join(parts + ([f"the module has no {_some(surplus)}"] if surplus else []))


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more

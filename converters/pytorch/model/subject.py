"""A loaded model as a function from named arrays to named arrays (runs in the worker)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

from convertkit.artifact import Array
from convertkit.converters.pytorch.model.containers import as_exported
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Constant:
    """What an exported program was called with that is not an array; it is baked in as a constant."""

    value: Any


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of ``forward``; ``type`` is TorchScript's word for it, empty where nothing is known.

    A ``keyword`` is passed by name, a ``constant`` is not an input.
    """

    name: str
    type: str
    required: bool
    keyword: bool = False
    constant: Constant | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """A module ready to compute, with what is known of its ``forward``.

    ``exported_batch`` is set where an exported program had that batch as a number and the module takes others, by
    guesses that are still to be proven, and ``follows`` says of each input whether its leading size is that batch;
    ``fixed`` says why it takes none.  ``code`` is the text of an archive's methods, empty where there is no archive.
    """

    module: Any
    parameters: tuple[Parameter, ...]
    kind: str
    program: Any = None
    exported_batch: int = 0
    follows: tuple[bool, ...] = ()
    fixed: str = ""
    code: bytes = b""

    def arguments(self, leaves: Sequence[Leaf], values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments for ``forward``, the leaves put back into their tuples and lists."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        skipped = False
        for parameter in self.parameters:
            own = [leaf for leaf in leaves if leaf.parameter == parameter.name]
            if not own and parameter.constant is None:
                skipped = True
                continue
            value = _structured(own, values) if parameter.constant is None else parameter.constant.value
            if skipped or parameter.keyword:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        if self.program is not None:
            args, kwargs = as_exported([args, kwargs], self.program.call_spec.in_spec)
        return tuple(args), kwargs

    def compute(self, leaves: Sequence[Leaf], feed: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs for one feed, flat and named; none has the name of an input."""
        taken = [leaf.name for leaf in leaves]
        return {name: to_array(tensor) for name, tensor in named_outputs(self._called(leaves, feed), taken)}

    def output_names(self, leaves: Sequence[Leaf], feed: Mapping[str, Array]) -> tuple[str, ...]:
        """The names that the model itself gives its outputs: an input may have the same."""
        return tuple(name for name, _ in named_outputs(self._called(leaves, feed)))

    def _called(self, leaves: Sequence[Leaf], feed: Mapping[str, Array]) -> Any:
        values = {leaf.name: value_for(leaf, feed[leaf.name]) for leaf in leaves}
        args, kwargs = self.arguments(leaves, values)
        with torch.no_grad(), torch.jit.optimized_execution(False):  # profiling pays off after many calls only
            return self.module(*args, **kwargs)


def _structured(leaves: Sequence[Leaf], values: Mapping[str, Any], depth: int = 0) -> Any:
    """One argument, its tuples, lists and dicts put together from the leaves."""
    if len(leaves[0].path) == depth:
        return values[leaves[0].name]
    groups: dict[int | str, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.path[depth], []).append(leaf)
    items = {key: _structured(group, values, depth + 1) for key, group in groups.items()}
    kind = leaves[0].kinds[depth]
    return items if kind == "dict" else tuple(items.values()) if kind == "tuple" else list(items.values())


def value_for(leaf: Leaf, array: Array) -> Any:
    """What ``forward`` takes for a leaf: a Python number, or a tensor of the leaf's dtype."""
    if leaf.scalar:
        return np.asarray(array).item()
    tensor = to_tensor(array)
    return tensor.to(torch.bfloat16) if leaf.dtype == "bfloat16" else tensor


def to_tensor(array: Array) -> torch.Tensor:
    """A tensor with its own memory; bfloat16 goes bit by bit."""
    copied = np.array(array, copy=True, order="C")
    if copied.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(copied.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(copied)


def to_array(tensor: Any) -> Array:
    """A tensor or Python number as an array; bfloat16 becomes float32."""
    if not isinstance(tensor, torch.Tensor):
        return np.asarray(tensor)
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.is_quantized:
        plain = plain.dequantize()
    if plain.dtype == torch.bfloat16:
        plain = plain.float()
    array: Array = plain.numpy().copy()
    return array


def named_outputs(result: Any, taken: Collection[str] = ()) -> list[tuple[str, Any]]:
    """The tensors of what ``forward`` returned, with names.

    One tensor is ``output``, several are ``output_0`` …; keys of a dict and fields of a named tuple
    are taken as they are, nested ones joined with ``_``.  ``None`` is left out.  A name that is ``taken`` by an input
    gets ``_out`` behind it.
    """
    found = list(_walk(result, ""))
    if not found:
        raise Unsupported("the model returns no tensor")
    if len(found) == 1 and found[0][0].isdecimal():
        found = [("", found[0][1])]
    names = [_named(path) for path, _ in found]
    if len(set(names)) < len(names):
        names = [f"output_{place}" for place in range(len(names))]
    return [(name, value) for name, (_, value) in zip(_apart(names, taken), found, strict=True)]


def _apart(names: Sequence[str], taken: Collection[str]) -> list[str]:
    used = {*taken, *names}
    found = []
    for name in names:
        fresh = name
        while name in taken and fresh in used:
            fresh += "_out"
        used.add(fresh)
        found.append(fresh)
    return found


def _named(path: str) -> str:
    if not path:
        return "output"
    return f"output_{path}" if path[0].isdecimal() else path


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if value is None:
        return
    if isinstance(value, torch.Tensor | bool | int | float | torch.SymInt | torch.SymFloat | torch.SymBool):
        yield path, value
        return
    items: Iterator[tuple[Any, Any]]
    if isinstance(value, Mapping):
        items = iter(value.items())
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        items = iter(zip(value._fields, value, strict=True))
    elif isinstance(value, tuple | list):
        items = iter(enumerate(value))
    elif hasattr(value, "__dataclass_fields__"):
        items = iter((name, getattr(value, name)) for name in value.__dataclass_fields__)
    else:
        raise Unsupported(
            f"forward returns a {type(value).__name__}; expected tensors, or tuples, lists and dicts of them"
        )
    for key, item in items:
        yield from _walk(item, f"{path}_{key}" if path else str(key))

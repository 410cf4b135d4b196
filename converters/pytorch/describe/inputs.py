"""Which arrays a model takes: from what it was traced or exported with, from ``--input``, else asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from convertkit.artifact import Dim
from convertkit.converters.pytorch.model.examples import Example, ExampleArray, Item
from convertkit.converters.pytorch.model.leaves import BATCH, Kind, Leaf, Path, counted, leaf_name
from convertkit.converters.pytorch.model.subject import Parameter, Subject
from convertkit.errors import UsageError

SCALARS = {"int": "int64", "float": "float32", "bool": "bool", "number": "float32", "Scalar": "float32"}


class ShapesUnsaid(UsageError):
    """Parameters of which neither the file nor a flag says the shape."""

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = tuple(parameters)
        names = ", ".join(f"{each.name} ({each.type or 'Tensor'})" for each in parameters)
        super().__init__(f"the file does not say the shape of: {names}")


def leaves_of(
    subject: Subject, examples: Sequence[Example] | Mapping[str, Example] | None, options: Sequence[Mapping[str, Any]]
) -> tuple[Leaf, ...]:
    """The model's inputs in the order of ``forward``'s parameters.

    ``options`` are ``--input`` flags as mappings.  Raises ``UsageError`` for a name that the model lacks
    and ``ShapesUnsaid`` where a shape is known from nowhere.
    """
    if isinstance(examples, Mapping):
        known = dict(examples)
    else:
        known = {p.name: example for p, example in zip(subject.parameters, examples or (), strict=False)}
    given = {str(option["name"]): option for option in options}
    found: list[Leaf] = []
    missing: list[Parameter] = []
    parameters = {parameter.name for parameter in subject.parameters}
    for parameter in subject.parameters:
        own_flags = {name: flag for name, flag in given.items() if name == parameter.name or name not in parameters}
        own = _of_parameter(parameter, known.get(parameter.name), own_flags)
        found += own
        if not own and parameter.required:
            missing.append(parameter)
    names = {leaf.name for leaf in found}
    if unknown := [name for name in given if name not in names]:
        have = ", ".join(parameter.name for parameter in subject.parameters) or "none"
        raise UsageError(f"--input {unknown[0]}: the model has no such input; it has: {have}")
    if missing:
        raise ShapesUnsaid(missing)
    if not found:
        raise UsageError("the model's forward takes no input")
    return tuple(found)


def _of_parameter(parameter: Parameter, example: Example | None, given: Mapping[str, Mapping[str, Any]]) -> list[Leaf]:
    if parameter.name in given:
        known = example[0].array if example and not example[0].path else None
        return [_given(parameter, given[parameter.name], known)]
    if example is None:
        example = _structure(parameter, given)
        known_arrays: list[ExampleArray | None] = [None] * len(example)
    else:
        known_arrays = [item.array for item in example]
    found = []
    for item, array in zip(example, known_arrays, strict=True):
        name = leaf_name(parameter.name, item.path)
        leaf = (
            _given(parameter, given[name], array)
            if name in given
            else Leaf(name, parameter.name, item.array.shape, item.array.dtype, value_range=item.array.value_range)
        )
        found.append(dataclasses.replace(leaf, name=name, path=item.path, kinds=item.kinds))
    return found


_NOTHING_KNOWN = ExampleArray((), "float32")


def _structure(parameter: Parameter, given: Mapping[str, Mapping[str, Any]]) -> Example:
    """What ``--input`` flags say about a parameter that is a tuple, list or dict: ``x_0``, ``x_key``, ``x_1_0``."""
    if parameter.type in ("Tensor", "Optional[Tensor]", *SCALARS):
        return ()
    suffixes = [name.removeprefix(f"{parameter.name}_") for name in given if name.startswith(f"{parameter.name}_")]
    items = [Item(_NOTHING_KNOWN, *_way(parameter.type, suffix)) for suffix in suffixes]
    if any("dict" in item.kinds for item in items):
        return tuple(items)
    return tuple(sorted(items, key=lambda item: tuple(int(step) for step in item.path)))


def _way(kind: str, suffix: str) -> tuple[Path, tuple[Kind, ...]]:
    """The path that ``suffix`` names in a value of the type ``kind`` (TorchScript's word, or an annotation)."""
    if not suffix:
        return (), ()
    kind = kind.removeprefix("typing.").removeprefix("Optional[")
    head, _, rest = suffix.partition("_")
    if not head.isdecimal():
        return (suffix,), ("dict",)
    path, kinds = _way(kind[len("List[") :] if kind.startswith(("List[", "list[")) else "", rest)
    return (int(head), *path), ("list" if kind.lower().startswith("list") else "tuple", *kinds)


def _given(parameter: Parameter, option: Mapping[str, Any], known: ExampleArray | None) -> Leaf:
    shape: tuple[Dim, ...] = tuple(option["shape"] or ())
    scalar = parameter.type in SCALARS
    given = bool(shape)
    if not given:  # NAME::DTYPE[LOW,HIGH) adds to what is known
        shape = known.shape if known is not None else ()
    dtype = option["dtype"] or (known.dtype if known else SCALARS.get(parameter.type, "float32"))
    if known is not None and len(shape) != len(known.shape):
        raise UsageError(
            f"--input {option['name']}: {len(shape)} dimensions, the model was traced with {list(known.shape)}"
        )
    bounds = option["range"]
    value_range = (float(bounds[0]), float(bounds[1])) if bounds else known.value_range if known else None
    return Leaf(
        str(option["name"]),
        parameter.name,
        shape,
        str(dtype),
        value_range=value_range,
        scalar=scalar and not shape,
        given=given,
        told=bool(bounds),
    )


def free_batch(leaves: Sequence[Leaf], only_first: bool = False) -> tuple[Leaf, ...] | None:
    """The leaves with their common leading dimension freed, None where there is nothing to free.

    Shapes that the user gave stay as given.
    """
    candidates = [leaf for leaf in leaves if leaf.shape and not leaf.given and isinstance(leaf.shape[0], int)]
    if not candidates:
        return None
    size = candidates[0].shape[0]
    chosen = candidates[:1] if only_first else [leaf for leaf in candidates if leaf.shape[0] == size]
    names = {leaf.name for leaf in chosen}
    return tuple(
        dataclasses.replace(leaf, shape=(BATCH, *leaf.shape[1:])) if leaf.name in names else leaf for leaf in leaves
    )


def free_following(leaves: Sequence[Leaf], follows: Sequence[bool]) -> tuple[Leaf, ...] | None:
    """The leaves that follow an exported program's batch with their leading dimension freed."""
    if len(follows) != len(leaves) or any(leaf.given for leaf in leaves):
        return None
    return tuple(
        dataclasses.replace(leaf, shape=(BATCH, *leaf.shape[1:])) if free else leaf
        for leaf, free in zip(leaves, follows, strict=True)
    )


def free_second(leaves: Sequence[Leaf]) -> tuple[Leaf, ...] | None:
    """The same for a batch that comes second, as time-first modules have it."""
    candidates = [leaf for leaf in leaves if len(leaf.shape) > 2 and not leaf.given]
    if not candidates or any(isinstance(dim, str) for dim in candidates[0].shape[:2]):
        return None
    sizes = candidates[0].shape[:2]
    names = {leaf.name for leaf in candidates if leaf.shape[:2] == sizes}
    return tuple(
        dataclasses.replace(leaf, shape=(leaf.shape[0], BATCH, *leaf.shape[2:])) if leaf.name in names else leaf
        for leaf in leaves
    )


def flags_only(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """The leaves with 0 and 1 for all such integers, which every table of types and every mask has."""
    names = {leaf.name for leaf in counted(leaves)}
    return tuple(dataclasses.replace(leaf, value_range=(0.0, 2.0)) if leaf.name in names else leaf for leaf in leaves)


def example_sizes(leaves: Sequence[Leaf], original: Sequence[Leaf]) -> dict[str, int]:
    """Sizes of the named dimensions at which the model is known to work; 2 where nothing is known."""
    sizes: dict[str, int] = {}
    for leaf, before in zip(leaves, original, strict=True):
        for dim, size in zip(leaf.shape, before.shape, strict=True):
            if isinstance(dim, str):
                sizes.setdefault(dim, size if isinstance(size, int) else 2)
    return sizes

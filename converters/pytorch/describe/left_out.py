"""Inputs that a module can do without and its example leaves out, and sizes that the example fixes: said, with flags.

A mask over the positions of ids becomes an input where the example is the one that a class of transformers makes of
itself (``dummy_inputs``): without it such a model gives wrong results for every padded sample.  What somebody's own
example leaves out stays out, and a note names it with the flag that brings it in.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from convertkit.artifact import Dim
from convertkit.converters.pytorch.describe.input_suggestions import INNER, Flag, tables
from convertkit.converters.pytorch.describe.inputs import example_sizes
from convertkit.converters.pytorch.describe.prober import Prober
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.subject import Parameter
from convertkit.errors import SourceError, Unsupported

_MASK = re.compile(r"^(attention_|padding_|key_padding_)?mask$")
_IDS = re.compile(r"(^|_)ids$")


def with_mask(prober: Prober, leaves: tuple[Leaf, ...]) -> tuple[tuple[Leaf, ...], list[str]]:
    """The inputs of a module's own ``dummy_inputs`` with the mask that it takes, and what to tell."""
    subject = prober.subject
    if subject.kind != "eager" or not hasattr(subject.module, "dummy_inputs"):
        return leaves, []
    if any(leaf.given for leaf in leaves) or any(hasattr(subject.module, each) for each in _OWN_EXAMPLES):
        return leaves, []
    for parameter in _left_out(prober, leaves):
        if not _MASK.search(parameter.name):
            continue
        mask = next((leaf for leaf in _tries(prober, parameter, leaves) if _takes(prober, (*leaves, leaf))), None)
        if mask is not None:
            return _in_order(prober, (*leaves, mask)), [
                f"{mask.name} is an input, as the model takes it, though its dummy_inputs leave it out"
            ]
    return leaves, []


_OWN_EXAMPLES = ("example_inputs", "example_input_array")


def left_out_notes(prober: Prober, leaves: Sequence[Leaf], fixed: Sequence[Leaf]) -> list[str]:
    """What the example leaves out, and the sizes that it fixes."""
    if prober.subject.kind != "eager":
        return []
    return [*_inputs_left_out(prober, leaves, fixed), *_fixed_sizes(prober, leaves, fixed)]


def _inputs_left_out(prober: Prober, leaves: Sequence[Leaf], fixed: Sequence[Leaf]) -> list[str]:
    flags, others = [], []
    for parameter in _left_out(prober, leaves):
        tries = zip(_tries(prober, parameter, leaves), _tries(prober, parameter, fixed), strict=True)
        flag = next((free for free, own in tries if _takes(prober, (*fixed, own))), None)
        if flag is None:
            others.append(parameter.name)
        else:
            flags.append((parameter.name, _flag(flag)))
    told = [f"left out, as in the example: {name}; {flag} makes it an input" for name, flag in flags]
    return told + ([f"left out, as in the example: {', '.join(others)}"] if others else [])


def _fixed_sizes(prober: Prober, leaves: Sequence[Leaf], fixed: Sequence[Leaf]) -> list[str]:
    """Sizes behind the batch that the example fixes needlessly, and the flags that make them dynamic."""
    ids = [leaf.name for leaf in leaves if len(leaf.shape) == 2 and leaf.dtype in ("int32", "int64", "bool")]
    groups = [ids, *([leaf.name] for leaf in leaves if leaf.name not in ids)]
    flags = []
    for names in groups:
        own = {leaf.name: leaf for leaf in leaves if leaf.name in names and not leaf.given and not leaf.scalar}
        if free := _free_axes(prober, fixed, list(own)):
            flags += [_flag(dataclasses.replace(leaf, shape=_with_names(leaf.shape, free))) for leaf in own.values()]
    if not flags:
        return []
    return [f"the example fixes sizes of which the model takes others, too; {' '.join(flags)} frees them"]


def _free_axes(prober: Prober, fixed: Sequence[Leaf], names: Sequence[str]) -> list[int]:
    """Axes behind the first along which the model takes inputs of these names at another size."""
    shapes = {leaf.shape[1:] for leaf in fixed if leaf.name in names}
    if len(shapes) != 1:
        return []
    (shape,) = shapes
    axes = [axis for axis, size in enumerate(shape, 1) if isinstance(size, int)]
    found = [axis for axis in axes if _takes(prober, _stretched(fixed, names, {axis: 2}))]
    together = {axis: 2 + place for place, axis in enumerate(found)}
    return found if found and _takes(prober, _stretched(fixed, names, together)) else []


def _stretched(fixed: Sequence[Leaf], names: Sequence[str], times: Mapping[int, int]) -> tuple[Leaf, ...]:
    """Inputs at multiples of their sizes: of images a multiple of 32 stays one."""
    return tuple(
        dataclasses.replace(leaf, shape=_multiplied(leaf.shape, times)) if leaf.name in names else leaf
        for leaf in fixed
    )


def _multiplied(shape: tuple[Dim, ...], times: Mapping[int, int]) -> tuple[Dim, ...]:
    return tuple(dim * times.get(axis, 1) if isinstance(dim, int) else dim for axis, dim in enumerate(shape))


def _with_names(shape: tuple[Dim, ...], free: Sequence[int]) -> tuple[Dim, ...]:
    """The shape with names for the axes that are dynamic: of images their height and width, else the length."""
    names = INNER.get(len(free), tuple(f"SIZE_{axis}" for axis in free))
    return tuple(names[free.index(axis)] if axis in free else dim for axis, dim in enumerate(shape))


def _flag(leaf: Leaf) -> str:
    bounds = None if leaf.value_range is None else (int(leaf.value_range[0]), int(leaf.value_range[1]))
    return Flag(leaf.shape, leaf.dtype, bounds).text(leaf.name)


def _left_out(prober: Prober, leaves: Sequence[Leaf]) -> Iterator[Parameter]:
    """Parameters that may be tensors and have no input."""
    taken = {leaf.parameter for leaf in leaves}
    for each in prober.subject.parameters:
        tensor = "Tensor" in each.type or (not each.type and _likely(each.name))
        if tensor and not each.required and each.constant is None and each.name not in taken:
            yield each


def _likely(name: str) -> bool:
    return _MASK.search(name) is not None or _IDS.search(name) is not None


def _tries(prober: Prober, parameter: Parameter, leaves: Sequence[Leaf]) -> Iterator[Leaf]:
    """Inputs that the parameter may stand for: over the positions of the first ids, the same ones for any sizes."""
    ids = next((leaf for leaf in leaves if len(leaf.shape) == 2 and leaf.dtype in ("int32", "int64")), None)
    if ids is None or not _likely(parameter.name):
        return
    kinds: list[tuple[str, tuple[float, float] | None]] = [("int64", (0.0, 2.0)), ("bool", None), ("float32", None)]
    if _IDS.search(parameter.name):
        found = next((flag.value_range for flag in tables(prober.subject, parameter.name) if flag.value_range), (0, 2))
        kinds = [("int64", (float(found[0]), float(found[1])))]
    shape: tuple[Dim, ...] = ids.shape
    yield from (Leaf(parameter.name, parameter.name, shape, dtype, value_range=bounds) for dtype, bounds in kinds)


def _in_order(prober: Prober, leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """The inputs in the order of ``forward``'s parameters."""
    places: Mapping[str, int] = {each.name: place for place, each in enumerate(prober.subject.parameters)}
    return tuple(sorted(leaves, key=lambda leaf: places[leaf.parameter]))


def _takes(prober: Prober, leaves: Sequence[Leaf]) -> bool:
    ordered = _in_order(prober, leaves)
    try:
        prober.run(ordered, example_sizes(ordered, ordered), 1)
    except (SourceError, Unsupported):
        return False
    return True

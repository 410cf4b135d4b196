"""Bringing the interface of one model to that of another: names, order, layout, element types, sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convertkit.around import Around
from convertkit.artifact import Array, Artifact, Dim, TensorSpec
from convertkit.errors import ParityError
from convertkit.stage import Feed, Outputs, Runner

_LAYOUTS: Mapping[int, tuple[tuple[int, ...], ...]] = {
    rank: ((0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))) for rank in (3, 4, 5)
}
"""Channels moved to the end, and from there behind the batch."""


@dataclass(frozen=True, slots=True)
class Aligned:
    """How a model speaks another one's interface.

    ``artifact`` has the names, order and layout of the other; ``names`` are the model's own by these, ``moved`` the
    axes of what is stored in another order, ``sizes`` those of the other's named dimensions that are fixed here,
    ``notes`` what was matched other than by name.
    """

    artifact: Artifact
    names: Mapping[str, str]
    moved: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, int]
    notes: tuple[str, ...]

    def given(self, feed: Feed) -> Feed:
        """What the model itself is given for the other's ``feed``."""
        return {
            self.names[spec.name]: _encoded(spec, feed[spec.name], self.moved.get(spec.name))
            for spec in self.artifact.inputs
            if spec.name in feed
        }

    def runner(self, inner: Runner) -> Runner:
        """``inner`` that takes and gives the other model's interface."""
        return _Translated(inner, self)


def align(reference: Artifact, other: Artifact, titles: tuple[str, str]) -> Aligned:
    """How ``other`` speaks the interface of ``reference``; ``ParityError`` where it has another one."""
    notes, names = list[str](), dict[str, str]()
    moved, sizes = dict[str, tuple[int, ...]](), dict[str, int]()
    specs = list[tuple[TensorSpec, ...]]()
    for role in ("inputs", "outputs"):
        wanted: tuple[TensorSpec, ...] = getattr(reference, role)
        found = list[TensorSpec]()
        for mine, theirs in _pairs(role, wanted, getattr(other, role), titles, notes):
            perm = _perm(role, mine, theirs, titles)
            if perm:
                notes.append(f"{theirs.name} of {titles[1]} is taken for {mine.name} with its axes in the order {perm}")
                moved[mine.name] = perm
            shape = tuple(theirs.source_shape[axis] for axis in np.argsort(perm)) if perm else theirs.source_shape
            _check_type(role, mine, theirs, titles)
            sizes |= _sizes(mine.source_shape, shape)
            names[mine.name] = theirs.name
            found.append(_like(mine, theirs, shape))
        specs.append(tuple(found))
    artifact = replace(other, inputs=specs[0], outputs=specs[1])
    return Aligned(artifact, names, moved, sizes, tuple(notes))


def _like(mine: TensorSpec, theirs: TensorSpec, shape: tuple[Dim, ...]) -> TensorSpec:
    """What a comparison reads: the name of the one, the traits of the other."""
    return replace(theirs, name=mine.name, shape=shape, perm=(), quantization=None)


def _pairs(
    role: str,
    wanted: Sequence[TensorSpec],
    given: Sequence[TensorSpec],
    titles: tuple[str, str],
    notes: list[str],
) -> list[tuple[TensorSpec, TensorSpec]]:
    by_name = {spec.name: spec for spec in given}
    if {spec.name for spec in wanted} == by_name.keys():
        return [(spec, by_name[spec.name]) for spec in wanted]
    first, second = ([spec.name for spec in specs] for specs in (wanted, given))
    if len(wanted) != len(given):
        raise ParityError(f"{titles[0]} has the {role} {first}, {titles[1]} has {second}: they cannot be compared")
    notes.append(
        f"{role} are matched by their order: {', '.join(f'{a} = {b}' for a, b in zip(first, second, strict=True))}"
    )
    return list(zip(wanted, given, strict=True))


def _perm(role: str, mine: TensorSpec, theirs: TensorSpec, titles: tuple[str, str]) -> tuple[int, ...]:
    """How ``theirs`` comes from ``mine`` by moving axes; empty where it does without."""
    a, b = mine.source_shape, theirs.source_shape
    if _agree(a, b):
        return ()
    fitting = [perm for perm in _LAYOUTS.get(len(a), ()) if len(a) == len(b) and _agree([a[axis] for axis in perm], b)]
    if len(fitting) == 1:
        return fitting[0]
    raise ParityError(
        f"{role[:-1]} {mine.name} is {list(a)} in {titles[0]} and {list(b)} in {titles[1]}: they cannot be compared"
    )


def _agree(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return len(a) == len(b) and all(
        x == y or isinstance(x, str) or isinstance(y, str) for x, y in zip(a, b, strict=True)
    )


def _check_type(role: str, mine: TensorSpec, theirs: TensorSpec, titles: tuple[str, str]) -> None:
    kinds = ["real" if spec.quantization else "string" if spec.labels else _kind(spec.dtype) for spec in (mine, theirs)]
    if kinds[0] != kinds[1]:
        raise ParityError(
            f"{role[:-1]} {mine.name} is {mine.dtype} in {titles[0]} and {theirs.dtype} in {titles[1]}\n"
            "  try   the folder that an export delivered: its manifest tells what integers stand for"
        )


def _kind(dtype: str) -> str:
    if dtype in ("string", "bool"):
        return dtype
    return "complex" if "complex" in dtype else "real" if "float" in dtype else "whole"


def _sizes(mine: Sequence[Dim], theirs: Sequence[Dim]) -> dict[str, int]:
    pairs = zip(mine, theirs, strict=True)
    return {name: size for name, size in pairs if isinstance(name, str) and isinstance(size, int)}


def _encoded(spec: TensorSpec, value: Array, perm: tuple[int, ...] | None) -> Array:
    """A value in the order of axes and the element type of the model that is given it."""
    value = value.transpose(perm) if perm else value
    if spec.dtype in ("string", "bool") or value.dtype.kind not in "fiu":
        return value
    wanted = np.dtype(spec.dtype)
    return value.astype(wanted) if value.dtype.kind == wanted.kind else value  # what is encoded stays as it is


class _Translated(Around[Runner]):
    """A runner behind another model's interface."""

    def __init__(self, inner: Runner, how: Aligned) -> None:
        super().__init__(inner)
        self._how = how

    def run(self, feed: Feed) -> Outputs:
        """All outputs for one feed."""
        how = self._how
        found = self._inner.run(how.given(feed))
        return {spec.name: self._taken(spec.name, found[how.names[spec.name]]) for spec in how.artifact.outputs}

    def _taken(self, name: str, value: Array) -> Array:
        perm = self._how.moved.get(name)
        return value.transpose(np.argsort(perm)) if perm else value

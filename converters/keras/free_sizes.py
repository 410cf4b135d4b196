"""What JAX has to know of dynamic sizes to trace a Keras model: which are the same, how many at least and at most.

A Keras file has no names for the sizes of its inputs, only None: that tokens are as many as their mask, and no more
than there are positions, is in what the layers compute.  JAX says which sizes do not fit where it cannot trace them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from jax import export

from convertkit.formulas import names_in, size_of

Input = tuple[str, tuple[int | str, ...], str]
"""Name, shape with names where free, NumPy dtype."""

_COMPARED = re.compile(r"comparison '([^']+)' (<=|<|>=|>) '([^']+)' is inconclusive")
_SYMBOL = re.compile(r"\bd\d+\b")
_SHAPE = re.compile(r"\(([^()]*)\)")
_ARGUMENTS = "Arguments received by"
"""What follows says all that a layer got, whatever was wrong."""
_MOST_BOUNDS = 8
_TRIED = (32, 64, 16, 24, 8, 12, 48, 96, 128, 256, 512, 4, 3, 2, 1)
_MIRRORED = {"<=": ">=", "<": ">", ">=": "<=", ">": "<"}


@dataclass(frozen=True, slots=True)
class FreeSizes:
    """Inputs whose later sizes are multiples of ``factor``, and ``least`` times that or more.

    ``bounds`` are conditions such as ``d1 <= 16`` beyond these, of the symbols that :meth:`symbols` gives the names.
    """

    inputs: tuple[Input, ...]
    factor: int = 1
    least: int = 1
    bounds: tuple[str, ...] = ()

    def symbols(self) -> dict[str, Any]:
        """A symbolic size for every name, all of one scope."""
        names = self._names()
        if not names:
            return {}
        sizes = [
            f"{self.factor}*d{i}" if self.factor > 1 and name in self._later() else f"d{i}"
            for i, name in enumerate(names)
        ]
        least = [f"d{i} >= {self.least}" for i, name in enumerate(names) if self.least > 1 and name in self._later()]
        return dict(
            zip(names, export.symbolic_shape(", ".join(sizes), constraints=[*least, *self.bounds]), strict=True)
        )

    def of_same(self, error: Exception) -> FreeSizes | None:
        """With one name for sizes of one axis that do not go together in what ``error`` tells; None where none is."""
        if _COMPARED.search(str(error)):
            return None  # it tells of all bounds, too
        names = {self._symbol(name): name for name in self._names()}
        pairs = [pair for pair in _unequal(str(error).partition(_ARGUMENTS)[0]) if set(pair) <= names.keys()]
        axes = {str(dim): axis for _, shape, _ in self.inputs for axis, dim in enumerate(shape)}
        same: dict[str, str] = {}
        for pair in pairs:
            first, other = sorted((same.get(names[each], names[each]) for each in pair), key=list(axes).index)
            if first != other and axes[first] == axes[other] > 0:
                same = {name: first if now == other else now for name, now in same.items()} | {other: first}
        if not same:
            return None
        inputs = tuple(
            (name, (*shape[:1], *(same.get(str(dim), dim) for dim in shape[1:])), kind)
            for name, shape, kind in self.inputs
        )
        renamed = replace(self, inputs=inputs)
        symbols = {self._symbol(name): renamed._symbol(same.get(name, name)) for name in self._names()}
        return replace(renamed, bounds=tuple(_renamed(bound, symbols) for bound in self.bounds))

    def bounded(self, error: Exception) -> FreeSizes | None:
        """With the size up to which a comparison that JAX cannot decide has one result; None at another error."""
        found = _COMPARED.search(str(error))
        bound = _upper_bound(*found.groups()) if found else None
        if bound is None or bound in self.bounds or len(self.bounds) == _MOST_BOUNDS:
            return None
        return replace(self, bounds=(*self.bounds, bound))

    def told_bounds(self) -> tuple[str, ...]:
        """``bounds`` with the inputs' names of sizes."""
        names = {self._symbol(name): name for name in self._names()}
        return tuple(_renamed(bound, names) for bound in self.bounds)

    def known(self) -> dict[str, list[int]]:
        """Two sizes within the bounds for each name that they are about, by names; none without bounds."""
        symbols = sorted({symbol for bound in self.bounds for symbol in _SYMBOL.findall(bound)})
        fitting = list(self._fitting(symbols)) if symbols else []
        names = {self._symbol(name): name for name in self._names()}
        if not fitting:
            return {}
        first = fitting[0]
        other = max(fitting, key=lambda sizes: sum(sizes[each] != first[each] for each in symbols))
        return {names[each]: [self.factor * first[each], self.factor * other[each]] for each in symbols}

    def _fitting(self, symbols: Sequence[str]) -> Iterator[Mapping[str, int]]:
        """Sizes of ``symbols`` at which every bound holds; each is decided by what bounds it alone."""
        alone = [[size for size in _TRIED if size >= self.least and self._holds({each: size})][:4] for each in symbols]
        choices = (dict(zip(symbols, sizes, strict=True)) for sizes in product(*alone))
        return (sizes for sizes in choices if self._holds(sizes))

    def _holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether every bound holds that is about these sizes alone."""
        for bound in self.bounds:
            formula, _, most = bound.rpartition(" <= ")
            if set(names_in(formula)) <= sizes.keys():
                value = size_of(formula, sizes)
                if value is None or value > int(most):
                    return False
        return True

    def _names(self) -> list[str]:
        return sorted({dim for _, shape, _ in self.inputs for dim in shape if isinstance(dim, str)})

    def _later(self) -> set[int | str]:
        return {dim for _, shape, _ in self.inputs for dim in shape[1:]}

    def _symbol(self, name: str) -> str:
        return f"d{self._names().index(name)}"


def _unequal(told: str) -> list[tuple[str, str]]:
    """The pairs of symbols that stand at one place, counted from the end, of shapes in a sentence of JAX."""
    shapes = [[size.strip() for size in shape.split(",") if size.strip()] for shape in _SHAPE.findall(told)]
    places = (zip(reversed(one), reversed(other)) for one, other in combinations(shapes, 2))
    met = ((a, b) for place in places for a, b in place if a != b)
    return [(a, b) for a, b in met if _SYMBOL.fullmatch(a) and _SYMBOL.fullmatch(b)]


def _renamed(bound: str, names: Mapping[str, str]) -> str:
    return _SYMBOL.sub(lambda found: names[found[0]], bound)


def _upper_bound(left: str, operator: str, right: str) -> str | None:
    """The condition under which the comparison of a formula with a number is decided by the formula being small."""
    if left.lstrip("-").isdigit():
        left, operator, right = right, _MIRRORED[operator], left
    if not right.isdigit():
        return None
    return f"{left} <= {int(right) - (operator in ('<', '>='))}"

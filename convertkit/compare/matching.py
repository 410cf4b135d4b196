"""Which values inside of two models are the same: by name, else by what reads them, else by what they are.

Names are kept by every step of an export.  Two graphs of one structure are matched node by node from their inputs on.
Of what is left, values are matched whose elements, sorted, are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.probing import Inner

_FORMS = ("_dequantized", "_quantized", "/dequantized")
"""What the quantizer adds to the name of a value, for its integers and for what those stand for."""
_SHARE = 0.5
"""Of the values of the smaller graph that have to be found by name, for names to count."""
_ACTIVATIONS = frozenset({"Relu", "Clip", "Min", "Max"})
_LEAST = 16
"""Elements below which values may be alike by chance."""
_ALIKE, _ALIKE_ROUNDED = 1e-4, 3e-2
"""How far the quantiles of two values may be apart, in units of the largest element."""
_CLEARLY = 0.1
"""How much nearer one order of axes has to be than another."""
_QUANTILES = np.linspace(0.0, 1.0, 33)

Values = Callable[[Sequence[str]], Iterator[tuple[str, Array]]]
"""Values by name, computed in as many runs as their size asks for."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A value of the reference and the one of the other model that stands for it."""

    reference: Inner
    other: Inner


def by_name(first: Sequence[Inner], second: Sequence[Inner]) -> tuple[Pair, ...]:
    """Values of one name, the last of each in its own graph: what follows reads that; nothing where few have one."""
    left, right = _last_by_stem(first), _last_by_stem(second)
    pairs = [Pair(left[stem], right[stem]) for stem in left if stem in right]
    if len(pairs) < _SHARE * min(len(left), len(right)):
        return ()
    behind, meant = _Clamps(first), dict[str, Pair]()
    for pair in pairs:
        reference = behind.of(pair.reference) if pair.other.clamps else pair.reference
        if reference is not None and _are_of_a_kind(reference, pair.other):
            meant[reference.name] = Pair(reference, pair.other)
    order = {value.name: place for place, value in enumerate(first)}
    return tuple(sorted(meant.values(), key=lambda pair: order[pair.reference.name]))


class _Clamps:
    """The activations of a graph in which they are nodes of their own."""

    def __init__(self, values: Sequence[Inner]) -> None:
        self._readers: dict[str, list[Inner]] = defaultdict(list)
        self._made = {each.name: each for each in values}
        for each in values:
            for name in each.inputs:
                self._readers[name].append(each)

    def of(self, value: Inner) -> Inner | None:
        """What stands for a value behind its activation, which may be itself; None where that is not clear."""
        readers = self._readers[value.name]
        if len(readers) == 1 and readers[0].kind in _ACTIVATIONS:
            return self.of(readers[0])
        return value if self._is_clamped(value) else None

    def _is_clamped(self, value: Inner) -> bool:
        """Whether an activation makes it, or rounds it to integers."""
        while value.kind in ("QuantizeLinear", "DequantizeLinear") and value.inputs and value.inputs[0] in self._made:
            value = self._made[value.inputs[0]]
        return value.kind in _ACTIVATIONS


def _last_by_stem(values: Sequence[Inner]) -> dict[str, Inner]:
    """By the name without the quantizer's additions; for a QuantizeLinear stands the DequantizeLinear behind it."""
    found: dict[str, Inner] = {}
    for each in values:
        if each.kind not in ("QuantizeLinear", "DynamicQuantizeLinear") and each.dtype:
            found[_stem(each.name)] = each
    return found


def _stem(name: str) -> str:
    for form in _FORMS:
        name = name.removesuffix(form)
    return name


def _are_of_a_kind(a: Inner, b: Inner) -> bool:
    return _kind(a) == _kind(b)


def _kind(value: Inner) -> str:
    if value.quantization is not None or "float" in value.dtype:
        return "real"
    return "bool" if value.dtype == "bool" else "whole"


def by_structure(first: Sequence[Inner], second: Sequence[Inner], inputs: Mapping[str, str]) -> tuple[Pair, ...]:
    """Values of two graphs whose nodes are of one kind and read values that are matched; ``inputs`` are the first.

    ``inputs`` are names of the reference by those of the other.  Where several nodes of the reference would do, they
    are taken in their order.
    """
    waiting: dict[tuple[str, tuple[str, ...]], list[Inner]] = defaultdict(list)
    for each in first:
        waiting[each.kind, each.inputs].append(each)
    known, pairs = dict(inputs), list[Pair]()
    for each in second:
        if any(name not in known for name in each.inputs):
            continue
        fitting = waiting.get((each.kind, tuple(known[name] for name in each.inputs)), [])
        found = next((value for value in fitting if _are_of_a_kind(value, each) and value.shape == each.shape), None)
        if found is not None:
            fitting.remove(found)
            known[each.name] = found.name
            pairs.append(Pair(found, each))
    return tuple(pairs)


def by_values(
    first: Sequence[Inner], second: Sequence[Inner], of_first: Values, of_second: Values, *, rounded: bool
) -> tuple[Pair, ...]:
    """Values whose elements are the same whatever their order; ``rounded`` where one side computes in fewer bits."""
    alike = _ALIKE_ROUNDED if rounded else _ALIKE
    left, right = (_sketches(values, run) for values, run in ((first, of_first), (second, of_second)))
    pairs, taken = list[Pair](), set[str]()
    for each in second:
        sketch = right.get(each.name)
        if sketch is None:
            continue
        candidates = [
            (apart, value)
            for value in first
            if value.name in left and value.name not in taken and (apart := _apart(left[value.name], sketch)) <= alike
        ]
        if candidates:
            nearest = min(candidates, key=lambda pair: pair[0])[1]
            taken.add(nearest.name)
            pairs.append(Pair(nearest, each))
    order = {value.name: place for place, value in enumerate(first)}
    return tuple(sorted(pairs, key=lambda pair: order[pair.reference.name]))


def _sketches(values: Sequence[Inner], run: Values) -> dict[str, tuple[tuple[int, ...], Array]]:
    """Shapes and quantiles of what is neither small nor constant."""
    found = {}
    for name, array in run([each.name for each in values if _kind(each) == "real"]):
        if array.size >= _LEAST and np.isfinite(array).all() and np.ptp(array) > 0:
            found[name] = (array.shape, np.quantile(array.astype(np.float64), _QUANTILES))
    return found


def _apart(a: tuple[tuple[int, ...], Array], b: tuple[tuple[int, ...], Array]) -> float:
    if not _fitting(a[0], b[0]):
        return float("inf")
    return float(np.abs(a[1] - b[1]).max() / max(np.abs(a[1]).max(), np.abs(b[1]).max()))


def orders_of(values: Sequence[tuple[str, Array, Array]]) -> dict[str, tuple[int, ...] | None]:
    """The order of axes in which each value of the other is stored: ``other = reference.transpose(order)``.

    ``values`` are names with the reference's array and the other's.  Channels may stand first or last; where both fit,
    the one is taken that is clearly nearer, else what holds for the other values of this rank.  None where none fits.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    usual: dict[int, tuple[int, ...]] = {}
    open_ones = list[tuple[str, int, list[tuple[int, ...]]]]()
    for name, reference, other in values:
        fitting = _fitting(reference.shape, other.shape)
        clear = fitting if len(fitting) < 2 else _nearer(reference, other, fitting)
        if clear:
            usual.setdefault(reference.ndim, clear[0])
        elif fitting:
            open_ones.append((name, reference.ndim, fitting))
        found[name] = clear[0] if clear else None
    for name, rank, fitting in open_ones:
        wanted = usual.get(rank, fitting[0])
        found[name] = wanted if wanted in fitting else fitting[0]
    return found


def _nearer(reference: Array, other: Array, fitting: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The order in which the two are all but the same; none where that is not clear."""
    with np.errstate(invalid="ignore", over="ignore"):
        gaps = [float(np.nansum(np.abs(reference.transpose(order) - other.astype(np.float64)))) for order in fitting]
    first, second = sorted(range(len(gaps)), key=gaps.__getitem__)[:2]
    return [fitting[first]] if gaps[first] < _CLEARLY * gaps[second] or gaps[first] == gaps[second] == 0 else []


def _fitting(reference: tuple[int, ...], other: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The orders of axes in which a value of the one shape may be stored in the other."""
    rank = len(reference)
    plain = tuple(range(rank))
    orders = [plain] if rank < 3 else [plain, (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))]
    return [order for order in dict.fromkeys(orders) if tuple(reference[axis] for axis in order) == other]

"""Sizes for dynamic dimensions where no sample tells them: a batch of one, an image that is not a single pixel.

Exporters name what depends on another size by its formula (``4*H``, ``past + new``), which is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from convertkit.artifact import TensorSpec

SECOND_BATCH = 3
_INNER_SIZES = ((32, 64), (64, 64), (1, 3), (224, 224))
"""Sizes of neighbouring axes, and the other way round the second time.

Different ones first: what mixes height and width shows.  Multiples of 32, as nets halve images up to five times.
"""
_CROWDED, _SMALL_SIZES = 4, ((8, 16), (16, 16), (1, 3))
"""Where an input has so many dynamic axes besides the batch, the usual sizes make hundreds of millions of values."""
_LONG = (4096, 6144)
"""Of the one dynamic axis that a recording has: front ends of audio take no shorter ones."""
NOT_STATED: Mapping[str, Sequence[int]] = MappingProxyType({})
_FACTOR = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)")


def attempts(inputs: Sequence[TensorSpec]) -> int:
    """How many choices of sizes there are: one where at most the batch is dynamic."""
    leading = _leading(inputs)
    return len(_pairs(inputs, leading)) + (len(_pairs(inputs, both)) if (both := _batches(inputs)) != leading else 0)


def named_sizes(
    inputs: Sequence[TensorSpec], attempt: int, turn: int, stated: Mapping[str, Sequence[int]] = NOT_STATED
) -> Mapping[str, int]:
    """A size for every named dimension of ``inputs``; ``turn`` 1 gives other ones than 0.

    ``stated`` are all that a dimension may have: the first of them, then the last.
    """
    names = list(dict.fromkeys(_names(inputs)))
    batches: AbstractSet[str] = _leading(inputs)
    pairs = _pairs(inputs, batches)
    if attempt >= len(pairs):
        attempt, batches = attempt - len(pairs), _batches(inputs)
        pairs = _pairs(inputs, batches)
    pair = pairs[attempt]
    sizes = {name: (1, SECOND_BATCH)[turn] for name in names if name in batches}
    inner = {atom: pair[(place + turn) % 2] for place, atom in enumerate(_atoms(inputs, batches))}
    known = {**inner, **sizes, **{name: choices[-turn] for name, choices in stated.items()}}
    return {name: sum(factor * known[atom] for factor, atom in _terms(name)) for name in names}


def sizes_of_rows(inputs: Sequence[TensorSpec]) -> Sequence[Mapping[str, Sequence[int]]]:
    """Sizes for names that lead where they are no batch, but rows that another input counts or picks, or a sound."""
    leading = sorted(_leading(inputs))
    return [dict.fromkeys(leading, sizes) for sizes in (_INNER_SIZES[0], _LONG)]


def _pairs(inputs: Sequence[TensorSpec], batches: AbstractSet[str]) -> Sequence[tuple[int, int]]:
    """The choices of sizes for axes that are no batch, in turns."""
    inner = _atoms(inputs, batches)
    if not inner:
        return _INNER_SIZES[:1]
    if max(_dynamic_axes(spec, batches) for spec in inputs) >= _CROWDED:
        return _SMALL_SIZES
    return (*_INNER_SIZES, _LONG) if len(inner) == 1 else _INNER_SIZES


def _dynamic_axes(spec: TensorSpec, batches: AbstractSet[str]) -> int:
    return sum(isinstance(dim, str) and dim not in batches for dim in spec.source_shape)


def _batches(inputs: Sequence[TensorSpec]) -> AbstractSet[str]:
    """Names that lead, and those that a recurrent state may have for the batch, the only name of its input.

    Where exporters name axes apart, a state of (layers, batch, width) does not say that it goes with the others.
    """
    leading = _leading(inputs)
    named = [[dim for dim in spec.source_shape if isinstance(dim, str)] for spec in inputs]
    alone = {dims[0] for dims in named if len(dims) == 1}
    return leading | alone if leading else leading


def _names(inputs: Sequence[TensorSpec]) -> list[str]:
    return [dim for spec in inputs for dim in spec.source_shape if isinstance(dim, str)]


def _leading(inputs: Sequence[TensorSpec]) -> set[str]:
    """Names that only ever come first, as a batch does."""
    later = {dim for spec in inputs for dim in spec.source_shape[1:]}
    return {dim for spec in inputs for dim in spec.source_shape[:1] if isinstance(dim, str)} - later


def _atoms(inputs: Sequence[TensorSpec], batches: AbstractSet[str]) -> list[str]:
    """What the names that are no batches are made of."""
    found = dict.fromkeys(atom for name in _names(inputs) if name not in batches for _, atom in _terms(name))
    return [atom for atom in found if atom not in batches]


def _terms(name: str) -> list[tuple[int, str]]:
    """``2*a + b`` as factors and names; a name that is not such a sum as itself."""
    found = [_FACTOR.fullmatch(part.strip()) for part in name.split("+")]
    if any(match is None for match in found):
        return [(1, name)]
    return [(int(match[1] or 1), match[2]) for match in found if match is not None]

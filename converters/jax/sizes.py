"""Sizes of symbolic dimensions that a program takes: constraints may exclude the usual ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Protocol

from convertkit.converters.stablehlo.importer import Port
from convertkit.formulas import names_in, size_of

_PREFERRED = (32, 64, 16, 24, 8, 12, 48, 96, 128, 20, 10, 6, 4, 3, 2, 1, 256, 512, 1024, 4096)
_BATCHES = (1, 3, 2, 4, 8)
_GREATEST = 1024
_OF_EACH = 12
_TRIED = 10_000


class _Refusing(Protocol):
    """What refuses inputs of some sizes, where those that it is told suffice for that."""

    def refused(self, sizes: Sequence[Sequence[int | None]], /) -> bool: ...


def fitting_sizes(inputs: Sequence[Port], assertions: _Refusing) -> dict[str, list[int]]:
    """Two sizes for each symbol and each symbolic dimension of ``inputs``, at which nothing is refused.

    They are different ones where different ones are found, and none at all where no choice fits.
    """
    dims = list(dict.fromkeys(dim for each in inputs for dim in each.shape if isinstance(dim, str)))
    symbols = list(dict.fromkeys(symbol for dim in dims for symbol in names_in(dim)))
    leading = {each.shape[0] for each in inputs if each.shape}
    single = {
        symbol: list(islice(_taken_alone(inputs, assertions, symbol, batch=symbol in leading), _OF_EACH))
        for symbol in symbols
    }
    choices = islice(product(*single.values()), _TRIED)
    fitting = (
        sizes for choice in choices if _fits(inputs, assertions, sizes := dict(zip(symbols, choice, strict=True)))
    )
    first = next(fitting, None)
    if first is None or not symbols:
        return {}
    other = max(fitting, key=lambda sizes: sum(sizes[name] != first[name] for name in symbols), default=first)
    return {name: [_size(name, first), _size(name, other)] for name in dict.fromkeys((*symbols, *dims))}


def _taken_alone(inputs: Sequence[Port], assertions: _Refusing, symbol: str, *, batch: bool) -> Iterator[int]:
    """Sizes of one symbol that are not refused whatever the others are."""
    order: Iterable[int] = (*(_BATCHES if batch else ()), *_PREFERRED, *range(1, _GREATEST))
    return (size for size in dict.fromkeys(order) if _fits(inputs, assertions, {symbol: size}))


def _fits(inputs: Sequence[Port], assertions: _Refusing, sizes: Mapping[str, int]) -> bool:
    told = [[dim if isinstance(dim, int) else size_of(dim, sizes) for dim in each.shape] for each in inputs]
    return not any(size is not None and size < 1 for shape in told for size in shape) and not assertions.refused(told)


def _size(dim: str, sizes: Mapping[str, int]) -> int:
    size = size_of(dim, sizes)
    assert size is not None, "all symbols have a size"
    return size

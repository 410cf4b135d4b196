"""What the inputs of products are like: their moments, in the original model and in one that is partly pruned."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.pruning.products import Product
from convertkit.quantization.search.influence import influence
from convertkit.quantization.weights.blas import one_thread
from convertkit.quantization.weights.patches import positions
from convertkit.stage import Feed

_AT_ONCE = 2048
"""Columns whose products are summed up at once."""


_MOST_APART = 1 << 22
"""Numbers in the moments of a product whose every row has its own; else rows share them."""
_MOMENTS = 5e9
"""Multiply-adds that the moments of one product may cost, if they need not cost more."""
_MOST_POSITIONS = 4096
_EVEN = 1.0
"""What every position counts, as a share of what one counts in the mean."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What errors of one product's outputs count in one sample.

    ``at`` is (parts, positions, rows), with the mean over rows alone where the product is large; ``rows`` is (parts,
    rows), the mean over positions.
    """

    at: Array
    rows: Array


class Inputs:
    """Sums over the inputs ``x`` of one product and over the original model's ``o`` at the same places.

    Where it is known how much the outputs depend on each row at each position, errors count as much.  A small product
    then has moments for every row, each row being a part of its own; in a large one positions count by the mean of the
    rows and rows by the mean of the positions.
    """

    def __init__(self, apart: bool) -> None:
        self._apart = apart
        self._waiting: list[tuple[Array, Array, Weights | None]] = []
        self._even, self._weighed = _Sums(), _Sums()
        self._rows: Array = np.zeros(())

    def add(self, now: Array, before: Array, weights: Weights | None = None) -> None:
        """Add columns, (parts, positions, columns), all with weights or none; ``before`` may be ``now`` itself."""
        self._waiting.append((now, before, weights))
        if sum(each.shape[1] for each, *_ in self._waiting) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Sum up what waits."""
        if not self._waiting:
            return
        alone = all(now is before for now, before, _ in self._waiting)
        now = np.concatenate([each for each, *_ in self._waiting], axis=1)
        before = now if alone else np.concatenate([each for _, each, _ in self._waiting], axis=1)
        self._even.add(now, before)
        given = [weights for *_, weights in self._waiting if weights is not None]
        if given:
            self._rows = self._rows + np.sum([each.rows for each in given], axis=0, dtype=np.float64)
            self._weighed.add(now, before, np.concatenate([each.at for each in given], axis=1))
        self._waiting.clear()

    @property
    def weighed(self) -> bool:
        """Whether errors count by what the outputs depend on."""
        return self._weighed.count > 0

    def split(self, rows: Array) -> Array:
        """``rows`` of the product, (parts, rows, columns), as the moments take them."""
        return rows.reshape(-1, 1, rows.shape[2]) if self.weighed and self._apart else rows

    def importance(self, rows: Array) -> Array:
        """Of each of :meth:`split` rows beyond what the moments hold, (parts, rows, 1)."""
        if not self.weighed or self._apart:
            return np.ones((*rows.shape[:2], 1))
        found = self._rows / max(float(self._rows.mean()), 1e-300)
        return np.asarray((found + _EVEN)[:, :, None])

    def moments(self, *, centred: bool) -> tuple[Array, Array]:
        """E[x xᵀ] and E[o xᵀ], (parts, columns, columns), float64; of deviations from the mean where ``centred``."""
        sums = self._sums()
        second, cross = sums.second / sums.count, sums.cross / sums.count
        if not centred:
            return second, cross
        now, before = self.means()
        share = (sums.weight / sums.count)[:, None, None]
        return second - share * now[:, :, None] * now[:, None, :], cross - share * before[:, :, None] * now[:, None, :]

    def means(self) -> tuple[Array, Array]:
        """Of the inputs, and of the original ones, (parts, columns)."""
        sums = self._sums()
        weight = np.maximum(sums.weight, 1e-300)[:, None]
        return sums.now / weight, sums.before / weight

    def _sums(self) -> _Sums:
        """Where errors are weighed, every position counts a little all the same."""
        if not self.weighed:
            return self._even.flat()
        weighed = self._weighed
        return weighed.plus(self._even, _EVEN * weighed.weight / weighed.count).flat()


class _Sums:
    """Sums with a weight for each position and row, (parts, rows, …)."""

    def __init__(self) -> None:
        self.second: Array = np.zeros(())
        self.cross: Array = np.zeros(())
        self.now: Array = np.zeros(())
        self.before: Array = np.zeros(())
        self.weight: Array = np.zeros(())
        self.count = 0

    def add(self, now: Array, before: Array, weights: Array | None = None) -> None:
        for_row = [now] if weights is None else [now * column[:, :, None] for column in np.moveaxis(weights, 2, 0)]
        second = np.stack([np.matmul(each.transpose(0, 2, 1), now) for each in for_row], axis=1)
        cross = second
        if now is not before:
            cross = np.stack([np.matmul(before.transpose(0, 2, 1), each) for each in for_row], axis=1)
        ones = np.ones((*now.shape[:2], 1), np.float32) if weights is None else weights
        self.second, self.cross = self.second + second.astype(np.float64), self.cross + cross.astype(np.float64)
        self.now = self.now + np.einsum("pnr,pnc->prc", ones, now, optimize=True).astype(np.float64)
        self.before = self.before + np.einsum("pnr,pnc->prc", ones, before, optimize=True).astype(np.float64)
        self.weight = self.weight + ones.sum(axis=1, dtype=np.float64)
        self.count += now.shape[1]

    def plus(self, other: _Sums, factor: Array) -> _Sums:
        """The sums with ``factor`` (parts, rows) times those of ``other``, which has one row."""
        made = _Sums()
        wide, square = factor[:, :, None], factor[:, :, None, None]
        made.second, made.cross = self.second + square * other.second, self.cross + square * other.cross
        made.now, made.before = self.now + wide * other.now, self.before + wide * other.before
        made.weight, made.count = self.weight + factor * other.weight, self.count
        return made

    def flat(self) -> _Sums:
        """Rows as parts of their own."""
        made = _Sums()
        made.second, made.cross, made.now, made.before = (
            each.reshape(-1, *each.shape[2:]) for each in (self.second, self.cross, self.now, self.before)
        )
        made.weight, made.count = self.weight.reshape(-1), self.count
        return made


def measure_inputs(
    models: Sequence[ir.Model],
    products: Sequence[Product],
    feeds: Sequence[Feed],
    state: Mapping[str, Array],
    seed: int,
    weights: Sequence[Mapping[str, Weights]] = (),
) -> dict[Product, Inputs]:
    """The inputs of ``products`` in the last of ``models``, beside those in the first one.

    ``weights`` are those of :func:`measure_weights`, of the same feeds and seed.
    """
    names = list(dict.fromkeys(str(product.value.name) for product in products))
    found = {product: Inputs(_is_small(product)) for product in products}
    share = {product: _share(product, len(feeds)) for product in products}
    answers = zip(feeds, weights or ({},) * len(feeds), *(_observed(model, names, feeds, state) for model in models),
                  strict=True)  # fmt: skip
    with one_thread():
        for place, (feed, counts, *seen) in enumerate(answers):
            for product in products:
                name = str(product.value.name)
                arrays = [feed[name] if name in feed else values[name] for values in seen]
                columns = [product.columns(each, share[product], _random(seed, product, place)) for each in arrays]
                found[product].add(columns[-1], columns[0], counts.get(product.name))
        for inputs in found.values():
            inputs.flush()
    return found


def measure_weights(
    model: ir.Model, products: Sequence[Product], feeds: Sequence[Feed], state: Mapping[str, Array], seed: int
) -> list[dict[str, Weights]]:
    """What errors of each product count for the outputs of ``model``, for each feed by the products' names."""
    names = [product.output for product in products if product.output is not None]
    found = []
    for place, gradients in enumerate(influence(model, names, feeds, state, seed)):
        made = {}
        for product in products:
            if product.output is not None and product.output in gradients:
                share, random = _share(product, len(feeds)), _random(seed, product, place)
                every = product.weights(gradients[product.output], share, random)
                at = every if _is_small(product) else every.mean(axis=2, keepdims=True)
                made[product.name] = Weights(at, every.mean(axis=1))
        found.append(made)
    return found


def _random(seed: int, product: Product, place: int) -> np.random.Generator:
    """The same for a product's inputs and its outputs, so that both are of the same positions."""
    return np.random.default_rng([seed, zlib.crc32(product.name.encode()), place])


def _share(product: Product, feeds: int) -> int:
    """How many positions of each feed are taken: neighbours resemble each other, so all where that is cheap."""
    least = positions(product.rows.shape[2], feeds)
    return int(np.clip(_MOMENTS / (_at_one_position(product) * feeds), least, _MOST_POSITIONS))


def _at_one_position(product: Product) -> float:
    parts, rows, columns = product.rows.shape
    return float(parts * columns**2 * (rows if _is_small(product) else 1))


def _is_small(product: Product) -> bool:
    parts, rows, columns = product.rows.shape
    return bool(parts * rows * columns**2 <= _MOST_APART)


def _observed(
    model: ir.Model, names: Sequence[str], feeds: Sequence[Feed], state: Mapping[str, Array]
) -> Iterator[dict[str, Array]]:
    """Values by name for each feed, of inner values and outputs; ``model`` is not changed."""
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    wanted = [name for name in names if name in made]
    if not state:  # what lies behind the values need not be computed
        copy.graph.outputs.clear()
    copy.graph.outputs.extend(made[name] for name in wanted if not made[name].is_graph_output())
    if not copy.graph.outputs:
        return ({} for _ in feeds)
    RemoveUnusedNodesPass()(copy)
    return run_all(open_session(copy), wanted, feeds, state)

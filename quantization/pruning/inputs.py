"""What the inputs of products are like: their moments, in the original model and in one that is partly pruned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.quantization.pruning.products import Product
from convertkit.quantization.weights.blas import one_thread
from convertkit.quantization.weights.patches import positions
from convertkit.stage import Feed

_AT_ONCE = 2048
"""Columns whose products are summed up at once."""


class Inputs:
    """Sums over the inputs ``x`` of one product and over the original model's ``o`` at the same places."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Array, Array]] = []
        self._second: Array = np.zeros(())
        self._cross: Array | None = None
        self._mean: Array = np.zeros(())
        self._original: Array = np.zeros(())
        self._count = 0

    def add(self, now: Array, before: Array) -> None:
        """Add columns, (parts, positions, columns); ``before`` may be ``now`` itself."""
        self._waiting.append((now, before))
        if sum(each.shape[1] for each, _ in self._waiting) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Sum up what waits."""
        if not self._waiting:
            return
        alone = all(now is before for now, before in self._waiting)
        now = np.concatenate([each for each, _ in self._waiting], axis=1)
        self._second = self._second + np.matmul(now.transpose(0, 2, 1), now)
        self._mean = self._mean + now.sum(axis=1, dtype=np.float64)
        self._count += now.shape[1]
        if not alone:
            before = np.concatenate([each for _, each in self._waiting], axis=1)
            self._cross = np.matmul(before.transpose(0, 2, 1), now) + (0.0 if self._cross is None else self._cross)
            self._original = self._original + before.sum(axis=1, dtype=np.float64)
        self._waiting.clear()

    def moments(self, *, centred: bool) -> tuple[Array, Array]:
        """E[x xᵀ] and E[o xᵀ], (parts, columns, columns), float64; of deviations from the mean where ``centred``."""
        second = self._second.astype(np.float64) / self._count
        cross = second if self._cross is None else self._cross.astype(np.float64) / self._count
        if not centred:
            return second, cross
        now, before = self.means()
        return second - now[:, :, None] * now[:, None, :], cross - before[:, :, None] * now[:, None, :]

    def means(self) -> tuple[Array, Array]:
        """Of the inputs, and of the original ones, (parts, columns)."""
        mean = self._mean / self._count
        return mean, mean if self._cross is None else self._original / self._count


def measure_inputs(
    models: Sequence[ir.Model],
    products: Sequence[Product],
    feeds: Sequence[Feed],
    state: Mapping[str, Array],
    seed: int,
) -> dict[Product, Inputs]:
    """The inputs of ``products`` in the last of ``models``, beside those in the first one."""
    names = list(dict.fromkeys(str(product.value.name) for product in products))
    found = {product: Inputs() for product in products}
    share = {product: positions(product.rows.shape[2], len(feeds)) for product in products}
    answers = zip(feeds, *(_observed(model, names, feeds, state) for model in models), strict=True)
    with one_thread():
        for place, (feed, *seen) in enumerate(answers):
            for number, product in enumerate(products):
                name, taken = str(product.value.name), [seed, number, place]
                arrays = [feed[name] if name in feed else values[name] for values in seen]
                columns = [product.columns(each, share[product], np.random.default_rng(taken)) for each in arrays]
                found[product].add(columns[-1], columns[0])
        for inputs in found.values():
            inputs.flush()
    return found


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

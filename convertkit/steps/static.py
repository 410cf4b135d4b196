"""Sizes for a target whose runtime needs all of them before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convertkit.artifact import TensorSpec
from convertkit.errors import Unsupported
from convertkit.formulas import sizes_of_dims
from convertkit.stage import StaticTarget


def static_sizes(inputs: Sequence[TensorSpec], target: StaticTarget, implied: Mapping[str, int]) -> dict[str, int]:
    """A size for every dimension of ``inputs`` that is open: 1 for the batch, else the ``implied`` one.

    ``Unsupported`` names the first that is neither.
    """
    from convertkit.parity.feeds import batch_dim

    names = list(dict.fromkeys(dim for spec in inputs for dim in spec.shape if isinstance(dim, str)))
    batch = batch_dim([spec for spec in inputs if not spec.is_state])
    known = {**implied, **({} if batch is None else {batch: 1})}
    sizes = {name: known[name] for name in names if name in known}
    computed = sizes_of_dims(sizes, names)
    for spec in inputs:
        for dim in spec.shape:
            if isinstance(dim, str) and dim not in computed:
                raise Unsupported(
                    f"its size {dim} is dynamic, and {target.static_because}",
                    subject=f"input {spec.name}",
                    ways_out=(f"--static {dim}=SIZE",),
                )
    return sizes

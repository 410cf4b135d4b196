"""Sizes for a target whose runtime needs all of them before it starts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from convertkit.artifact import TensorSpec
from convertkit.errors import Unsupported
from convertkit.formulas import sizes_of_dims
from convertkit.stage import FlexibleTarget, StaticTarget, Target

if TYPE_CHECKING:
    from convertkit.recipe import ExportOptions


def left_open(target: Target, options: ExportOptions) -> Mapping[str, Sequence[int]]:
    """Dimensions that stay dynamic for a target which needs sizes otherwise, with sizes that it is verified at.

    Those of a target that it packages are among them.
    """
    from convertkit import plugins

    found = dict[str, Sequence[int]]()
    for part in plugins.parts_of(target, options):
        found |= part.left_open(options) if isinstance(part, FlexibleTarget) else {}
    return found


def stated_sizes(options: ExportOptions) -> Mapping[str, Sequence[int]]:
    """Sizes at which all is verified, by dimension: those that options of the targets state."""
    from convertkit import plugins

    names = options.targets if any(options.target_options.values()) else ()
    return {dim: sizes for name in names for dim, sizes in left_open(plugins.target(name), options).items() if sizes}


def static_sizes(
    inputs: Sequence[TensorSpec], target: StaticTarget, implied: Mapping[str, int], kept: Collection[str] = ()
) -> dict[str, int]:
    """A size for every dynamic dimension of ``inputs`` that is not ``kept``: 1 for the batch, else the ``implied`` one.

    ``Unsupported`` names the first that is neither.
    """
    from convertkit.parity.feeds import batch_dim

    names = list(dict.fromkeys(dim for spec in inputs for dim in spec.shape if isinstance(dim, str)))
    batch = batch_dim([spec for spec in inputs if not spec.is_state])
    known = {**implied, **({} if batch is None else {batch: 1})}
    sizes = {name: known[name] for name in names if name in known and name not in kept}
    computed = sizes_of_dims(sizes, names)
    for spec in inputs:
        for dim in spec.shape:
            if isinstance(dim, str) and dim not in computed and dim not in kept:
                raise Unsupported(
                    f"its size {dim} is dynamic, and {target.static_because}",
                    subject=f"input {spec.name}",
                    ways_out=(f"--static {dim}=SIZE",),
                )
    return sizes

"""What a model takes and gives, as the parent knows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from convertkit.artifact import TensorSpec
from convertkit.converters.pytorch.model.leaves import Leaf


@dataclass(frozen=True, slots=True)
class Interface:
    """Inputs and outputs with which a model computes, found by running it.

    ``sizes`` are those of the dynamic dimensions at which it does, the example's first.  ``slots`` is its state as
    JSON, ``initial_state`` the file that holds what that begins with, and ``notes`` tell the user of all this.
    ``rebatched`` says that the module takes other batches than the exported program that it was made from.
    """

    leaves: tuple[Leaf, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: tuple[Mapping[str, int], ...]
    slots: Sequence[Mapping[str, Any]] = ()
    initial_state: Path | None = None
    notes: tuple[str, ...] = ()
    rebatched: bool = False

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The same as an artifact has them."""
        return tuple(leaf.spec() for leaf in self.leaves)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.outputs)

    @property
    def known_sizes(self) -> dict[str, tuple[int, ...]]:
        """Of each dynamic dimension the sizes at which the model computes."""
        return {dim: tuple(sizes[dim] for sizes in self.sizes) for dim in self.sizes[0]}

    @property
    def is_dynamic(self) -> bool:
        """Whether a size of the inputs is."""
        return any(isinstance(dim, str) for leaf in self.leaves for dim in leaf.shape)

    @property
    def unset(self) -> tuple[str, ...]:
        """The state that is None before the first call."""
        return tuple(".".join(slot["path"]) for slot in self.slots if slot["unset"])

    def implied_sizes(self, fixed: Interface) -> dict[str, int]:
        """What ``fixed`` says of the sizes that are dynamic here and that the user did not give."""
        return {
            dim: size
            for leaf, before in zip(self.leaves, fixed.leaves, strict=True)
            for dim, size in zip(leaf.shape, before.shape, strict=True)
            if isinstance(dim, str) and isinstance(size, int) and not leaf.given
        }

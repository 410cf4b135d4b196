"""What the user is told of a model's interface: state, and names that had to change (in a fork of the worker)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from convertkit.converters.pytorch.describe.prober import Prober
from convertkit.converters.pytorch.model.leaves import Leaf
from convertkit.converters.pytorch.model.state import Slot, lifted


def state_notes(slots: Sequence[Slot]) -> list[str]:
    """Which attributes became inputs and outputs, and which were fixed."""
    notes = []
    if carried := [slot.name for slot in lifted(slots)]:
        notes.append(f"state became inputs and outputs: {', '.join(carried)}")
    if settled := [f"{slot.name} = {slot.constant}" for slot in slots if isinstance(slot.constant, bool | int | float)]:
        notes.append(f"fixed at the value of the first call: {', '.join(settled)}")
    if batches := [f"{slot.name} = {slot.constant}" for slot in slots if isinstance(slot.constant, str)]:
        notes.append(f"computed from the inputs' sizes: {', '.join(batches)}")
    return notes


def renaming_notes(
    prober: Prober, leaves: Sequence[Leaf], sizes: Mapping[str, int], outputs: Sequence[str]
) -> list[str]:
    """Which outputs have another name than the model gives them, because an input has that one."""
    taken = {leaf.name for leaf in leaves}
    if not any(name.endswith("_out") for name in outputs):
        return []
    return [
        f"the output {own!r} is called {name!r}, because an input is called {own!r}"
        for own, name in zip(prober.output_names(leaves, sizes), outputs, strict=True)
        if own in taken
    ]

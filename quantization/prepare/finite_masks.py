"""Masks of attention in numbers that integers express, for ``--full-integer``.

before:  Softmax (Where (keep, scores, -inf)), or Softmax (Add (scores, mask)) with a stored mask of 0 and -inf
after:   Softmax (Where (keep, scores, c)), where c lies so far below all measured scores that its weight is nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, array_of, is_float32, only_user, replaced
from convertkit.quantization.calibrate.observe import observe
from convertkit.stage import Feed

FAR: Final = 2.0**20
"""Beyond this a number stands for infinity."""
_BELOW: Final = 10.0
"""A weight of exp(-10), 1/90 of a step of a Softmax of bytes."""


def finite_masks(model: ir.Model, feeds: Iterable[Feed], state: Mapping[str, Array]) -> None:
    """Replace the number for infinity in every such choice, in place, by the scores that ``feeds`` give."""
    for node in tuple(model.graph):
        if _is_masking(node, "Add"):
            _choose(model.graph, node)
    found = [(node, *places) for node in model.graph if _is_masking(node, "Where") and (places := _places(node))]
    if not found:
        return
    measured = observe(model, [str(scores.name) for _, _, scores in found], feeds, state)
    for node, place, scores in found:
        low = measured[str(scores.name)].low
        if np.isfinite(low) and abs(low) < FAR:
            number = np.array(low - _BELOW, np.float32)
            node.replace_input_with(place, add_constant(model.graph, f"{node.outputs[0].name}_masked", number))


def _is_masking(node: ir.Node, operator: str) -> bool:
    """Whether a Softmax alone reads what ``operator`` makes."""
    if node.domain or node.op_type != operator:
        return False
    reader = only_user(node.outputs[0])
    return reader is not None and not reader.domain and reader.op_type == "Softmax"


def _choose(graph: ir.Graph, node: ir.Node) -> None:
    """A stored mask that is added as a choice by flags."""
    for mask, scores in (tuple(node.inputs), tuple(node.inputs)[::-1]):
        stored = array_of(mask)
        if mask is None or stored is None or scores is None or not _is_computed(scores):
            continue
        kept = stored == 0
        if not kept.all() and (stored[~kept] < -FAR).all():
            keep = add_constant(graph, f"{mask.name}_keep", kept)
            least = add_constant(graph, f"{mask.name}_least", np.array(stored.min(), np.float32))
            replaced(node, "Where", [keep, scores, least])
            return


def _places(node: ir.Node) -> tuple[int, ir.Value] | None:
    """The place of the number for infinity in a choice, and the scores."""
    for place, other in ((1, 2), (2, 1)):
        stored, scores = array_of(node.inputs[place]), node.inputs[other]
        is_far = stored is not None and stored.size == 1 and float(stored.reshape(-1)[0]) < -FAR
        if is_far and scores is not None and _is_computed(scores):
            return place, scores
    return None


def _is_computed(value: ir.Value) -> bool:
    return is_float32(value) and value.producer() is not None

"""Masks of attention in numbers that integers express, for ``--full-integer``.

before:  Softmax (Where (keep, scores, -inf)), or Softmax (Add (scores, mask)) with a mask of 0 and -inf, -10000, …
after:   Softmax (Where (keep, scores, c)), where c lies so far below all measured scores that its weight is nothing
         Softmax (Min (scores, limits)) for flags that are stored, the limits c and the largest measured score
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.onnx.edit import add_constant, array_of, dropped, inserted, is_same_shape, replaced
from convertkit.profile import QuantProfile
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.prepare.mask_flags import FAR, Masked, Masks
from convertkit.stage import Feed

_BELOW: Final = 10.0
"""A weight of exp(-10), 1/90 of a step of a Softmax of bytes."""


def finite_masks(model: ir.Model, profile: QuantProfile, feeds: Iterable[Feed], state: Mapping[str, Array]) -> None:
    """Replace the mask in front of every Softmax by such a choice, in place; ``feeds`` tell how low scores are.

    Limits are for kernels whose Min has one scale: NPUs have it where they have no choice.
    """
    least = profile.rule(("Min",))
    has_limits = least is not None and least.same_scale
    masks = Masks(model.graph)
    found = [
        (node, masked.rest, masked)
        for node in tuple(model.graph)
        if node.op_type == "Softmax" and not node.domain and (masked := masks.apart(node.inputs[0])) is not None
        if masked.rest is not None and masked.rest.producer() is not None
    ]
    if found:
        _tests_of_infinity(model.graph, masks)
        measured = observe(model, [str(scores.name) for _, scores, _ in found], feeds, state)
        for node, scores, masked in found:
            seen = measured[str(scores.name)]
            flags = _flags(node, masked)
            if flags is not None and _is_masked_out(seen, masked.mark):
                _choose(node, flags, scores, seen.low - _BELOW, seen.high if has_limits else None)
                _without_guards(node, masked)
    RemoveUnusedNodesPass()(model)


def _is_masked_out(scores: Statistics, mark: float) -> bool:
    """Whether what gets the mark has no weight beside any score that counts."""
    finite = np.isfinite(scores.high) and scores.low > FAR
    return bool(finite and scores.high + mark < scores.low - _BELOW)


def _choose(softmax: ir.Node, flags: ir.Value, scores: ir.Value, number: float, largest: float | None) -> None:
    value, stored = softmax.inputs[0], array_of(flags)
    assert value is not None
    if stored is None or largest is None:
        masked = add_constant(_graph(softmax), f"{value.name}_masked", np.array(number, np.float32))
        chosen = inserted(softmax, "Where", [flags, scores, masked], value)
    else:
        limits = np.where(stored, largest, number).astype(np.float32)
        chosen = inserted(
            softmax, "Min", [scores, add_constant(_graph(softmax), f"{value.name}_limits", limits)], value
        )
    softmax.replace_input_with(0, chosen.outputs[0])


def _flags(softmax: ir.Node, masked: Masked) -> ir.Value | None:
    """The flags of what counts: in rows without any, all count alike under a mark that leaves scores their trace."""
    if masked.mark <= FAR:
        return masked.flags
    none = _none_counts(softmax, masked.flags)
    if none is None:
        return None
    stored, rows = array_of(masked.flags), array_of(none)
    if stored is not None and rows is not None:
        return add_constant(_graph(softmax), f"{masked.flags.name}_or_none", np.logical_or(stored, rows))
    return _bool(softmax, "Or", [masked.flags, none], masked.flags)


def _none_counts(softmax: ir.Node, flags: ir.Value) -> ir.Value | None:
    """For each row of a Softmax whether no flag of it is true; None where flags do not differ along its axis."""
    value = softmax.inputs[0]
    assert value is not None
    axis = softmax.attributes.get_int("axis", -1)
    if value.shape is None or flags.shape is None:
        return None
    place = axis - len(value.shape) if axis >= 0 else axis
    if len(flags.shape) < -place:
        return None
    graph, stored = _graph(softmax), array_of(flags)
    if stored is not None:
        return add_constant(graph, f"{flags.name}_none", np.logical_not(stored.any(axis=place, keepdims=True)))
    rows = ir.Shape([1 if index == len(flags.shape) + place else size for index, size in enumerate(flags.shape)])
    numbers = inserted(softmax, "Cast", [flags], flags, {"to": int(ir.DataType.INT32)}).outputs[0]
    axes = add_constant(graph, f"{flags.name}_axis", np.array([place]))
    largest = inserted(softmax, "ReduceMax", [numbers, axes], flags, {"keepdims": 1}, rows).outputs[0]
    numbers.type = largest.type = ir.TensorType(ir.DataType.INT32)
    zero = add_constant(graph, f"{flags.name}_none", np.array(0, np.int32))
    return _bool(softmax, "Equal", [largest, zero], largest)


def _bool(before: ir.Node, operator: str, operands: list[ir.Value], like: ir.Value) -> ir.Value:
    made = inserted(before, operator, operands, like).outputs[0]
    made.type = ir.TensorType(ir.DataType.BOOL)
    return made


def _without_guards(softmax: ir.Node, masked: Masked) -> None:
    """``Where (IsNaN (y), 0, y)``, y the Softmax: only rows in which nothing counts are NaN, under a mark of -inf."""
    value = softmax.outputs[0]
    for test in [use.node for use in value.uses() if use.node.op_type == "IsNaN"]:
        for guard in [use.node for use in test.outputs[0].uses() if use.node.op_type == "Where"]:
            if guard.inputs[0] is not test.outputs[0] or guard.inputs[2] is not value:
                continue
            none = _none_counts(guard, masked.flags) if masked.mark == -np.inf else None
            if none is not None:
                guard.replace_input_with(0, none)
            elif masked.mark > -np.inf:
                dropped(guard, value)


def _tests_of_infinity(graph: ir.Graph, masks: Masks) -> None:
    """``Equal (mask, -inf)`` as what the flags say."""
    for node in tuple(graph):
        if node.domain or node.op_type != "Equal":
            continue
        for mask, number in (tuple(node.inputs), tuple(node.inputs)[::-1]):
            stored, found = array_of(number), masks.apart(mask)
            if stored is None or stored.size != 1 or stored.reshape(-1)[0] != -np.inf or found is None:
                continue
            if found.rest is None and found.mark == -np.inf and is_same_shape(found.flags.shape, node.outputs[0].shape):
                replaced(node, "Not", [found.flags])
                break


def _graph(node: ir.Node) -> ir.Graph:
    assert isinstance(node.graph, ir.Graph)
    return node.graph

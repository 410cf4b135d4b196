"""Float16: stored weights, or computed throughout, with exceptions where float16 would overflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.profile import STAYS_FLOAT
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.graph.units import constant, is_constant, is_float

GREATEST = 65504.0
_HEADROOM = 4.0
"""Activations must stay this factor below float16's greatest number on the measured samples."""
_LEAST_NORMAL = 2.0**-14
_LEAST_WEIGHTS = 64

# They sum many terms, divide by what may vanish, or do not exist in float16.
_STAYS_FLOAT = frozenset({
    "Resize", "Range", "CumSum", "ReduceSumSquare", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "Upsample",
    "NonMaxSuppression", "RoiAlign", "TopK", "RandomNormal", "RandomUniform", "Multinomial", "QuantizeLinear",
    "DequantizeLinear", "LSTM", "GRU", "RNN", "If", "Loop", "Scan", "STFT", "DFT", "MelWeightMatrix", "GridSample",
})  # fmt: skip


def store_half(model: ir.Model) -> tuple[str, ...]:
    """Weights as float16 behind a Cast, in place; returns the names of those that stay float32, being out of range."""
    kept = []
    for value in tuple(model.graph.initializers.values()):
        if not is_constant(value) or not is_float(value) or constant(value).size < _LEAST_WEIGHTS:
            continue
        if all(STAYS_FLOAT in use.node.metadata_props for use in value.uses()):
            continue
        if not fits_half(constant(value)):
            kept.append(str(value.name))
            continue
        uses = tuple(value.uses())
        name = str(value.name)
        stored = add_constant(model.graph, f"{name}_half", constant(value).astype(np.float16))
        cast = _cast(stored, ir.DataType.FLOAT, f"{name}_float")
        model.graph.insert_before(next(iter(model.graph)), cast)
        for use in uses:
            use.node.replace_input_with(use.idx, cast.outputs[0])
    drop_unused(model.graph)
    return tuple(kept)


def fits_half(array: np.typing.NDArray[np.floating]) -> bool:
    """Whether float16 keeps the array: no overflow, and nothing of weight vanishes among subnormals."""
    magnitude = np.abs(array)
    if not np.isfinite(array).all() or magnitude.max(initial=0.0) > GREATEST:
        return False
    small = (magnitude > 0) & (magnitude < _LEAST_NORMAL)
    # Small weights may lose digits beside large ones; a tensor that is small as a whole may not.
    return not small.any() or magnitude.max() > 64 * _LEAST_NORMAL


def compute_half(model: ir.Model, statistics: Mapping[str, Statistics]) -> tuple[str, ...]:
    """Every node in float16 but those that would overflow, in place; returns the names of the latter.

    Inputs and outputs of the graph stay float32, behind Casts.
    """
    kept = [node for node in model.graph if not _runs_in_half(node, statistics)]
    names = tuple(node.name or str(node.outputs[0].name) for node in kept if any(map(is_float, node.outputs)))
    halves = [node for node in model.graph if node not in set(kept)]
    made_half = {value for node in halves for value in node.outputs if is_float(value)}
    _retype(model.graph, halves, made_half)
    drop_unused(model.graph)
    return names


def _runs_in_half(node: ir.Node, statistics: Mapping[str, Statistics]) -> bool:
    if STAYS_FLOAT in node.metadata_props:
        return False
    if node.domain or node.op_type in _STAYS_FLOAT or not any(map(is_float, node.outputs)):
        return False
    if any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()
    ):
        return False
    if node.op_type in ("Cast", "Constant", "ConstantOfShape", "EyeLike"):
        return False
    if any(value is not None and value.dtype == ir.DataType.DOUBLE for value in node.inputs):
        return False
    measured = [
        statistics[str(v.name)] for v in (*node.inputs, *node.outputs) if v is not None and v.name in statistics
    ]
    limit = GREATEST / _HEADROOM
    if any(max(-each.low, each.high) > limit for each in measured if each.samples):
        return False
    fixed = [constant(value) for value in node.inputs if value is not None and is_constant(value) and is_float(value)]
    return all(np.abs(array).max(initial=0.0) <= GREATEST for array in fixed)


def _retype(graph: ir.Graph, halves: Iterable[ir.Node], made_half: set[ir.Value]) -> None:
    outputs = {value: place for place, value in enumerate(graph.outputs)}
    half_nodes = set(halves)
    casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
    values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
    for value in [value for value in values if is_float(value)]:
        own = ir.DataType.FLOAT16 if value in made_half else ir.DataType.FLOAT
        for use in tuple(value.uses()):
            wants = ir.DataType.FLOAT16 if use.node in half_nodes else ir.DataType.FLOAT
            if wants != own:
                key = (value, wants)
                if key not in casts:
                    casts[key] = _converted(graph, value, wants)
                use.node.replace_input_with(use.idx, casts[key])
    for value in made_half:
        value.dtype = ir.DataType.FLOAT16
        if value in outputs:
            name, value.name = str(value.name), f"{value.name}_half"
            real = casts.get((value, ir.DataType.FLOAT)) or _converted(graph, value, ir.DataType.FLOAT)
            graph.outputs[outputs[value]] = real
            real.name = name


def _converted(graph: ir.Graph, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    name = f"{value.name}_{'half' if dtype == ir.DataType.FLOAT16 else 'float'}"
    if is_constant(value) and dtype == ir.DataType.FLOAT16:
        return add_constant(graph, name, constant(value).astype(np.float16))
    cast = _cast(value, dtype, name)
    producer = value.producer()
    if producer is None:
        graph.insert_before(next(iter(graph)), cast)
    else:
        graph.insert_after(producer, cast)
    return cast.outputs[0]


def _cast(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Node:
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(dtype))], num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].shape, node.outputs[0].dtype = name, value.shape, dtype
    return node

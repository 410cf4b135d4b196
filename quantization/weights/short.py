"""A graph that computes in float16 or bfloat16, but for what would overflow, count wrongly or has no kernel there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from convertkit.onnx.casts import cast_node
from convertkit.onnx.edit import add_constant, drop_unused
from convertkit.profile import MOVED, STAYS_FLOAT
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.graph.units import constant, is_constant, is_float
from convertkit.quantization.weights.counting import counting

_HEADROOM = 4.0
"""Activations must stay this factor below the type's greatest number on the measured samples."""

# They sum many terms, divide by what may vanish, or do not exist in float16.
_STAYS_FLOAT = frozenset({
    "Resize", "Range", "CumSum", "ReduceSumSquare", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "Upsample",
    "NonMaxSuppression", "RoiAlign", "TopK", "RandomNormal", "RandomUniform", "Multinomial", "QuantizeLinear",
    "DequantizeLinear", "LSTM", "GRU", "RNN", "If", "Loop", "Scan", "STFT", "DFT", "MelWeightMatrix", "GridSample",
})  # fmt: skip
_MOVES = MOVED.keys() - {"MaxPool"}
_NAMES_ITS_TYPE = frozenset({
    "Cast", "Constant", "ConstantOfShape", "EyeLike", "BlackmanWindow", "HammingWindow", "HannWindow",
    "RandomNormalLike", "RandomUniformLike", "Bernoulli",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Short:
    """A float type of 16 bits.  ``opset`` is ONNX's first whose convolutions have it, ``flag`` asks for it.

    ``counts``: it does not hold whole numbers as far as models count, so that what does stays float32.
    """

    flag: str
    dtype: ir.DataType
    greatest: float
    suffix: str
    opset: int
    counts: bool

    @property
    def name(self) -> str:
        """As ONNX's schemas call a tensor of it."""
        return f"tensor({self.dtype.name.lower()})"


FLOAT16 = Short("fp16", ir.DataType.FLOAT16, 65504.0, "half", 1, counts=False)
BFLOAT16 = Short("bf16", ir.DataType.BFLOAT16, float.fromhex("0x1.fep127"), "bfloat16", 22, counts=True)


def compute_in(
    short: Short, model: ir.Model, statistics: Mapping[str, Statistics], lacks: Collection[str] = ()
) -> tuple[str, ...]:
    """Every node in ``short`` but those that would overflow, in place; returns the names of what stays float32.

    ``lacks`` are operators that the target has no kernel of that type for.  Inputs and outputs of the graph stay
    float32, behind Casts.
    """
    opset = model.graph.opset_imports[""]
    whole = counting(model.graph) if short.counts else frozenset()
    kept = [
        node
        for node in model.graph
        if node.op_type in lacks
        or node in whole
        or not _runs_in(short, node, statistics)
        or not _exists_in(short, node, opset)
    ]
    stay = _between(kept).union(kept)
    floats = [node for node in model.graph if node in stay and any(map(is_float, node.outputs))]
    names = tuple(node.name or str(node.outputs[0].name) for node in floats)
    narrowed = [node for node in model.graph if node not in stay]
    made = {value for node in narrowed for value in node.outputs if is_float(value)}
    _retype(short, model.graph, narrowed, made)
    drop_unused(model.graph)
    return names


def _between(kept: Collection[ir.Node]) -> frozenset[ir.Node]:
    """What only moves float32 values, all of them for nodes of ``kept``: two casts would round them for nothing.

    TensorRT-RTX 1.7 builds no GRU behind a Transpose between such casts.
    """
    found = _moving(node for each in kept for node in _producers(each))
    float32 = found.union(kept)
    while left := [node for node in found if not _carries(node, float32)]:
        found.difference_update(left)
        float32.difference_update(left)
    return frozenset(found)


def _moving(nodes: Iterable[ir.Node]) -> set[ir.Node]:
    """Those of ``nodes``, and of the nodes in front of them, that only move what they are given."""
    found, waiting = set[ir.Node](), list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found and not node.domain and node.op_type in _MOVES:
            found.add(node)
            waiting += _producers(node)
    return found


def _producers(node: ir.Node) -> list[ir.Node]:
    """Of its float inputs."""
    made = [value.producer() for value in node.inputs if value is not None and is_float(value)]
    return [each for each in made if each is not None]


def _carries(node: ir.Node, float32: Collection[ir.Node]) -> bool:
    """Whether all that ``node`` takes comes from float32 and all that reads it is float32; no output of the graph."""
    readers = [use.node for value in node.outputs for use in value.uses()]
    delivered = any(value.is_graph_output() for value in node.outputs)
    return not delivered and all(each in float32 for each in (*_producers(node), *readers))


def _runs_in(short: Short, node: ir.Node, statistics: Mapping[str, Statistics]) -> bool:
    if STAYS_FLOAT in node.metadata_props:
        return False
    if node.domain or node.op_type in _STAYS_FLOAT or not any(map(is_float, node.outputs)):
        return False
    if any(
        attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for attribute in node.attributes.values()
    ):
        return False
    if node.op_type in _NAMES_ITS_TYPE:
        return False
    if any(value is not None and value.dtype == ir.DataType.DOUBLE for value in node.inputs):
        return False
    measured = [
        statistics[str(v.name)] for v in (*node.inputs, *node.outputs) if v is not None and v.name in statistics
    ]
    limit = short.greatest / _HEADROOM
    if any(max(-each.low, each.high) > limit for each in measured if each.samples):
        return False
    fixed = [constant(value) for value in node.inputs if value is not None and is_constant(value) and is_float(value)]
    return all(np.abs(array).max(initial=0.0) <= short.greatest for array in fixed)


def _exists_in(short: Short, node: ir.Node, opset: int) -> bool:
    """Whether ONNX has the operator with all of its float32 inputs and outputs of that type."""
    schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    for formal, given in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        for place, value in enumerate(given):
            kind = formal[min(place, len(formal) - 1)].type_str  # the last one of many is variadic
            if is_float(value) and short.name not in allowed.get(kind, (kind,)):
                return False
    return True


def _retype(short: Short, graph: ir.Graph, narrowed: Iterable[ir.Node], made: set[ir.Value]) -> None:
    outputs = {value: place for place, value in enumerate(graph.outputs)}
    nodes = set(narrowed)
    casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
    values = [*graph.inputs, *graph.initializers.values(), *(v for node in graph for v in node.outputs)]
    for value in [value for value in values if is_float(value)]:
        own = short.dtype if value in made else ir.DataType.FLOAT
        for use in tuple(value.uses()):
            wants = short.dtype if use.node in nodes else ir.DataType.FLOAT
            if wants != own:
                key = (value, wants)
                if key not in casts:
                    casts[key] = _converted(short, graph, value, wants)
                use.node.replace_input_with(use.idx, casts[key])
    for value in made:
        value.type = ir.TensorType(short.dtype)
        if value in outputs:
            name, value.name = str(value.name), f"{value.name}_{short.suffix}"
            real = casts.get((value, ir.DataType.FLOAT)) or _converted(short, graph, value, ir.DataType.FLOAT)
            graph.outputs[outputs[value]] = real
            real.name = name


def _converted(short: Short, graph: ir.Graph, value: ir.Value, dtype: ir.DataType) -> ir.Value:
    name = f"{value.name}_{'float' if dtype == ir.DataType.FLOAT else short.suffix}"
    if is_constant(value) and dtype == short.dtype:
        return add_constant(graph, name, constant(value).astype(dtype.numpy()))
    cast = cast_node(value, dtype, name)
    producer = value.producer()
    if producer is None:
        graph.insert_before(next(iter(graph)), cast)
    else:
        graph.insert_after(producer, cast)
    return cast.outputs[0]

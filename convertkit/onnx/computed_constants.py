"""Weights that the graph computes from constants become constants: weight standardisation, norms, masks, averages.

Quantization sees weights, not how they come about: a weight stored in four bits in front of its standardisation is
another net.  The optimizer folds what is small; this folds the rest where the file does not grow by it.
"""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper

from convertkit.artifact import Array
from convertkit.onnx.onnxruntime_compat import NOT_COMPUTED
from convertkit.onnx.plain_constants import become_constant

_MOVES = """Slice Split Concat Unsqueeze Squeeze Reshape Flatten Transpose Identity Cast CastLike Expand Tile Gather
GatherElements GatherND Shape Size Range ConstantOfShape EyeLike OneHot Trilu Pad"""
_KEPT = """If Loop Scan DequantizeLinear DynamicQuantizeLinear RandomNormal RandomUniform
RandomNormalLike RandomUniformLike Bernoulli Multinomial Dropout SequenceConstruct SequenceAt ConcatFromSequence
SplitToSequence SequenceEmpty SequenceInsert SequenceErase SequenceLength Optional OptionalGetElement"""
"""Chance stays chance, the integers of a quantized weight are not made real, and no branch or sequence is a weight."""

_GROWTH = 2
"""A folded weight may take this much of what it is computed from: halves are computed with in float32."""
_SMALLEST_BYTES = 1 << 12
"""Results below this are folded whatever they are computed from."""
_KINDS = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT64, ir.DataType.INT32}
    | {ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.BOOL}
)
"""Element types that ONNX Runtime takes and gives as arrays."""
_QUIET = 4


def fold_computed_constants(model: ir.Model) -> bool:
    """Replace what ``model`` computes from constants alone, where arithmetic is in it; whether anything was.

    Evaluated as it would have been, by ONNX Runtime, one result after the other, its operands read where they lie.
    """
    known = _cone(model)
    cone = dict(known)
    for node in reversed(known):
        if not all(_affordable(value, known) for value in node.outputs if _leaves(value, cone)):
            del cone[node]
    ends = [(node, tuple(v for v in node.outputs if _leaves(v, cone))) for node in cone]
    return sum(_folded(model, node, leaving, known) for node, leaving in ends if leaving) > 0


def _cone(model: ir.Model) -> dict[ir.Node, None]:
    """Nodes of the main graph that depend on constants alone, each behind those that it reads."""
    kept, cone = frozenset(_KEPT.split()), dict[ir.Node, None]()
    for node in model.graph:
        operands = [value for value in node.inputs if value is not None]
        known = all(_is_constant(value) or value.producer() in cone for value in operands)
        takes = all(value.dtype in _KINDS for value in (*operands, *(v for v in node.outputs if v.name)))
        plain = node.domain == "" and node.op_type not in kept and not any(map(ir.Value.is_graph_output, node.outputs))
        named = all(value.name for value in (*operands, *node.outputs) if value.uses())
        if operands and known and takes and plain and named:
            cone[node] = None
    return cone


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and not value.is_graph_input()


def _leaves(value: ir.Value, cone: dict[ir.Node, None]) -> bool:
    return any(use.node not in cone for use in value.uses())


def _affordable(value: ir.Value, known: dict[ir.Node, None]) -> bool:
    """Whether ``value`` is worth its bytes in the file: computed, and not much larger than what it is computed from."""
    node, size = value.producer(), _bytes(value)
    assert node is not None
    if size is None:
        return False
    nodes, constants = _behind(node, known)
    if all(each.op_type in _MOVES.split() for each in nodes):
        return False  # the optimizer's own rule: moved weights may be read as they were, too
    if node.op_type == "Cast" and size > (_bytes(node.inputs[0]) or 0):
        return False  # halves stay halves
    return size <= max(_SMALLEST_BYTES, _GROWTH * sum(_bytes(each) or 0 for each in constants))


def _bytes(value: ir.Value | None) -> int | None:
    """Size of a value in bytes, None where a size is not known."""
    if value is None or value.dtype is None or value.shape is None:
        return None
    sizes = [size for size in tuple(value.shape) if isinstance(size, int)]
    return None if len(sizes) < len(value.shape) else math.ceil(math.prod(sizes) * value.dtype.itemsize)


def _behind(end: ir.Node, known: dict[ir.Node, None]) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes that ``end`` depends on, itself included, in the graph's order, and the constants that they read."""
    needed, waiting, constants = {end}, [end], dict[ir.Value, None]()
    while waiting:
        for value in waiting.pop().inputs:
            producer = None if value is None else value.producer()
            if value is not None and producer is None:
                constants[value] = None
            elif producer is not None and producer not in needed:
                needed.add(producer)
                waiting.append(producer)
    return [node for node in known if node in needed], list(constants)


def _folded(model: ir.Model, end: ir.Node, leaving: tuple[ir.Value, ...], known: dict[ir.Node, None]) -> bool:
    """Put results of ``end`` into the file; False where ONNX Runtime has no kernel for what is behind it."""
    nodes, constants = _behind(end, known)
    results = _evaluated(model, nodes, constants, leaving)
    for value, array in zip(leaving, results, strict=False):
        become_constant(model, value, array)
    return bool(results)


def _evaluated(
    model: ir.Model, nodes: list[ir.Node], constants: list[ir.Value], wanted: tuple[ir.Value, ...]
) -> list[Array]:
    """What ``nodes`` make of the constants; nothing where ONNX Runtime cannot say.

    Node by node: within a graph ONNX Runtime drops pairs of casts, and with them the rounding of halves.
    """
    known = {value: value.const_value.numpy() for value in constants if value.const_value is not None}
    try:
        for node in nodes:
            feed = {str(value.name): known[value] for value in node.inputs if value is not None}
            made = [value for value in node.outputs if value.name]
            known.update(zip(made, _session(model, node).run([str(value.name) for value in made], feed), strict=True))
    except NOT_COMPUTED:
        return []
    return [known[value] for value in wanted]


def _session(model: ir.Model, node: ir.Node) -> ort.InferenceSession:
    taken = [_declared(value) for value in dict.fromkeys(node.inputs) if value is not None]
    given = [_declared(value) for value in node.outputs if value.name]
    graph = helper.make_graph([ir.to_proto(node)], "constants", taken, given)
    opset = helper.make_opsetid("", model.graph.opset_imports[""])
    proto = helper.make_model(graph, opset_imports=[opset], ir_version=model.ir_version)
    options = ort.SessionOptions()
    options.log_severity_level = _QUIET
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _declared(value: ir.Value) -> onnx.ValueInfoProto:
    assert value.dtype is not None, "of a cone"
    return helper.make_tensor_value_info(value.name, value.dtype.value, None)

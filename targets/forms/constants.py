"""What can be known before the model runs: constant nodes in every graph, sizes, and branches of known conditions.

ONNX's own simplifier leaves the bodies of If and Loop alone, and exporters compute paddings and
shapes there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import onnx_ir.passes.common as common
from onnx.reference import ReferenceEvaluator

from convertkit.onnx.edit import array_of
from convertkit.onnx.rounded import rounded_function
from convertkit.targets.forms.bodies import infer_bodies
from convertkit.targets.forms.edits import new_constant
from convertkit.targets.forms.shape_arithmetic import fold_sizes

_MAX_ROUNDS = 6
_DEEPEST = 200
_LARGEST_BYTES = 64 << 20
_NOT_EVALUATED = """QuantizeLinear DequantizeLinear DynamicQuantizeLinear If Loop Scan RandomNormal RandomUniform
RandomNormalLike RandomUniformLike Bernoulli Multinomial ConstantOfShape Expand Tile Cast"""
_KEPT = frozenset(_NOT_EVALUATED.split())
"""Nodes that are not evaluated: integers stay integers, chance stays chance, weights are not blown up."""

_SMALL = 1 << 16


def fold_constants(model: ir.Model) -> None:
    """Evaluate nodes with constant inputs and inline branches with known conditions, in place."""
    for _ in range(_MAX_ROUNDS):
        if not infer_bodies(model.graph, dict(model.graph.opset_imports), model.ir_version):
            break
        common.ShapeInferencePass()(model)
    _fold(model)
    for _ in range(_DEEPEST):  # what folds shows more sizes: TensorFlow's padding is computed layer after layer
        if not fold_sizes(model):
            break
        infer_bodies(model.graph, dict(model.graph.opset_imports), model.ir_version)
        if not _fold(model):
            break


def _fold(model: ir.Model) -> bool:
    """Evaluate what is known, in place; whether anything was."""
    opset = model.graph.opset_imports.get("", 1)
    done = False
    for _ in range(_MAX_ROUNDS):
        graphs = [model.graph, *model.graph.subgraphs()]
        folded = [_fold_graph(graph, opset) for graph in graphs]
        if not any(folded):
            return done
        done = True
        common.RemoveUnusedNodesPass()(model)
        common.ShapeInferencePass()(model)
        infer_bodies(model.graph, dict(model.graph.opset_imports), model.ir_version)
    return done


def fix_inputs(model: ir.Model, fixed: Mapping[str, int]) -> None:
    """Let every use of an input with one known value see that value, in place; the input stays."""
    for value in model.graph.inputs:
        if value.name in fixed and value.dtype is not None and not value.is_graph_output():
            sizes = [size for size in value.shape or () if isinstance(size, int)]
            array = np.full(sizes, fixed[str(value.name)], value.dtype.numpy())
            value.replace_all_uses_with(new_constant(model.graph, f"{value.name}/fixed", array))


def _fold_graph(graph: ir.Graph, opset: int) -> bool:
    changed = False
    for node in list(graph):
        if node.graph is not graph or node.domain != "":
            continue
        if node.op_type == "If":
            changed |= _inline(graph, node)
            continue
        results = _sizes(node) if node.op_type in ("Shape", "Size") else _evaluated(node, opset)
        if results is not None and all(not value.is_graph_output() for value in node.outputs):
            for value, array in zip(node.outputs, results, strict=False):
                value.replace_all_uses_with(new_constant(graph, f"{value.name}/folded", array))
            graph.remove(node, safe=True)
            changed = True
    return changed


def _sizes(node: ir.Node) -> list[np.ndarray] | None:
    value = node.inputs[0]
    if value is None or value.shape is None:
        return None
    sizes = list(value.shape)
    if node.op_type == "Shape":
        start, end = node.attributes.get("start"), node.attributes.get("end")
        sizes = sizes[0 if start is None else start.value : len(sizes) if end is None else end.value]
    if not all(isinstance(size, int) for size in sizes):
        return None
    numbers = [int(size) for size in sizes if isinstance(size, int)]
    return [np.array(numbers if node.op_type == "Shape" else np.prod(numbers, dtype=np.int64), np.int64)]


def _evaluated(node: ir.Node, opset: int) -> list[np.ndarray] | None:
    """The outputs of a node whose inputs are all constants."""
    arrays = {str(value.name): array_of(value) for value in node.inputs if value is not None}
    if not arrays or any(array is None for array in arrays.values()) or _has_graph(node):
        return None
    largest = max(array.nbytes for array in arrays.values() if array is not None)
    if largest > _LARGEST_BYTES or (node.op_type in _KEPT and not _is_small(node, largest)):
        return None
    proto = ir.to_proto(node)
    assert isinstance(proto, onnx.NodeProto)
    try:
        attributes = {name: attribute.value for name, attribute in node.attributes.items()}
        exact = rounded_function(node.op_type, opset, [array_of(value) for value in node.inputs], attributes)
        if exact is not None:
            return [exact]
        results = ReferenceEvaluator(proto, opsets={"": opset}).run(None, arrays)
    except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError):
        return None  # the reference does not have it: it is lowered as it is
    return [np.asarray(result) for result in results]


def _is_small(node: ir.Node, largest: int) -> bool:
    if node.op_type not in ("ConstantOfShape", "Expand", "Tile", "Cast"):
        return False
    first = node.inputs[0]
    if node.op_type == "Cast" and first is not None and first.dtype == ir.DataType.FLOAT16:
        return True  # `halves` brings the weights back to float16 at the end
    shape = node.outputs[0].shape
    known = shape is not None and all(isinstance(size, int) for size in shape)
    count = int(np.prod([size for size in shape if isinstance(size, int)])) if known and shape is not None else _SMALL
    return count < _SMALL and largest < _SMALL


def _has_graph(node: ir.Node) -> bool:
    return any(attribute.type == ir.AttributeType.GRAPH for attribute in node.attributes.values())


def _inline(graph: ir.Graph, node: ir.Node) -> bool:
    """Replace an If of known condition by the nodes of its branch."""
    condition = array_of(node.inputs[0])
    if condition is None or any(value.is_graph_output() for value in node.outputs):
        return False
    branch = node.attributes["then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"].as_graph()
    for value in list(branch.initializers.values()):
        branch.initializers.pop(str(value.name))
        value.name = f"{node.name}/{value.name}"
        graph.register_initializer(value)
    results = list(branch.outputs)
    branch.outputs.clear()
    inner = list(branch)
    for each in inner:
        branch.remove(each)
        graph.insert_before(node, each)
    for old, new in zip(node.outputs, results, strict=True):
        old.replace_all_uses_with(new)
    graph.remove(node, safe=True)
    return True

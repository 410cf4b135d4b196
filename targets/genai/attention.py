"""Attention over a cache, written out in ONNX, as the one operator whose cache grows in place.

ONNX Runtime's GroupQueryAttention writes new keys and values into a buffer that is as long as the context, where the
graph would copy all old ones at each token.  What is recognised is the form in which a decoder has its cache as inputs
and outputs; anything else about it is refused, since a model that copies is not what GenAI is to run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.edit import add_constant
from convertkit.targets.decoders.cache import caches_of, groups_of, grown, layer_count

CONTRIB = "com.microsoft"
MASK = "attention_mask"
_LEAST_SIZE = 8


@dataclass(frozen=True, slots=True)
class Shape:
    """What GenAI has to know of a decoder's attention."""

    layers: int
    heads: int
    groups: int
    head_size: int


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Of the mask that GenAI gives: int32 ``last`` (1) is the last place, ``total`` the number of places."""

    last: ir.Value
    total: ir.Value


@dataclass(frozen=True, slots=True)
class _Found:
    """One layer's attention: what goes in, the node that gives (batch, places, heads × size), and its constants."""

    query: ir.Value
    joined: ir.Node
    heads: int
    scale: float
    cap: float
    window: int


def fuse(model: ir.Model) -> Shape:
    """Every layer's attention as one operator, in place; a mask of all places so far becomes the second input.

    Raises ``Unsupported`` for a model whose cache is not read and written as decoders do it.
    """
    graph = model.graph
    layers = layer_count(graph)
    lengths = _lengths(graph)
    sizes = set()
    for layer in range(layers):
        caches = caches_of(graph, layer)
        longer = [grown(cache) for cache in caches]
        found = _recognised(caches[0], *longer)
        groups, size = groups_of(caches[0])
        sizes.add((found.heads, groups, size))
        if size % _LEAST_SIZE:
            reason = f"heads of {size} numbers: GroupQueryAttention takes multiples of {_LEAST_SIZE}"
            raise Unsupported(reason, subject=str(caches[0].name), ways_out=("--target onnxruntime",))
        _replace(graph, caches, longer, found, lengths)
    if len(sizes) != 1:
        raise Unsupported("layers differ in heads or in the size of a head")
    _count_by_the_mask(graph, lengths)
    common.RemoveUnusedNodesPass()(model)
    graph.opset_imports[CONTRIB] = 1
    return Shape(layers, *sizes.pop())


def _lengths(graph: ir.Graph) -> _Lengths:
    """A new input of flags, one for each place so far, of which only the number is used."""
    mask = ir.Value(name=MASK, shape=ir.Shape([1, "total"]), type=ir.TensorType(ir.DataType.INT64))
    graph.inputs.insert(1, mask)
    count = _new(graph, "Size", mask)
    whole = _new(graph, "Cast", count, to=int(ir.DataType.INT32))
    last = _new(graph, "Sub", whole, add_constant(graph, "genai_one", np.array([1], np.int32)))
    return _Lengths(last, whole)


def _new(graph: ir.Graph, kind: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
    """A node in front of all others."""
    made = ir.node(kind, list(inputs), attributes, name=f"genai/{kind}_{len(graph)}")
    made.outputs[0].name = str(made.name)
    first = next((node for node in graph if not str(node.name).startswith("genai/")), None)
    assert first is not None, "a decoder has nodes"
    graph.insert_before(first, made)
    return made.outputs[0]


class _Differs(Exception):
    """The nodes are not those of attention."""


def _recognised(cache: ir.Value, keys: ir.Node, values: ir.Node) -> _Found:
    try:
        return _walked(keys.outputs[0], values.outputs[0])
    except _Differs as error:
        reason = f"attention over it is not in the form that becomes GroupQueryAttention: {error}"
        raise Unsupported(reason, subject=str(cache.name), ways_out=("--target onnxruntime",)) from error


def _walked(keys: ir.Value, values: ir.Value) -> _Found:
    turned = _next(keys, "Transpose")
    if list(turned.attributes.get_ints("perm", ())) != [0, 1, 3, 2]:
        raise _Differs("keys are turned otherwise")
    spread = _maybe(turned, "Unsqueeze")
    product = _next(spread.outputs[0], "MatMul")
    query = _operand(product, 0)
    if spread is not turned:
        query = _operand(_made(query, "Reshape"), 0)
    scaled = _next(product.outputs[0], "Mul")
    scale, here, cap = _constant(scaled), scaled, 0.0
    if (after := _following(here)).op_type == "Div":
        cap = _constant(after)
        tanh = _next(after.outputs[0], "Tanh")
        here = _next(tanh.outputs[0], "Mul")
        if _constant(here) != cap:
            raise _Differs("scores are divided by one number and multiplied by another")
    where = _next(here.outputs[0], "Where")
    softmax = _next(where.outputs[0], "Softmax")
    mixed = _next(softmax.outputs[0], "MatMul")
    _check_values(mixed, values)
    back = _next(_maybe(mixed, "Reshape").outputs[0], "Transpose")
    if list(back.attributes.get_ints("perm", ())) != [0, 2, 1, 3]:
        raise _Differs("heads are joined otherwise")
    joined = _next(back.outputs[0], "Reshape")
    heads = None if query.shape is None else query.shape[1]
    if not isinstance(heads, int):
        raise _Differs("the number of heads is unknown")
    return _Found(query, joined, heads, scale, cap, _window(_operand(where, 0)))


def _check_values(mixed: ir.Node, values: ir.Value) -> None:
    maker = _operand(mixed, 1)
    if maker is not values and _operand(_made(maker, "Unsqueeze"), 0) is not values:
        raise _Differs("what is mixed is not the cache of values")


def _window(mask: ir.Value) -> int:
    """How many places a query sees, itself included; -1 where it sees all that are not behind it."""
    node = mask.producer()
    if node is None:
        raise _Differs("the mask is not computed from places")
    if node.op_type == "LessOrEqual":
        _check_places(node)
        return -1
    if node.op_type != "And":
        raise _Differs(f"the mask ends in {node.op_type}")
    _check_places(_made(_operand(node, 0), "LessOrEqual"))
    near = _made(_operand(node, 1), "Greater")
    return int(_constant(_made(_operand(near, 1), "Sub")))


def _check_places(node: ir.Node) -> None:
    """Keys (1, places) are compared with queries (places, 1), both from Range."""
    for value in (_operand(node, 0), _operand(node, 1)):
        _made(_operand(_made(value, "Unsqueeze"), 0), "Range")


def _following(node: ir.Node) -> ir.Node:
    uses = list(node.outputs[0].uses())
    if len(uses) != 1:
        raise _Differs(f"{node.op_type} is read {len(uses)} times")
    return uses[0].node


def _next(value: ir.Value, kind: str) -> ir.Node:
    nodes = [use.node for use in value.uses()]
    if len(nodes) != 1 or nodes[0].op_type != kind or nodes[0].domain:
        raise _Differs(f"{kind} is expected behind {value.name}")
    return nodes[0]


def _maybe(node: ir.Node, kind: str) -> ir.Node:
    after = _following(node)
    return after if after.op_type == kind else node


def _made(value: ir.Value, kind: str) -> ir.Node:
    node = value.producer()
    if node is None or node.op_type != kind or node.domain:
        raise _Differs(f"{value.name} is not made by {kind}")
    return node


def _operand(node: ir.Node, place: int) -> ir.Value:
    value = node.inputs[place] if place < len(node.inputs) else None
    if value is None:
        raise _Differs(f"{node.name} lacks input {place}")
    return value


def _constant(node: ir.Node) -> float:
    stored = _operand(node, 1).const_value
    if stored is None or stored.size != 1:
        raise _Differs(f"{node.name} is not by one number")
    array: Array = stored.numpy()
    return float(array.reshape(()))


def _replace(
    graph: ir.Graph, caches: tuple[ir.Value, ir.Value], longer: list[ir.Node], found: _Found, lengths: _Lengths
) -> None:
    inputs = [_joined(graph, found.joined, value) for value in (found.query, *(node.inputs[1] for node in longer))]
    attributes: dict[str, int | float] = {
        "num_heads": found.heads, "kv_num_heads": groups_of(caches[0])[0], "scale": found.scale,
    }  # fmt: skip
    if found.cap:
        attributes["softcap"] = found.cap
    if found.window > 0:
        attributes["local_window_size"] = found.window
    name = f"{found.joined.name}/GroupQueryAttention"
    operands = [*inputs, *caches, lengths.last, lengths.total]
    node = ir.node("GroupQueryAttention", operands, attributes, domain=CONTRIB, num_outputs=3, name=name)
    graph.insert_before(found.joined, node)
    for old, new in zip((found.joined.outputs[0], *(each.outputs[0] for each in longer)), node.outputs, strict=True):
        new.shape, new.type = old.shape, old.type
        label = old.name
        ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        old.name, new.name = f"{label}/written_out", label


def _joined(graph: ir.Graph, before: ir.Node, value: ir.Value | None) -> ir.Value:
    """(batch, heads, places, size) as (batch, places, heads × size)."""
    assert value is not None, "recognised"
    heads, size = (None, None) if value.shape is None else (value.shape[1], value.shape[3])
    if not isinstance(heads, int) or not isinstance(size, int):
        raise Unsupported("its heads are of unknown number or size", subject=str(value.name))
    width = heads * size
    turned = ir.node("Transpose", [value], {"perm": [0, 2, 1, 3]}, name=f"{value.name}/by_places")
    turned.outputs[0].name = str(turned.name)
    shape = add_constant(graph, f"genai_joined_{width}", np.array([0, 0, width], np.int64))
    flat = ir.node("Reshape", [turned.outputs[0], shape], name=f"{value.name}/joined")
    flat.outputs[0].name = str(flat.name)
    graph.insert_before(before, (turned, flat))
    return flat.outputs[0]


def _count_by_the_mask(graph: ir.Graph, lengths: _Lengths) -> None:
    """Places begin behind those that the mask tells of: the cache itself is as long as the context from the start."""
    total = _new(graph, "Cast", lengths.total, to=int(ir.DataType.INT64))
    ids = graph.inputs[0]
    for node in [node for node in graph if node.op_type == "Shape" and node.inputs[0] in list(graph.inputs)[2:]]:
        for use in list(node.outputs[0].uses()):
            if use.node.op_type != "Gather" or _constant(use.node) != 2:
                raise Unsupported(
                    "the length of the cache is used in a way that is not known", subject=str(use.node.name)
                )
            new = _new(graph, "Size", ids)
            old = _new(graph, "Sub", total, new)
            ir.convenience.replace_all_uses_with(use.node.outputs[0], old)

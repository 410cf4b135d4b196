"""A decoder's graph with its cache in place: buffers as long as the text may become, into which new places are written.

LiteRT-LM calls a signature with tokens, their places and the caches, and hands the caches that it gets on to the next
call.  Places behind the last token hold what padding wrote there; no query sees them until they are written again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common

from convertkit.errors import Unsupported
from convertkit.onnx.canonical import freeze_dims_left
from convertkit.onnx.edit import add_constant, array_of
from convertkit.targets.decoders.cache import caches_of, groups_of, grown, layer_count

TOKENS, PLACES, LOGITS = "tokens", "input_pos", "logits"
_OPSET = 24
"""In which TensorScatter is."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a cache: ``layers`` of (1, ``groups``, ``length``, ``size``), twice, in float32."""

    layers: int
    groups: int
    size: int
    length: int

    @property
    def cache_bytes(self) -> int:
        """Of all keys and values."""
        return 2 * self.layers * self.groups * self.size * self.length * 4


def cache_name(kind: int, layer: int) -> str:
    """What LiteRT-LM looks for: ``kind`` is 0 for keys and 1 for values."""
    return f"kv_cache_{'kv'[kind]}_{layer}"


def in_place(model: ir.Model, rows: int, length: int, *, logits: bool) -> tuple[Shape, tuple[str, ...]]:
    """``rows`` tokens a call, in place; returns the cache's shape and what the outputs are called, in their order.

    ``logits``: whether they are an output.  Raises ``Unsupported`` for a cache that is not read and written as a
    decoder does it.
    """
    graph = model.graph
    graph.opset_imports[""] = max(_OPSET, graph.opset_imports.get("", 0))
    tokens = ir.Value(name=TOKENS, shape=ir.Shape([1, rows]), type=ir.TensorType(ir.DataType.INT32))
    places = ir.Value(name=PLACES, shape=ir.Shape([rows]), type=ir.TensorType(ir.DataType.INT32))
    layers, ids = layer_count(graph), graph.inputs[0]
    wide = _before_all(graph, "Cast", places, to=int(ir.DataType.INT64))
    first = [add_constant(graph, f"in_place_{bound}", np.array([bound], np.int64)) for bound in (0, 1)]
    start = _before_all(graph, "Slice", wide, *first, first[0])
    _place_by(graph, wide, length)
    shapes, written = set(), []
    for layer in range(layers):
        for kind, cache in enumerate(caches_of(graph, layer)):
            shapes.add(groups_of(cache))
            written.append((_written(graph, cache, cache_name(kind, layer), start, length), cache_name(kind, layer)))
    if len(shapes) != 1:
        raise Unsupported("layers differ in the number or size of their heads")
    ir.convenience.replace_all_uses_with(ids, _before_all(graph, "Cast", tokens, to=int(ir.DataType.INT64)))
    outputs = [(value, LOGITS) for value in graph.outputs if logits and value.name == LOGITS] + written
    graph.outputs.clear()
    graph.outputs.extend(value for value, _ in outputs)
    graph.inputs[0] = tokens
    graph.inputs.insert(1, places)
    common.RemoveUnusedNodesPass()(model)
    _refuse_lengths(graph)
    freeze_dims_left(model, {"batch": 1, "sequence": rows})
    return Shape(layers, *shapes.pop(), length), tuple(name for _, name in outputs)


def _before_all(graph: ir.Graph, kind: str, *inputs: ir.Value, **attributes: int) -> ir.Value:
    """A node in front of all that are the source's."""
    made = ir.node(kind, list(inputs), attributes, name=f"in_place/{kind}_{len(graph)}")
    made.outputs[0].name = str(made.name)
    first = next(node for node in graph if not str(node.name).startswith("in_place/"))
    graph.insert_before(first, made)
    return made.outputs[0]


def _place_by(graph: ir.Graph, places: ir.Value, length: int) -> None:
    """Queries stand where the call says, keys on all places of the cache."""
    every = add_constant(graph, "in_place_keys", np.arange(length, dtype=np.int64))
    for node in [node for node in graph if node.op_type == "Range"]:
        begin, step = array_of(node.inputs[0]), array_of(node.inputs[2])
        if step is None or step.item() != 1 or (begin is not None and begin.item() != 0):
            raise Unsupported("its range is neither that of queries nor that of keys", subject=str(node.name))
        ir.convenience.replace_all_uses_with(node.outputs[0], places if begin is None else every)


def _written(graph: ir.Graph, cache: ir.Value, name: str, start: ir.Value, length: int) -> ir.Value:
    """The cache with its new places written from ``start`` (1) on, instead of behind the old ones."""
    groups, size = groups_of(cache)
    joined = grown(cache)
    buffer = ir.Value(name=name, shape=ir.Shape([1, groups, length, size]), type=ir.TensorType(ir.DataType.FLOAT))
    graph.inputs[list(graph.inputs).index(cache)] = buffer
    node = ir.node("TensorScatter", [buffer, joined.inputs[1], start], {"axis": 2}, name=f"in_place/{name}")
    made = node.outputs[0]
    made.name, made.shape, made.type = f"{name}/written", buffer.shape, buffer.type
    graph.insert_before(joined, node)
    for use in list(joined.outputs[0].uses()):
        use.node.replace_input_with(use.idx, made)
    return made


def _refuse_lengths(graph: ir.Graph) -> None:
    """Nothing may ask how long the cache is: it is as long as the context from the start."""
    known = set(graph.inputs)
    for node in graph.all_nodes():
        foreign = [value for value in node.inputs if value is not None and value.producer() is None]
        lost = [value for value in foreign if value.const_value is None and value not in known]
        if lost:
            raise Unsupported("the length of the cache is used in a way that is not known", subject=str(node.name))


def rows_of(prefill: tuple[int, ...], context: int) -> tuple[int, ...]:
    """How many tokens the signatures for prompts take, none more than the context has, in rising order."""
    return tuple(sorted({min(rows, context) for rows in prefill}))

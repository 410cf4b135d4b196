"""A decoder's cache in its ONNX graph, as the source has it: an input for each layer that a Concat makes longer."""

from __future__ import annotations

import onnx_ir as ir

from convertkit.errors import Unsupported

KEY, VALUE = "past_key_values.{}.key", "past_key_values.{}.value"


def layer_count(graph: ir.Graph) -> int:
    """How many layers have a cache; ``Unsupported`` where none has."""
    expected = {KEY.format(place) for place in range(len(graph.inputs))}
    layers = sum(value.name in expected for value in graph.inputs)
    if not layers:
        raise Unsupported(
            "the model has no cache past_key_values.N.key", ways_out=("a decoder's folder as the source",)
        )
    return layers


def caches_of(graph: ir.Graph, layer: int) -> tuple[ir.Value, ir.Value]:
    """Keys and values of a layer, as they come in."""
    return _only(graph, KEY.format(layer)), _only(graph, VALUE.format(layer))


def _only(graph: ir.Graph, name: str) -> ir.Value:
    found = next((value for value in graph.inputs if value.name == name), None)
    if found is None:
        raise Unsupported(f"the model has no input {name}")
    return found


def groups_of(cache: ir.Value) -> tuple[int, int]:
    """How many heads of keys there are, and their size."""
    dims = () if cache.shape is None else tuple(cache.shape)
    groups, size = (dims[1], dims[3]) if len(dims) == 4 else (None, None)
    if not isinstance(groups, int) or not isinstance(size, int):
        raise Unsupported("its sizes are not batch, groups, places, head size", subject=str(cache.name))
    return groups, size


def grown(cache: ir.Value) -> ir.Node:
    """The Concat behind a cache, whose result is an output."""
    readers = [use.node for use in cache.uses() if use.node.op_type != "Shape"]
    if len(readers) != 1 or readers[0].op_type != "Concat" or readers[0].inputs[0] is not cache:
        raise Unsupported("its new places are not put behind the old ones by a Concat", subject=str(cache.name))
    if len(readers[0].inputs) != 2 or readers[0].attributes.get_int("axis", 0) not in (2, -2):
        raise Unsupported("it does not grow along its places", subject=str(cache.name))
    if not readers[0].outputs[0].is_graph_output():
        raise Unsupported("the grown cache is not an output", subject=str(cache.name))
    return readers[0]


def vocabulary_of(graph: ir.Graph) -> int:
    """How many tokens there are; ``Unsupported`` without logits."""
    logits = next((value for value in graph.outputs if value.name == "logits"), None)
    dims = () if logits is None or logits.shape is None else tuple(logits.shape)
    if len(dims) != 3 or not isinstance(dims[2], int):
        raise Unsupported("the model has no output logits of batch, places and vocabulary")
    return dims[2]

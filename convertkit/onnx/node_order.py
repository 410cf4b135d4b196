"""Nodes that stand before those whose outputs they read: ONNX asks for order, and ONNX Runtime makes it itself."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def sort_nodes(graph: onnx.GraphProto) -> None:
    """Put the nodes of ``graph``, and of the graphs inside of it, in order, in place.

    Nodes in order stay as they are, and so does a graph with a cycle, which has none.
    """
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                sort_nodes(inner)
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    asked = [sorted({makers[name] for name in _read(node) if name in makers}) for node in graph.node]
    if all(not places or places[-1] < place for place, places in enumerate(asked)):
        return
    order = _ordered(asked)
    if order is not None:
        nodes = [graph.node[place] for place in order]
        sorted_graph = onnx.GraphProto(node=nodes)
        del graph.node[:]
        graph.node.extend(sorted_graph.node)


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """What a node takes, and what the graphs inside of it may take from around it."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            own = {name for each in inner.node for name in each.output} | {value.name for value in inner.input}
            own.update(constant.name for constant in inner.initializer)
            asked = [*(value.name for value in inner.output), *(name for each in inner.node for name in _read(each))]
            yield from (name for name in asked if name not in own)


def _ordered(asked: list[list[int]]) -> list[int] | None:
    """Places so that each stands behind those it asks for, as near to where it stood as can be; None for a cycle."""
    order, done, begun = list[int](), set[int](), set[int]()
    for first in range(len(asked)):
        waiting = [first]
        while waiting:
            place = waiting[-1]
            if place in done:
                waiting.pop()
                continue
            begun.add(place)
            missing = [each for each in asked[place] if each not in done]
            if not missing:
                done.add(place)
                order.append(place)
                waiting.pop()
            elif any(each in begun for each in missing):
                return None
            else:
                waiting.append(missing[0])
    return order
